"""An emulated mesh controller on real wires, its truth in the hands of the test, and host programs as processes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import SystemClock
from lumion_hw.emulator.mesh.lumion import BoardProfile, MeshBoard
from lumion_hw.emulator.wires.server import EmulatorServer
from tests.waiting import PATIENCE_S

HOST = Path(__file__).with_name("mesh_host.py")
N = 144
STAGED = BoardProfile(n_dac=N, n_adc=4, mtu=256)
"""144 codes take two frames of 256 bytes: every table is staged and committed."""
BUSY_MACHINE_S = 10.0
"""How late a process may be scheduled; the watchdog itself is judged by the board's own exact instants."""


class ServedBoard:
    """The board. It notes each change of its outputs with the board's instant and the instant it was noticed."""

    def __init__(self, directory: Path, transport: str, profile: BoardProfile = STAGED) -> None:
        self.clock = SystemClock()
        self.history: list[tuple[float, float, list[float]]] = []
        self.polled_s = 0.0
        self._changed = threading.Condition()
        self._transport = transport
        self._pty = directory / "mesh0"
        self._port = 0
        self.board = MeshBoard(
            "mesh0",
            self.clock,
            np.random.default_rng(7),
            drive=self._drive,
            sense_ma=lambda n_avg, at_s: np.zeros(profile.n_adc),
            profile=replace(profile),
        )
        next_due = self.board.next_due

        def polled() -> float | None:
            self.polled_s = self.clock.now()
            return next_due()

        self.board.next_due = polled  # type: ignore[method-assign]

    def _drive(self, outputs_ma: NDArray[np.float64], at_s: float) -> None:
        with self._changed:
            self.history.append((at_s, time.monotonic(), outputs_ma.tolist()))
            self._changed.notify_all()

    @contextlib.contextmanager
    def plugged_in(self) -> Iterator[str]:
        """Serve the board, at the same address every time; unplugged without a word at the end of the block."""
        with EmulatorServer(self.clock) as server:
            if self._transport == "pty":
                address = server.add_pty(self.board, self._pty)
            else:
                address = server.add_tcp(self.board, self._port)
                self._port = int(address.rsplit(":", 1)[1])
            with server.in_thread():
                yield address

    @property
    def outputs_ma(self) -> list[float]:
        """The truth: what the heaters get now."""
        with self._changed:
            return self.history[-1][2] if self.history else [0.0] * N

    @property
    def is_driving(self) -> bool:
        return any(self.outputs_ma)

    def wait(self, condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        """Wait for a condition that a change of the outputs may bring about."""
        end_s = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < end_s, f"not within {within_s} s; outputs {self.outputs_ma[:4]}"
            with self._changed:
                self._changed.wait(0.01)

    def wait_for_polls(self, during_s: float) -> None:
        """Wait until the server has polled the board once more after a time in which nothing may happen."""
        end_s = self.clock.now() + during_s
        self.wait(lambda: self.polled_s >= end_s)

    def off_since(self) -> float:
        """The board's instant at which all outputs went to zero, for good."""
        with self._changed:
            assert not any(self.history[-1][2])
            on = max(index for index, (_, _, outputs) in enumerate(self.history) if any(outputs))
            return self.history[on + 1][0]


class HostProgram:
    """A host program in a process of its own."""

    def __init__(self, address: str, act: str, *options: str) -> None:
        self.said: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, str(HOST), address, act, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.said.append(json.loads(line))
                self._news.notify_all()

    def expect(self, key: str, value: object = None, *, after: int = 0) -> dict[str, Any]:
        """Return the first thing it says under a key (with a value), from its ``after``-th line on."""
        end_s = time.monotonic() + PATIENCE_S
        while True:
            with self._news:
                for line in self.said[after:]:
                    if key in line and value in (None, line[key]):
                        return line
                self._news.wait(0.05)
            assert time.monotonic() < end_s, (key, value, self.said[-5:])
            if self.process.poll() is not None and not self._listener.is_alive():
                with self._news:
                    found = [line for line in self.said[after:] if key in line and value in (None, line[key])]
                assert found, (key, value, self.said[-5:], self.process.stderr and self.process.stderr.read())

    def end(self, number: int | None = None, times: int = 1) -> int:
        """Send a signal, if one is given, and return the exit code."""
        for _ in range(times if number is not None else 0):
            self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        self._listener.join(PATIENCE_S)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        self._listener.join(PATIENCE_S)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@contextlib.contextmanager
def host(address: str, act: str, *options: str) -> Iterator[HostProgram]:
    """Run a host program for the length of a block; killed at its end if it still runs."""
    program = HostProgram(address, act, *options)
    try:
        yield program
    finally:
        program.close()
