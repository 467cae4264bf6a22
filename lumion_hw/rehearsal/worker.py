"""Worker processes of a rehearsal, one per rank, forked from a process that has imported everything."""

from __future__ import annotations

import importlib
import os
import signal
import socket

from lumion_hw.rehearsal.network import DATA_INTERFACE, die_with_parent, enter_namespace
from lumion_hw.rehearsal.training import create_job
from lumion_hw.training.member import Member


def run_worker_pool(pool_end: socket.socket, job: str, seed: int) -> None:
    """Start workers on request by forking this process; never returns.

    A request contains the kind of network and the file descriptors of the worker; the reply is the process ID.
    """
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps ended children
    if job != "numpy":  # once, for all workers
        importlib.import_module("torch.distributed.fsdp" if job == "sharded" else "torch.nn.parallel")
        importlib.import_module("torch.distributed")
    pool_end.send(b"ready")
    while True:
        order, handles, _, _ = socket.recv_fds(pool_end, 64, 4)
        if not order:
            os._exit(0)
        is_space = order == b"space"
        child = os.fork()
        if not child:
            pool_end.close()
            die_with_parent()
            try:
                _work(handles, is_space, job, seed)
            finally:
                os._exit(1)
        for handle in handles:
            os.close(handle)
        pool_end.send(str(child).encode())


def _work(handles: list[int], is_space: bool, job: str, seed: int) -> None:
    control, link = socket.socket(fileno=handles[0]), None
    if is_space:
        enter_namespace(handles[1])
        os.close(handles[1])
        os.environ["GLOO_SOCKET_IFNAME"] = DATA_INTERFACE
    else:
        link = socket.socket(fileno=handles[1])
    Member(control, create_job(job, seed, link)).run()
