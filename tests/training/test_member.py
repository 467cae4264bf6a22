"""A rank of a training job: its steps in one group end before it joins the next one."""

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from lumion_hw.training import member as module
from lumion_hw.training.member import Member
from tests.waiting import PATIENCE_S

STEPS = 2


class StubbornJob:
    """A job whose first step does not end at the first cuts.

    Args:
        cuts: Number of cuts that end the step.
        hangs: Whether the step sleeps meanwhile; otherwise it works.
    """

    def __init__(self, cuts: int, *, hangs: bool = False) -> None:
        self.hangs = hangs
        self.step, self.generation = 0, 0
        self.overlaps: list[int] = []
        self._cuts_left, self._is_waiting = cuts, False
        self._is_cut, self._guard = threading.Event(), threading.Lock()

    def warm_up(self) -> None:
        pass

    def reset(self) -> None:
        self.step = 0

    def join(self, order: Mapping[str, Any]) -> None:
        self.generation = int(order["generation"])
        if self._is_waiting:
            self.overlaps.append(self.generation)
            self._is_cut.set()

    def agree(self, is_new: bool) -> None:
        pass

    def restore(self) -> None:
        pass

    def train_step(self) -> None:
        if self.generation == 1:
            self._is_waiting = True
            while not self._is_cut.wait(PATIENCE_S if self.hangs else 1e-3):
                pass
            self._is_waiting = False
            raise ConnectionError("cut")
        self.step += 1

    def finish(self) -> str:
        return "hash"

    def cut(self) -> None:
        with self._guard:
            self._cuts_left -= 1
            if self._cuts_left == 0:
                self._is_cut.set()

    def leave(self) -> None:
        pass


@pytest.fixture
def control() -> Iterator[tuple[socket.socket, socket.socket]]:
    ends = socket.socketpair()
    yield ends
    for end in ends:
        end.close()


def train_in_two_groups(control: tuple[socket.socket, socket.socket], job: StubbornJob) -> None:
    """Let a rank leave its first group in the middle of a step, and finish the job in a second one."""
    coordinator, own = control
    member = threading.Thread(target=Member(own, job).run, daemon=True)
    member.start()
    with coordinator.makefile("r", encoding="utf-8") as lines:

        def order(order: str, **details: int) -> None:
            coordinator.sendall((json.dumps({"do": order, "steps": STEPS, "is_new": False, **details}) + "\n").encode())

        def await_report(kind: str) -> dict[str, Any]:
            return next(report for report in map(json.loads, lines) if report["is"] == kind)

        order("form", generation=1)
        await_report("state_restored")
        order("leave")
        order("form", generation=2)
        assert await_report("done")["generation"] == 2
        coordinator.shutdown(socket.SHUT_RDWR)
        member.join(PATIENCE_S)
        assert not member.is_alive()


def test_a_rank_joins_no_group_before_its_last_step_has_ended(control: tuple[socket.socket, socket.socket]) -> None:
    job = StubbornJob(cuts=20)
    train_in_two_groups(control, job)
    assert job.overlaps == []


def test_a_step_that_hangs_is_abandoned(
    control: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HUNG_S", 0.0)
    job = StubbornJob(cuts=1_000_000, hangs=True)
    train_in_two_groups(control, job)
    assert job.overlaps == [2]
