"""A rank of a training job, controlled by a coordinator.

Orders and reports are JSON lines over a socket of their own, so that a waiting rank still sends heartbeats.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

HEARTBEAT_PERIOD_S = 0.02
_CUT_PERIOD_S = 0.01
"""Time between two cuts: a group that is being formed opens further connections."""
_HUNG_S = 0.1
"""Time without any activity after which a training thread hangs."""


class RankJob(Protocol):
    """The training of one rank: its group, its state and its steps."""

    @property
    def step(self) -> int:
        """Number of finished training steps."""

    def warm_up(self) -> None:
        """Do the first training step alone, for its caches and imports, and forget it."""

    def reset(self) -> None:
        """Return to the initial state."""

    def join(self, order: Mapping[str, Any]) -> None:
        """Form the communication group of an order."""

    def agree(self, is_new: bool) -> None:
        """Exchange the last finished steps of all ranks; ``is_new`` ranks have no state."""

    def restore(self) -> None:
        """Return to the first step that a rank has not finished, and give the state to new ranks."""

    def train_step(self) -> None:
        """Train one step."""

    def finish(self) -> str:
        """Wait for all ranks, and return a hash of the state."""

    def cut(self) -> None:
        """Close the connections of the group from another thread; waiting calls raise an error. May be repeated."""

    def leave(self) -> None:
        """Release the group. Does not wait."""


class Member:
    """Carries out the coordinator's orders for one rank.

    Args:
        control: Connection to the coordinator.
        job: The training of this rank.
    """

    def __init__(self, control: socket.socket, job: RankJob) -> None:
        self._control, self._job = control, job
        self._guard = threading.Lock()
        self._orders: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._is_cut = threading.Event()
        self._generation = 0
        self._is_done = False

    def run(self) -> bool:
        """Carry out orders until the coordinator closes the connection; return whether the job was finished."""
        threading.Thread(target=self._send_heartbeats, daemon=True).start()
        threading.Thread(target=self._listen, daemon=True).start()
        self._job.warm_up()
        self._report("warm")
        training: threading.Thread | None = None
        while (order := self._orders.get()) is not None:
            if training is not None:
                self._end(training)
            self._job.leave()
            if order["do"] == "reset":
                self._job.reset()
                self._report("reset")
            elif order["do"] == "form":
                self._is_cut.clear()
                self._is_done = False
                self._generation = int(order["generation"])
                training = threading.Thread(target=self._train, args=(order,), daemon=True)
                training.start()
        return self._is_done

    def _end(self, training: threading.Thread) -> None:
        """Cut the connections of a training thread until it has ended.

        A collective operation may hang for ever although its connections are cut (gloo, torch 2.13): such a thread is
        abandoned. One that is only slow must end first, because the next one uses the same groups of torch.
        """
        activity, since_s = "", time.monotonic()
        while training.is_alive():
            self._job.cut()
            training.join(_CUT_PERIOD_S)
            before, activity = activity, _activity(training)
            if activity != before or not activity:
                since_s = time.monotonic()
            elif time.monotonic() > since_s + _HUNG_S:
                return

    def _report(self, kind: str, **details: Any) -> None:
        line = json.dumps({"is": kind, **details}) + "\n"
        with self._guard, contextlib.suppress(OSError):
            self._control.sendall(line.encode())

    def _send_heartbeats(self) -> None:
        pause = threading.Event()
        while True:
            self._report("beat")
            pause.wait(HEARTBEAT_PERIOD_S)

    def _listen(self) -> None:
        with contextlib.suppress(OSError), self._control.makefile("r", encoding="utf-8") as lines:
            for line in lines:
                order = json.loads(line)
                if order["do"] == "leave":
                    self._is_cut.set()
                    self._job.cut()
                else:
                    self._orders.put(order)
        if self._is_done:
            self._orders.put(None)
        else:
            os._exit(1)  # the coordinator is gone, or has given the rank to a spare

    def _train(self, order: Mapping[str, Any]) -> None:
        generation, job = int(order["generation"]), self._job
        try:
            job.join(order)
            self._report("group_up", generation=generation)
            job.agree(bool(order["is_new"]))
            self._report("first_allreduce", generation=generation)
            job.restore()
            self._report("state_restored", generation=generation, step=job.step)
            kind = "first_step"
            while job.step < int(order["steps"]):
                job.train_step()
                self._report(kind, generation=generation, step=job.step)
                kind = "step"
            digest = job.finish()
            self._is_done = True
            self._report("done", generation=generation, sha256=digest)
        except Exception as error:  # noqa: BLE001 - any error of the group, the sockets or the training step
            reason = "ordered to leave" if self._is_cut.is_set() else f"{type(error).__name__}: {error}"
            self._report("left", generation=generation, words=reason[:200])
            if generation == self._generation:  # otherwise this thread was abandoned
                job.cut()


def _activity(thread: threading.Thread) -> str:
    """Return a text that changes when a sleeping thread wakes; empty for a thread that is ready to run."""
    try:
        status = Path(f"/proc/self/task/{thread.native_id}/status").read_text(encoding="ascii", errors="replace")
    except OSError:  # it has ended
        return ""
    lines = [line for line in status.splitlines() if "ctxt_switches" in line or line.startswith("State:")]
    return " ".join(lines) if "S (sleeping)" in status else ""
