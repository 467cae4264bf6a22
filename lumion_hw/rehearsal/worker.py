"""Worker process of one rank, controlled by the supervisor.

Orders and reports are JSON lines over a separate socket, so that a waiting rank still sends heartbeats.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import queue
import signal
import socket
import threading
from typing import Any

from lumion_hw.rehearsal.network import DATA_INTERFACE, die_with_parent, enter_namespace
from lumion_hw.rehearsal.training import GlooGroup, RingGroup, Trainer, create_group, create_model

HEARTBEAT_PERIOD_S = 0.02


class Worker:
    """Carries out the supervisor's orders for one rank.

    Args:
        control: Connection to the supervisor.
        link: Socket for messages; ``None`` if data go over TCP.
        job: ``torch`` or ``numpy``.
        seed: Random seed of the model.
    """

    def __init__(self, control: socket.socket, link: socket.socket | None, job: str, seed: int) -> None:
        self._control, self._link, self._job = control, link, job
        self._guard = threading.Lock()
        self._orders: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._group: RingGroup | GlooGroup | None = None
        self._ordered_out = threading.Event()
        self._generation = 0
        self._early: list[bytes] = []
        self._trainer = Trainer(create_model(job, seed))
        self._trainer.model.gradient(0, 0)  # warm up caches, allocators and kernels

    def run(self) -> None:
        """Carry out the supervisor's orders until the supervisor closes the connection."""
        threading.Thread(target=self._send_heartbeats, daemon=True).start()
        threading.Thread(target=self._listen, daemon=True).start()
        self._report("warm")
        while (order := self._orders.get()) is not None:
            if order["do"] == "reset":
                self._trainer.restart()
                self._report("reset")
            elif order["do"] == "form":
                self._train(order)

    def _report(self, kind: str, **details: Any) -> None:
        line = json.dumps({"is": kind, "generation": self._generation, **details}) + "\n"
        with self._guard, contextlib.suppress(OSError):
            self._control.sendall(line.encode())

    def _send_heartbeats(self) -> None:
        pause = threading.Event()
        while True:
            self._report("beat")
            pause.wait(HEARTBEAT_PERIOD_S)

    def _listen(self) -> None:
        with self._control.makefile("r", encoding="utf-8") as lines:
            for line in lines:
                order = json.loads(line)
                if order["do"] == "leave":
                    self._ordered_out.set()
                    if self._group is not None:
                        self._group.cut()
                else:
                    self._orders.put(order)
        os._exit(0)  # the supervisor is gone

    def _train(self, order: dict[str, Any]) -> None:
        self._ordered_out.clear()
        self._generation = int(order["generation"])
        try:
            self._group = group = create_group(order, self._link, self._early)
            self._report("group_up")
            self._settle_state(group, bool(order["is_new"]))
            self._steps(group, int(order["steps"]))
        except Exception as error:  # noqa: BLE001 - any error of gloo, sockets or being ordered out
            reason = "ordered out" if self._ordered_out.is_set() else f"{type(error).__name__}: {error}"
            self._report("left", words=reason[:200])
        finally:
            if self._group is not None:
                self._group.cut()
                if isinstance(self._group, GlooGroup):
                    self._group.end()
            self._group = None

    def _settle_state(self, group: RingGroup | GlooGroup, is_new: bool) -> None:
        trainer, no_step = self._trainer, 1 << 30
        steps = group.gather(no_step if is_new else trainer.step)
        self._report("first_allreduce")
        saved = [step for step in steps if step != no_step]
        if saved and no_step in steps:
            if not is_new:
                trainer.roll_back(min(saved))
            group.broadcast(trainer.state, steps.index(saved[0]))
            trainer.step = min(saved)
        self._report("state_restored", step=trainer.step)

    def _steps(self, group: RingGroup | GlooGroup, steps: int) -> None:
        first = True
        while self._trainer.step < steps:
            self._trainer.train_step(group)
            self._report("first_step" if first else "step", step=self._trainer.step)
            first = False
        digest = hashlib.sha256(self._trainer.state.tobytes()).hexdigest()
        group.gather(0)  # no rank leaves before all have the last step
        self._report("done", sha256=digest)


def run_worker_pool(pool_end: socket.socket, job: str, seed: int) -> None:
    """Start workers on request by forking this process; never returns.

    A request contains the kind of network and the file descriptors of the worker; the reply is the process ID.
    """
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps ended children
    if job == "torch":
        importlib.import_module("torch.distributed")  # once, for all workers
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
    Worker(control, link, job, seed).run()
