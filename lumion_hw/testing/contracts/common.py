"""Contract tests for every kind of device."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn, TypeVar

import pytest

from lumion_hw.clock import Clock, SystemClock
from lumion_hw.errors import ForkError, LinkError, LumionError, NotSupportedError
from lumion_hw.testing.forking import run_in_child

ErrorT = TypeVar("ErrorT", bound=Exception)
ValueT = TypeVar("ValueT")
FunctionT = TypeVar("FunctionT", bound=Callable[..., object])

GARBAGE = (b"\xff\xfe\x81garbage\r\n", b"7.25,noise", bytes(range(256)))
"""Bytes that are not a valid reply."""
STRAY_BYTES = b"\x00\x05\x00\x00\x01\x50half a li"
"""Incomplete beginnings of a binary frame and of a text line."""
_THREAD_PATIENCE_S = 120.0
"""Longest wait for threads, in seconds."""


def on_wires(test: FunctionT) -> FunctionT:
    """Mark a test for which :class:`WireFixtures` also uses a real wire."""
    vars(test)["transports"] = ("memory", "wires")
    return test


def on_wires_only(test: FunctionT) -> FunctionT:
    """Mark a test for which :class:`WireFixtures` uses only real wires, because it needs threads."""
    vars(test)["transports"] = ("wires",)
    return test


def expect(condition: bool, message: str) -> None:
    """Fail the test with ``message`` unless ``condition`` is true."""
    __tracebackhide__ = True
    if not condition:
        pytest.fail(message)


def expect_error(kind: type[ErrorT], description: str, action: Callable[[], object]) -> ErrorT:
    """Return the error of class ``kind`` that an action raises; otherwise fail the test."""
    __tracebackhide__ = True
    try:
        value = action()
    except kind as error:
        return error
    except LumionError as error:
        pytest.fail(f"{description}: expected {kind.__name__}, but {type(error).__name__} was raised: {error}")
    pytest.fail(f"{description}: expected {kind.__name__}, but nothing was raised; the call returned {value!r}")


def result_or_none(action: Callable[[], ValueT]) -> ValueT | None:
    """Return the result of an action, or ``None`` if it raises a ``LumionError``."""
    try:
        return action()
    except LumionError:
        return None


def succeeds(action: Callable[[], object]) -> bool:
    """Return whether an action completes without a ``LumionError``."""
    try:
        action()
    except LumionError:
        return False
    return True


def fail_without_fixture(fixture: str, description: str) -> NoReturn:
    """Fail a test that lacks a required fixture."""
    pytest.fail(f"this contract needs a fixture {fixture!r}: {description}", pytrace=False)


def skip_without_fixture(fixture: str, description: str) -> NoReturn:
    """Skip a test that lacks an optional fixture."""
    pytest.skip(f"this test needs a fixture {fixture!r}: {description}")


def run_parallel(clock: Clock, *actions: Callable[[], object]) -> None:
    """Run each action in its own thread, and raise the first error. On a virtual clock the test is skipped."""
    if clock.is_virtual:
        pytest.skip("virtual time belongs to one thread")
    failures: list[BaseException] = []
    start = threading.Barrier(len(actions))

    def run(action: Callable[[], object]) -> None:
        try:
            start.wait(_THREAD_PATIENCE_S)
            action()
        except BaseException as failure:  # noqa: BLE001 - raised again below, in the test's thread
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(action,), daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_THREAD_PATIENCE_S)
        expect(not thread.is_alive(), f"two threads share a driver: thread still waits after {_THREAD_PATIENCE_S:g} s")
    if failures:
        raise failures[0]


class DeviceContract:
    """Contract tests for every device; base class of the other contracts.

    Required fixture: ``driver``. Optional: ``clock``, ``unplug``, ``disturb``, ``hold_replies``, ``drip``,
    ``send_stray_bytes``.

    Attributes:
        calls: Methods that need the device, each as a name and a function that calls the method of a given driver.
        deadline_s: Time in seconds within which a call to an unplugged device must fail.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {}
    deadline_s: ClassVar[float] = 5.0

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run tests with a parameter ``device_call`` once per entry of :attr:`calls`."""
        if "device_call" in metafunc.fixturenames:
            metafunc.parametrize("device_call", [pytest.param(call, id=name) for name, call in self.calls.items()])

    def observe(self, driver: Any) -> object:
        """Read a value that stays constant while nobody changes the device."""
        return None

    def agree(self, before: Any, after: Any) -> bool:
        """Return whether two values of :meth:`observe` agree."""
        return bool(before == after)

    @pytest.fixture
    def driver(self) -> Any:
        """An open driver, to be closed after the ``yield``."""
        fail_without_fixture("driver", "an open driver, closed again after the test")

    @pytest.fixture
    def clock(self) -> Clock:
        """Clock of the driver; the wall clock unless overridden."""
        return SystemClock()

    @pytest.fixture
    def slack_s(self) -> float:
        """Time in seconds that a slow computer may add to a deadline."""
        return 0.1

    @pytest.fixture
    def unplug(self) -> Callable[[], None]:
        """A function that disconnects the device from its wire."""
        skip_without_fixture("unplug", "a function without arguments that disconnects the device from its wire")

    @pytest.fixture
    def disturb(self) -> Callable[[bytes], None]:
        """A function that inserts given bytes before the next reply."""
        skip_without_fixture("disturb", "a function that inserts given bytes before the next reply")

    @pytest.fixture
    def hold_replies(self) -> Callable[[bool], None]:
        """A function that holds back all replies (``True``) and then delivers them late (``False``)."""
        skip_without_fixture(
            "hold_replies", "a function that withholds all replies (True), then delivers them late (False)"
        )

    @pytest.fixture
    def drip(self) -> Callable[[], None]:
        """A function that makes all later replies arrive byte by byte."""
        skip_without_fixture("drip", "a function after which replies arrive byte by byte")

    @pytest.fixture
    def send_stray_bytes(self) -> Callable[[bytes], None]:
        """A function that sends bytes to the device over a separate link."""
        skip_without_fixture("send_stray_bytes", "a function that sends bytes to the device over a separate link")

    @pytest.fixture
    def stray_bytes(self, send_stray_bytes: Callable[[bytes], None]) -> bytes:
        """Send stray bytes before the driver opens, and return them; request this fixture before ``driver``."""
        send_stray_bytes(STRAY_BYTES)
        return STRAY_BYTES

    @on_wires_only
    def test_stray_bytes_do_not_prevent_opening(self, stray_bytes: bytes, driver: Any) -> None:
        """A driver opens correctly after another program has sent the device an incomplete command."""
        before = self.observe(driver)
        expect(self.agree(before, self.observe(driver)), f"after the stray bytes {stray_bytes!r} two readings differ")

    def test_closing_twice_is_harmless(self, driver: Any) -> None:
        """A second ``close`` has no effect."""
        driver.close()
        driver.close()

    def test_a_closed_driver_raises_a_link_error(self, driver: Any, clock: Clock, slack_s: float) -> None:
        """After ``close`` every call raises ``LinkError`` immediately."""
        driver.close()
        for name, call in self.calls.items():
            started = clock.now()
            expect_error(LinkError, f"{name} after close()", functools.partial(call, driver))
            expect(
                clock.now() - started < 1.0 + slack_s,
                f"{name} after close() must fail immediately, not after a time-out",
            )

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
    def test_a_forked_child_cannot_use_or_close_the_device(self, driver: Any) -> None:
        """In a forked child process every call raises ``ForkError``, and closing does not change the device."""

        def every_call() -> str:
            outcomes = {}
            for name, call in self.calls.items():
                try:
                    outcomes[name] = f"returned {type(call(driver)).__name__}"
                except (ForkError, NotSupportedError):
                    continue
                except Exception as error:  # noqa: BLE001 - reported to the parent
                    outcomes[name] = f"{type(error).__name__}: {error}"
            driver.close()
            return "; ".join(f"{name} {outcome}" for name, outcome in outcomes.items())

        before = self.observe(driver)
        result = run_in_child(every_call)
        expect(result == repr(""), f"expected ForkError in a child process, but: {result}")
        after = self.observe(driver)
        expect(self.agree(before, after), f"a child process changed {before!r} to {after!r}")

    @on_wires
    def test_an_unplugged_device_raises_a_link_error_in_time(
        self,
        driver: Any,
        device_call: Callable[[Any], object],
        unplug: Callable[[], None],
        clock: Clock,
        slack_s: float,
    ) -> None:
        """Every call to an unplugged device raises ``LinkError`` within the deadline."""
        unplug()
        for which in ("the first", "the second"):
            started = clock.now()
            error = expect_error(LinkError, f"{which} call to an unplugged device", lambda: device_call(driver))
            duration_s = clock.now() - started
            expect(
                duration_s <= self.deadline_s + slack_s,
                f"{which} call to an unplugged device took {duration_s:.2f} s, more than {self.deadline_s:g} s",
            )
            expect(bool(error.device and error.address), f"the error does not name the device and its address: {error}")
        driver.close()

    @on_wires
    def test_an_unplugged_device_can_be_closed(self, driver: Any, unplug: Callable[[], None]) -> None:
        """``close`` of an unplugged device raises nothing."""
        unplug()
        driver.close()

    @on_wires
    @pytest.mark.parametrize("garbage", GARBAGE, ids=["line", "text", "bytes"])
    def test_garbage_in_the_stream_never_becomes_a_reading(
        self, driver: Any, disturb: Callable[[bytes], None], garbage: bytes, clock: Clock, slack_s: float
    ) -> None:
        """After garbage bytes a call returns the right value or raises ``LinkError``; the next call is right."""
        before = self.observe(driver)
        disturb(garbage)
        try:
            value = self.observe(driver)
        except LinkError as error:
            expect(bool(error.device and error.address), f"the error does not name the device and its address: {error}")
        else:
            expect(self.agree(before, value), f"garbage before the reply changed {before!r} to {value!r}")
        after = self._repeat_observation(driver, clock, slack_s)
        expect(self.agree(before, after), f"the call after the garbage returned {after!r}, not {before!r}")

    @on_wires
    def test_a_reply_that_comes_late_answers_nothing_else(
        self, driver: Any, hold_replies: Callable[[bool], None], clock: Clock, slack_s: float
    ) -> None:
        """A call to a silent device raises ``LinkError`` in time; later calls never use the late reply."""
        before = self.observe(driver)
        hold_replies(True)
        started = clock.now()
        error = expect_error(LinkError, "a call to a silent device", lambda: self.observe(driver))
        duration_s = clock.now() - started
        expect(
            duration_s <= self.deadline_s + slack_s,
            f"a call to a silent device took {duration_s:.2f} s, more than {self.deadline_s:g} s",
        )
        expect(bool(error.device and error.address), f"the error does not name the device and its address: {error}")
        hold_replies(False)
        for which in ("first", "second"):
            after = self._repeat_observation(driver, clock, slack_s)
            expect(self.agree(before, after), f"the {which} call after the silence returned {after!r}, not {before!r}")

    @on_wires
    def test_replies_may_come_byte_by_byte(self, driver: Any, drip: Callable[[], None]) -> None:
        """A reply that arrives byte by byte gives the same value."""
        before = self.observe(driver)
        drip()
        after = self.observe(driver)
        expect(self.agree(before, after), f"with replies arriving byte by byte {before!r} became {after!r}")

    def _repeat_observation(self, driver: Any, clock: Clock, slack_s: float) -> object:
        end_s = clock.now() + slack_s
        while True:
            try:
                return self.observe(driver)
            except LinkError:
                if clock.is_virtual or clock.now() >= end_s:
                    raise
                clock.sleep(0.01)
