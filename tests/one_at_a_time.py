"""Prove that a lock is needed: run calls in many threads that hand over to each other in the middle of everything.

A test gives a link (or a device) that yields between bytes, or names code that yields between lines, runs the same call
from many threads, and asserts what the lock promises. With the lock, all other threads block, and the one that holds it
goes on. Without the lock, another thread enters at the first yield, every time.

    threads = Interleaved()
    line = Line(YieldingLink(threads), SystemClock(), where)
    threads.run(*[partial(line.write, bytes([n] * 3), "test") for n in range(4)])
    threads.assert_one_at_a_time()

For a lock around plain data, where no bytes pass, name the functions (or the modules) whose lines yield, and assert on
the outcome:

    threads = Interleaved(lines_of=[SharedInstrument])
    assert threads.run(*[partial(instrument.read, n) for n in range(4)]) == [...]

A yield passes the turn round-robin, and only the thread that has the turn runs on. A thread that keeps the turn for
BLOCKED_S without yielding counts as blocked by a lock: it is passed over until it yields again. On a slow machine a
running thread may count as blocked; then two threads run at once for a moment, which correct code withstands at any
time. So a test of correct code never fails by chance, and each blocked thread costs BLOCKED_S. Threads without a lock
never block: a test that asserts their exact order sets a ``blocked_s`` that no machine needs.
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from types import CodeType, FrameType, ModuleType
from typing import Any

from lumion_hw.clock import Deadline
from tests.waiting import PATIENCE_S

BLOCKED_S = 0.01
"""A thread that has not yielded for this long waits for a lock: a step between two yields takes microseconds."""


class Interleaved:
    """Threads that take turns, one step each, and the traffic they cause.

    Args:
        lines_of: Functions, classes or modules whose every line is a yield.
        blocked_s: Time without a yield after which a thread counts as blocked.

    Attributes:
        traffic: What was noted, in order: the number of the call (its position in :meth:`run`) and the item.
    """

    def __init__(
        self, lines_of: Sequence[Callable[..., object] | ModuleType] = (), *, blocked_s: float = BLOCKED_S
    ) -> None:
        self.traffic: list[tuple[int, object]] = []
        self._traced = {code for thing in lines_of for code in _codes(thing)}
        self._state = threading.Condition()
        self._own = threading.local()
        self._waiting: list[int] = []
        self._turn: int | None = None
        self._given_s = 0.0
        self._blocked_s = blocked_s

    def run(self, *calls: Callable[[], object], patience_s: float = PATIENCE_S) -> list[Any]:
        """Run each call in a thread of its own, interleaved; return what they returned, or raise the first error."""
        outcomes: list[Any] = [None] * len(calls)
        errors: list[BaseException] = []

        def thread(number: int) -> None:
            self._own.number = number
            try:
                self._start(number, len(calls))
                if self._traced:
                    sys.settrace(self._trace)
                outcomes[number] = calls[number]()
            except BaseException as error:  # noqa: BLE001 - raised again in the thread of the test
                errors.append(error)
            finally:
                sys.settrace(None)
                self._leave(number)

        threads = [threading.Thread(target=thread, args=(number,), daemon=True) for number in range(len(calls))]
        for each in threads:
            each.start()
        for each in threads:
            each.join(patience_s)
            assert not each.is_alive(), f"a call still waits after {patience_s:g} s: a deadlock"
        if errors:
            raise errors[0]
        return outcomes

    def note(self, item: object) -> None:
        """Note a byte or an access of the current call, then give way. Outside :meth:`run` nothing is noted."""
        number = getattr(self._own, "number", None)
        if number is not None:
            self.traffic.append((number, item))
            self.give_way()

    def give_way(self) -> None:
        """Let every other thread run to its next yield, or until it blocks. Nothing outside :meth:`run`."""
        number = getattr(self._own, "number", None)
        if number is None:
            return
        with self._state:
            self._waiting.append(number)
            if self._turn in (None, number):
                self._pass_on(number)
            self._await_turn(number)

    def _start(self, number: int, expected: int) -> None:
        """Wait until all threads are here; the first one then has the turn."""
        with self._state:
            self._waiting.append(number)
            if len(self._waiting) == expected:
                self._pass_on(None)
            self._await_turn(number)

    def _await_turn(self, number: int) -> None:
        while self._turn != number:
            if self._turn is None:  # other threads have not started yet
                self._state.wait(PATIENCE_S)
                continue
            self._state.wait(max(self._given_s + self._blocked_s - time.monotonic(), 0.0))
            if self._turn not in (None, number) and time.monotonic() >= self._given_s + self._blocked_s:
                self._pass_on(self._turn)  # the thread that has the turn is blocked
        self._waiting.remove(number)

    def _leave(self, number: int) -> None:
        with self._state:
            if self._turn == number:
                self._pass_on(number)

    def _pass_on(self, number: int | None) -> None:
        """Give the turn to the next thread after ``number`` that waits for it."""
        after = -1 if number is None else number
        order = sorted(self._waiting, key=lambda other: (other <= after, other))
        self._turn, self._given_s = (order[0] if order else None), time.monotonic()
        self._state.notify_all()

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        del event, argument
        return self._step if frame.f_code in self._traced else None

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        del frame, argument
        if event == "line":
            self.give_way()
        return self._step

    def assert_one_at_a_time(self) -> None:
        """Fail unless the traffic of each call is in one piece."""
        runs = [number for number, _ in groupby(self.traffic, key=lambda each: each[0])]
        assert len(set(runs)) > 1, "fewer than two calls caused traffic: nothing was proven"
        assert len(runs) == len(set(runs)), f"calls are mixed: {self.traffic}"


class YieldingLink:
    """A ``Link`` whose every byte is noted, and followed by a yield.

    Args:
        threads: The threads.
        link: The link that carries the bytes; nothing carries them if omitted, and nothing comes back.
    """

    name = "yielding"

    def __init__(self, threads: Interleaved, link: Any = None) -> None:
        self._threads = threads
        self._link = link

    def open(self, deadline: Deadline) -> None:
        if self._link is not None:
            self._link.open(deadline)

    def write(self, data: bytes, deadline: Deadline) -> None:
        for byte in data:
            self._threads.note(byte)
            if self._link is not None:
                self._link.write(bytes([byte]), deadline)

    def read(self, deadline: Deadline) -> bytes:
        self._threads.give_way()
        return b"" if self._link is None else self._link.read(deadline)

    def drain(self, quiet_s: float, deadline: Deadline) -> int:
        return 0 if self._link is None else self._link.drain(quiet_s, deadline)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()


class Yielding:
    """Any device or wire: each call of a method is noted by its name and arguments, with a yield before and after.

    Args:
        threads: The threads.
        device: The device.
    """

    def __init__(self, threads: Interleaved, device: Any) -> None:
        self._threads = threads
        self._device = device

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._device, name)
        if not callable(found):
            return found

        def method(*arguments: object, **named: object) -> object:
            self._threads.note((name, *arguments))
            try:
                return found(*arguments, **named)
            finally:
                self._threads.give_way()

        return method


def _codes(thing: object) -> list[CodeType]:
    """Return the code of a function, of all methods of a class, or of all functions and classes of a module."""
    if isinstance(thing, (staticmethod, classmethod)):
        return _codes(thing.__func__)
    if isinstance(thing, property):
        return [code for part in (thing.fget, thing.fset) if part is not None for code in _codes(part)]
    if inspect.isfunction(thing) or inspect.ismethod(thing):
        return _nested(inspect.unwrap(thing).__code__)
    if inspect.isclass(thing):
        return [code for member in vars(thing).values() for code in _codes(member)]
    if inspect.ismodule(thing):
        members = [member for member in vars(thing).values() if getattr(member, "__module__", "") == thing.__name__]
        return [code for member in members for code in _codes(member)]
    return []


def _nested(code: CodeType) -> list[CodeType]:
    """Return code and that of the functions, lambdas and comprehensions in it."""
    return [code, *(each for item in code.co_consts if isinstance(item, CodeType) for each in _nested(item))]
