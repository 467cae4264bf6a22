"""What every device promises, whatever its kind: how it closes, how it fails, and that threads may share it."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn, TypeVar

import pytest

from lumion_hw.clock import Clock, SystemClock
from lumion_hw.errors import ForkError, LinkError, LumionError, NotSupportedError
from lumion_hw.testing.forking import in_child

ErrorT = TypeVar("ErrorT", bound=Exception)
ValueT = TypeVar("ValueT")
FunctionT = TypeVar("FunctionT", bound=Callable[..., object])

GARBAGE = (b"\xff\xfe\x81garbage\r\n", b"7.25,noise", bytes(range(256)))
"""Bytes that are no reply: a line that is no text, text without an end, and every byte once."""
LEFT = b"\x00\x05\x00\x00\x01\x50half a li"
"""The beginning of a binary frame and of a line."""
_THREAD_PATIENCE_S = 120.0
"""Only ends a hang: a busy machine lets threads wait."""


def on_wires(test: FunctionT) -> FunctionT:
    """Mark a promise that a wire can break: :class:`WireFixtures` proves it in memory and on the device's own wire."""
    vars(test)["transports"] = ("memory", "wires")
    return test


def on_wires_only(test: FunctionT) -> FunctionT:
    """Mark a promise about threads, which virtual time cannot have: :class:`WireFixtures` proves it on the wire."""
    vars(test)["transports"] = ("wires",)
    return test


def promised(holds: bool, otherwise: str) -> None:
    """Fail the test with a sentence unless the promise holds."""
    __tracebackhide__ = True
    if not holds:
        pytest.fail(otherwise)


def refused(kind: type[ErrorT], what: str, action: Callable[[], object]) -> ErrorT:
    """Return the error of the kind that an action has to raise; fail the test if it raises none or another one."""
    __tracebackhide__ = True
    try:
        value = action()
    except kind as error:
        return error
    except LumionError as error:
        pytest.fail(f"{what}: {kind.__name__} was promised, {type(error).__name__} came: {error}")
    pytest.fail(f"{what}: {kind.__name__} was promised, nothing was raised; it returned {value!r}")


def unless_refused(action: Callable[[], ValueT]) -> ValueT | None:
    """Return the result of an action, or ``None`` if it raises a ``LumionError``: either is allowed."""
    try:
        return action()
    except LumionError:
        return None


def is_done(action: Callable[[], object]) -> bool:
    """Return whether an action ends without a ``LumionError``."""
    try:
        action()
    except LumionError:
        return False
    return True


def fail_without_fixture(fixture: str, what: str) -> NoReturn:
    """Fail a test whose suite lacks a fixture that every driver author has to give."""
    pytest.fail(f"give this contract a fixture {fixture!r}: {what}", pytrace=False)


def skip_without_fixture(fixture: str, what: str) -> NoReturn:
    """Skip a test whose suite lacks an optional fixture."""
    pytest.skip(f"without a fixture {fixture!r} this promise stays unproven; it is {what}")


def run_parallel(clock: Clock, *actions: Callable[[], object]) -> None:
    """Run actions at once, each in a thread of its own; raise what the first of them raised.

    Virtual time is single-threaded by design: there the test is skipped.
    """
    if clock.is_virtual:
        pytest.skip("virtual time belongs to one thread")
    failures: list[BaseException] = []
    start = threading.Barrier(len(actions))

    def run(action: Callable[[], object]) -> None:
        try:
            start.wait(_THREAD_PATIENCE_S)
            action()
        except BaseException as failure:  # noqa: BLE001 - raised again below, in the thread of the test
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(action,), daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_THREAD_PATIENCE_S)
        promised(not thread.is_alive(), f"two threads on one driver: one still waits after {_THREAD_PATIENCE_S:g} s")
    if failures:
        raise failures[0]


class DeviceContract:
    """Promises of every device; the base of the contracts.

    Fixture to give: ``driver``. Optional: ``clock``, ``unplug``, ``disturb``, ``hold_replies``, ``drip``, ``leave``.

    Attributes:
        calls: Every method that needs the device, by name, called with the driver alone.
        deadline_s: Time within which a call to an unplugged device has failed; override it for slow devices.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {}
    deadline_s: ClassVar[float] = 5.0

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run tests that take a ``device_call`` once for each of :attr:`calls`."""
        if "device_call" in metafunc.fixturenames:
            metafunc.parametrize("device_call", [pytest.param(call, id=name) for name, call in self.calls.items()])

    def observe(self, driver: Any) -> object:
        """Return something read from the device that stays as it is while nobody changes it."""
        return None

    def agree(self, before: Any, after: Any) -> bool:
        """Tell whether two values of :meth:`observe` are the same."""
        return bool(before == after)

    @pytest.fixture
    def driver(self) -> Any:
        """An open driver of the device. Close it behind the ``yield``; the suite may have closed it already."""
        fail_without_fixture("driver", "an open driver, closed again after the test")

    @pytest.fixture
    def clock(self) -> Clock:
        """The clock of the driver; the wall clock unless overridden."""
        return SystemClock()

    @pytest.fixture
    def slack_s(self) -> float:
        """What the machine may add to a deadline before it counts as missed."""
        return 0.1

    @pytest.fixture
    def unplug(self) -> Callable[[], None]:
        """Takes the device off its wire."""
        skip_without_fixture("unplug", "a function without arguments that takes the device off its wire")

    @pytest.fixture
    def disturb(self) -> Callable[[bytes], None]:
        """Lets bytes that no device sent arrive in front of the next reply."""
        skip_without_fixture("disturb", "a function that lets given bytes arrive in front of the next reply")

    @pytest.fixture
    def hold_replies(self) -> Callable[[bool], None]:
        """``True`` holds back all replies of the device, ``False`` lets them arrive, late."""
        skip_without_fixture(
            "hold_replies", "a function that holds back all replies (True) and lets them arrive late (False)"
        )

    @pytest.fixture
    def drip(self) -> Callable[[], None]:
        """Lets replies arrive byte by byte."""
        skip_without_fixture("drip", "a function after which replies arrive byte by byte")

    @pytest.fixture
    def leave(self) -> Callable[[bytes], None]:
        """Sends bytes to the device over a link of its own, and closes that."""
        skip_without_fixture("leave", "a function that sends given bytes to the device, as a program that then ends")

    @pytest.fixture
    def left(self, leave: Callable[[bytes], None]) -> bytes:
        """What was sent before the driver was opened: in a test it stands in front of ``driver``."""
        leave(LEFT)
        return LEFT

    @on_wires_only
    def test_what_another_program_has_sent_spoils_no_opening(self, left: bytes, driver: Any) -> None:
        """Bytes without an end, as of a driver of another kind, may stay in the input of a device on a serial line."""
        before = self.observe(driver)
        promised(self.agree(before, self.observe(driver)), f"after {left!r} it is not the same twice")

    def test_closing_twice_is_harmless(self, driver: Any) -> None:
        """``close`` is idempotent."""
        driver.close()
        driver.close()

    def test_a_closed_driver_raises_a_link_error(self, driver: Any, clock: Clock, slack_s: float) -> None:
        """After ``close`` every call raises a ``LinkError`` at once; none returns old values."""
        driver.close()
        for name, call in self.calls.items():
            started = clock.now()
            refused(LinkError, f"{name} after close()", functools.partial(call, driver))
            promised(
                clock.now() - started < 1.0 + slack_s, f"{name} after close() has to fail at once, not after a time-out"
            )

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
    def test_a_child_made_by_fork_can_neither_use_it_nor_end_it(self, driver: Any) -> None:
        """In a child every call raises a ``ForkError``, and closing sends nothing: the parent's device is as it was."""

        def every_call() -> str:
            said = {}
            for name, call in self.calls.items():
                try:
                    said[name] = f"returned {type(call(driver)).__name__}"
                except (ForkError, NotSupportedError):
                    continue
                except Exception as error:  # noqa: BLE001 - told to the parent
                    said[name] = f"{type(error).__name__}: {error}"
            driver.close()
            return "; ".join(f"{name} {what}" for name, what in said.items())

        before = self.observe(driver)
        seen = in_child(every_call)
        promised(seen == repr(""), f"in a child ForkError was promised, but: {seen}")
        after = self.observe(driver)
        promised(self.agree(before, after), f"a child turned {before!r} into {after!r}")

    @on_wires
    def test_an_unplugged_device_raises_a_link_error_in_time(
        self,
        driver: Any,
        device_call: Callable[[Any], object],
        unplug: Callable[[], None],
        clock: Clock,
        slack_s: float,
    ) -> None:
        """Unplugged, every call raises a ``LinkError`` within the deadline, and so does the next."""
        unplug()
        for which in ("the first", "the second"):
            started = clock.now()
            error = refused(LinkError, f"{which} call to an unplugged device", lambda: device_call(driver))
            took_s = clock.now() - started
            promised(
                took_s <= self.deadline_s + slack_s,
                f"{which} call to an unplugged device took {took_s:.2f} s, more than {self.deadline_s:g} s",
            )
            promised(bool(error.device and error.address), f"the error names no device or no address: {error}")
        driver.close()

    @on_wires
    def test_an_unplugged_device_can_be_closed(self, driver: Any, unplug: Callable[[], None]) -> None:
        """``close`` raises nothing when the device is gone, even if nobody noticed yet."""
        unplug()
        driver.close()

    @on_wires
    @pytest.mark.parametrize("garbage", GARBAGE, ids=["line", "text", "bytes"])
    def test_garbage_in_the_stream_never_becomes_a_reading(
        self, driver: Any, disturb: Callable[[bytes], None], garbage: bytes, clock: Clock, slack_s: float
    ) -> None:
        """Garbage gives the right value or a ``LinkError``, and the next call is right again."""
        before = self.observe(driver)
        disturb(garbage)
        try:
            seen = self.observe(driver)
        except LinkError as error:
            promised(bool(error.device and error.address), f"the error names no device or no address: {error}")
        else:
            promised(self.agree(before, seen), f"garbage before the reply turned {before!r} into {seen!r}")
        after = self._observe_again(driver, clock, slack_s)
        promised(self.agree(before, after), f"the call after the garbage gave {after!r}, not {before!r}")

    @on_wires
    def test_a_reply_that_comes_late_answers_nothing_else(
        self, driver: Any, hold_replies: Callable[[bool], None], clock: Clock, slack_s: float
    ) -> None:
        """A silent device is a ``LinkError`` in time; its late replies are never taken for those of later calls."""
        before = self.observe(driver)
        hold_replies(True)
        started = clock.now()
        error = refused(LinkError, "a call to a silent device", lambda: self.observe(driver))
        took_s = clock.now() - started
        promised(
            took_s <= self.deadline_s + slack_s, f"a silent device took {took_s:.2f} s, more than {self.deadline_s:g} s"
        )
        promised(bool(error.device and error.address), f"the error names no device or no address: {error}")
        hold_replies(False)
        for which in ("first", "second"):
            after = self._observe_again(driver, clock, slack_s)
            promised(self.agree(before, after), f"the {which} call after the silence gave {after!r}, not {before!r}")

    @on_wires
    def test_replies_may_come_byte_by_byte(self, driver: Any, drip: Callable[[], None]) -> None:
        """How a reply is cut into pieces on its way changes nothing."""
        before = self.observe(driver)
        drip()
        after = self.observe(driver)
        promised(self.agree(before, after), f"byte by byte {before!r} became {after!r}")

    def _observe_again(self, driver: Any, clock: Clock, slack_s: float) -> object:
        """Observe what has to be right again; on a busy machine late bytes may cost more than one call."""
        end_s = clock.now() + slack_s
        while True:
            try:
                return self.observe(driver)
            except LinkError:
                if clock.is_virtual or clock.now() >= end_s:
                    raise
                clock.sleep(0.01)
