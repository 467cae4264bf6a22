"""Groups of torch.distributed that are left: their sockets, and their end."""

import gc
import importlib
import importlib.util
import socket
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lumion_hw.errors import DeviceError
from lumion_hw.training import torch_job
from lumion_hw.training.torch_job import TorchJob, _Group

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def test_a_cut_ends_the_connections_of_the_group_and_no_others() -> None:
    earlier, closed = socket.socketpair(), socket.socket()
    number = closed.fileno()
    with socket.create_server(("127.0.0.1", 0)) as other_rank:
        group = _Group(0, 1, 1)
        closed.close()
        with socket.create_connection(other_rank.getsockname()) as connection:
            assert connection.fileno() == number, "the descriptor is used again"
            group.cut()
            connection.setblocking(False)
            assert connection.recv(1) == b""
    earlier[0].sendall(b"x")
    assert earlier[1].recv(1) == b"x"
    for end in earlier:
        end.close()


def test_a_group_is_kept_until_its_last_operations_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    dist: Any = importlib.import_module("torch.distributed")
    started: list[tuple[float, Callable[[], None]]] = []

    def timer(after_s: float, act: Callable[[], None]) -> SimpleNamespace:
        return SimpleNamespace(start=lambda: started.append((after_s, act)))

    monkeypatch.setattr(torch_job, "threading", SimpleNamespace(Timer=timer))
    group = _Group(0, 1, 1)
    group.open(dist.HashStore)
    kept = weakref.ref(dist.group.WORLD)
    group.release()
    gc.collect()
    assert kept() is not None, "its destructor would wait for operations that hang"
    ((after_s, let_go),) = started
    assert after_s > torch_job._TIMEOUT_S
    del group
    let_go()
    gc.collect()
    assert kept() is None


def test_a_thread_that_was_abandoned_changes_no_state() -> None:
    job = TorchJob(lambda servers, per_server: (None, None), lambda model, optimizer, step: job.leave())
    job._group = SimpleNamespace(  # type: ignore[assignment]
        model=None, optimizer=None, packed=lambda: "state", cut=lambda: None, release=lambda: None
    )
    with pytest.raises(DeviceError, match="another group was formed"):
        job.train_step()
    assert job.step == 0
    assert not job._states
