"""Base class of SCPI drivers, with identity checks and checked commands."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar, Required, TypedDict

from lumion_hw.clock import Clock
from lumion_hw.drivers.held_setup import HeldSetup
from lumion_hw.drivers.life_cycle import IdentifiedDriver
from lumion_hw.errors import DeviceError, FrameError, IdentityError, LimitError, VerifyError
from lumion_hw.links.base import Link
from lumion_hw.links.owner import fork_safe
from lumion_hw.sessions.scpi import ScpiSession


@dataclass(frozen=True)
class Identity:
    """Identity of an instrument: the four fields of its reply to ``*IDN?`` (IEEE 488.2, 10.14)."""

    maker: str
    model: str
    serial: str
    firmware: str


@dataclass(frozen=True)
class ExpectedIdentity:
    """Identity that the instrument must report.

    Attributes:
        makers: Accepted beginnings of the maker's name, in capitals.
        models: Accepted models, in capitals; empty for any model of these makers.
        model: Required model; ``None`` for any of ``models``.
        serial: Required serial number; ``None`` for any.
    """

    makers: tuple[str, ...]
    models: Collection[str]
    model: str | None = None
    serial: str | None = None

    def matches(self, identity: Identity) -> bool:
        """Return whether an identity matches. Upper and lower case are equal in maker and model."""
        model = identity.model.upper()
        return (
            identity.maker.upper().startswith(self.makers)
            and (not self.models or model in self.models)
            and (self.model is None or model == self.model.upper())
            and (self.serial is None or identity.serial == self.serial)
        )


def checked_identity(session: ScpiSession, reply: str, expected: ExpectedIdentity) -> Identity:
    """Return the identity in a reply to ``*IDN?``. Raises ``IdentityError`` if it is not the expected one."""
    # Four fields (IEEE 488.2, 10.14); some firmware pads them.
    fields = [field.strip() for field in reply.split(",")]
    if len(fields) == 4 and expected.matches(identity := Identity(*fields)):
        return identity
    session.forget_identity()
    expected_model = (
        expected.model or " or ".join(expected.models) or f"an instrument of {' or '.join(expected.makers)}"
    )
    raise session.error(
        IdentityError,
        f"expected {expected_model}, serial {expected.serial or 'any'}; found {reply!r}",
        hint="Check the address in the bench file and which instrument is connected there.",
    )


_log = logging.getLogger(__name__)

# Known error queues hold 10 to 30 entries. The limit keeps a queue that never empties from blocking the session.
_LARGEST_QUEUE = 64
_LIMIT_SLACK = 1e-6  # instruments send their limits as float32
NOT_A_VALUE = 1e20
"""Larger numbers in replies mark missing values, such as 9.9E37 (infinity) and 9.91E37 (NaN)."""
_OPERATION_COMPLETE = 1  # bit 0 of the standard event status register (IEEE 488.2, 11.5.1)
# Trigger ignored, questionable data, maths error (dark reading in dBm), query interrupted, query unterminated.
# They occur in normal operation; other public drivers for this family ignore them too.
KEYSIGHT_IGNORABLE_ERRORS = frozenset({-213, -231, -261, -410, -420})
"""Errors that Keysight's optical meters and lasers queue in normal operation."""


class StrictScpi:
    """SCPI commands with checks, so that no setting fails unnoticed.

    Args:
        ignorable: Error codes that occur in normal operation.
        error_query: Query that removes the oldest error from the queue.
    """

    def __init__(
        self, session: ScpiSession, ignorable: frozenset[int] = frozenset(), error_query: str = "SYST:ERR?"
    ) -> None:
        self.session = session
        self._ignorable = ignorable
        self._error_query = error_query
        self._resyncs_handled = 0

    def number(self, command: str, timeout_s: float | None = None, held: HeldSetup | None = None) -> float:
        """Send a query and return its reply as a number. Raises ``FrameError`` for other replies.

        Args:
            command: The query.
            timeout_s: Time limit for the reply; by default that of the session.
            held: Settings on which the number depends; they are checked with this reading.
        """
        reply = self.session.query(command, timeout_s) if held is None else held.query(command, timeout_s)
        try:
            return float(reply)
        except ValueError:
            raise self.wrong_shape(command, reply, "a number") from None

    def setting(self, command: str, held: HeldSetup | None = None) -> float:
        """Return the value of a numeric setting. Raises ``DeviceError`` if the instrument reports no value."""
        value = self.number(command, held=held)
        if is_value(value):
            return value
        raise self.session.error(
            DeviceError,
            f"{command} returned {value:g}, which marks a failed query",
            command=command,
            hint=f"The instrument's error queue: {self.errors()}.",
        )

    def numbers(self, command: str, timeout_s: float | None = None) -> tuple[float, ...]:
        """Return the numbers in the reply to a query. Raises ``FrameError`` for other replies."""
        reply = self.session.query(command, timeout_s)
        try:
            return tuple(float(field) for field in reply.split(","))
        except ValueError:
            raise self.wrong_shape(command, reply, "numbers") from None

    def read_keyword(self, command: str, keywords: Iterable[str]) -> str:
        """Return the keyword in the reply to a query, spelled as in ``keywords``, such as ``SMEasure``.

        Raises ``FrameError`` if the reply is not one of ``keywords``, in short or long form.
        """
        by_form = {form: word for word in keywords for form in (_short(word), word.upper())}
        reply = self.session.query(command)
        if reply.strip().upper() not in by_form:
            raise self.wrong_shape(command, reply, f"one of {', '.join(by_form.values())}")
        return by_form[reply.strip().upper()]

    def set_keyword(self, header: str, word: str) -> None:
        """Set and verify a keyword. ``word`` has the short form in capitals, such as ``SMEasure``."""
        short = _short(word)
        with self.session.transaction():
            self.set(f"{header} {short}")
            reply = self.session.query(f"{header}?")
        if reply.upper() not in (short, word.upper()):
            raise self.session.error(VerifyError, header, wrote=short, read=reply)

    def set_number(
        self,
        header: str,
        text: str,
        wrote: float,
        scale: float,
        tolerance: float,
        label: str,
        held: HeldSetup | None = None,
    ) -> float:
        """Set a number and verify it.

        Args:
            header: Header of the setting.
            text: Value as sent to the instrument.
            wrote: Value in the caller's unit.
            scale: Factor that converts the instrument's reply to the caller's unit.
            tolerance: Largest accepted difference, in the caller's unit.
            label: Name of the quantity, for messages.
            held: Settings on which the number depends; they are checked and restored first.

        Returns:
            The value read back, in the caller's unit.

        Raises:
            DeviceError: The instrument refuses the command.
            VerifyError: The value read back differs.
        """
        with self.session.transaction():
            if held is not None:
                held.restore_changed()
            self.set(f"{header} {text}")
            actual = scale * self.setting(f"{header}?", held)
            self.verify(label, wrote, actual, tolerance)
        return actual

    def are_operations_complete(self) -> bool:
        """Return whether no operation is pending, without waiting."""
        with self.session.transaction():
            self.number("*ESR?")  # clears the bit of an operation that ended earlier
            self.session.write("*OPC")
            return bool(int(self.number("*ESR?")) & _OPERATION_COMPLETE)

    def errors(self) -> tuple[tuple[int, str], ...]:
        """Read and empty the error queue (``SYSTem:ERRor?``), oldest error first."""
        errors: list[tuple[int, str]] = []
        with self.session.transaction():
            for _ in range(_LARGEST_QUEUE):
                reply = self.session.query(self._error_query)
                code_text, _, text = reply.partition(",")
                try:
                    code = int(code_text)
                except ValueError:
                    raise self.wrong_shape(self._error_query, reply, "a number") from None
                # Instruments send 0 or +0, so the number is compared and not the text.
                if code == 0:
                    break
                errors.append((code, text.strip().strip('"')))
            self._resyncs_handled = self.session.counters.resyncs
        return tuple(errors)

    def set(self, command: str) -> None:
        """Send a command. Raises ``DeviceError`` if the instrument then reports an error that is not ignorable."""
        with self.session.transaction():
            if self.session.counters.resyncs != self._resyncs_handled:
                # Errors queued before a link fault must not be attributed to this command.
                _log.warning("%s: errors from before the link was lost: %s", self.session.device, self.errors())
            self.session.write(command)
            serious = [entry for entry in self.errors() if entry[0] not in self._ignorable]
        if serious:
            raise self.session.error(
                DeviceError,
                f"{command}: {'; '.join(f'{code} {text}' for code, text in serious)}",
                code=serious[0][0],
                command=command,
                hint="This command changed nothing.",
            )

    def check_limits(self, header: str, label: str, value: float, scale: float, unit: str) -> None:
        """Raise ``LimitError`` if a value is outside the limits that the instrument reports. Nothing is set.

        Args:
            header: Header of the setting; its query accepts ``MIN`` and ``MAX``.
            label: Name of the quantity, for messages.
            value: Requested value, in ``unit``.
            scale: Factor that converts the instrument's reply to ``unit``.
            unit: Unit of ``value``.
        """
        # Queried each time, because the limits depend on the sensor, the range and the laser.
        self.check_in_range(label, value, *self.limits(header, scale), unit)

    def limits(self, header: str, scale: float) -> tuple[float, float]:
        """Return the lowest and highest value that the instrument reports for a setting, times ``scale``."""
        with self.session.transaction():
            return scale * self.setting(f"{header}? MIN"), scale * self.setting(f"{header}? MAX")

    def check_in_range(self, label: str, value: float, lowest: float, highest: float, unit: str) -> None:
        """Raise ``LimitError`` if a value is not a number or is outside ``lowest`` … ``highest``."""
        if lowest - _LIMIT_SLACK * abs(lowest) <= value <= highest + _LIMIT_SLACK * abs(highest):
            return
        raise self.session.error(
            LimitError,
            f"{label} is outside the instrument's limits of {lowest:.9g} to {highest:.9g} {unit}",
            requested=value,
            limit=lowest if value < lowest else highest,
            unit=unit,
            hint="Nothing was changed.",
        )

    def verify(self, label: str, wrote: float, actual: float, tolerance: float) -> None:
        """Raise ``VerifyError`` if the value read back differs from the value set by more than ``tolerance``."""
        # The comparison is negated so that NaN fails.
        if not abs(actual - wrote) <= tolerance:
            raise self.session.error(
                VerifyError,
                label,
                wrote=wrote,
                read=actual,
                hint="The instrument has not accepted the setting; check its front panel.",
            )

    def wrong_shape(self, command: str, reply: str, expected: str) -> FrameError:
        """Return the error for an unexpected reply. The session must then be synchronized again."""
        self.session.mark_out_of_sync(f"{command} answered with {reply!r}")
        return self.session.error(
            FrameError,
            f"{command}: expected {expected}, found {reply!r}",
            hint="Check that no other program uses this connection.",
        )


def _short(word: str) -> str:
    """Return the capital letters of a SCPI keyword, which are its short form."""
    return "".join(letter for letter in word if not letter.islower())


def is_value(number: float) -> bool:
    """Return whether a number is a value, and not a marker for a missing value such as 9.9E37."""
    return math.isfinite(number) and abs(number) < NOT_A_VALUE


class DeviceNames(TypedDict, total=False):
    """Keyword arguments that every :class:`ScpiDriver` accepts."""

    device: Required[str]
    expected_model: str | None
    expected_serial: str | None


class ScpiDriver(IdentifiedDriver[Identity, ScpiSession]):
    """Base of drivers for instruments that reply to ``*IDN?``.

    A subclass defines ``open``, which calls ``_identify``, and sends commands through ``_scpi`` (a
    :class:`StrictScpi`).

    Args:
        link: Link to the instrument.
        clock: Clock of the link.
        expected_model: Required model; any of ``models`` if omitted.
        expected_serial: Required serial number; any if omitted.

    Attributes:
        makers: Accepted beginnings of the maker's name, in capitals.
        models: Accepted models, in capitals.
        terminator: Bytes that end a message to the instrument.
        ignorable_errors: Error codes that occur in normal operation.
    """

    makers: ClassVar[tuple[str, ...]] = ()
    models: ClassVar[tuple[str, ...]] = ()
    terminator: ClassVar[bytes] = b"\n"
    ignorable_errors: ClassVar[frozenset[int]] = frozenset()

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        device: str,
        expected_model: str | None = None,
        expected_serial: str | None = None,
    ) -> None:
        self._session = self._session_on(link, clock, device)
        self._scpi = StrictScpi(self._session, self.ignorable_errors)
        self._clock = clock
        self._device = device
        self._expected = ExpectedIdentity(self.makers, self.models, expected_model, expected_serial)
        self._closing = fork_safe(threading.Lock())

    def _session_on(self, link: Link, clock: Clock, device: str) -> ScpiSession:
        """Return a new session. Override this method for instruments that need, for example, a login."""
        return ScpiSession(link, clock, device=device, terminator=self.terminator)

    def close(self) -> None:
        """Release the link; idempotent, never raises. The instrument keeps its state."""
        with self._closing:
            self._identity = None
            self._session.close()

    @property
    def firmware(self) -> str:
        """Firmware version. Raises ``ConnectError`` if the driver is not open."""
        return self.identity.firmware

    def _identify(self) -> None:
        """Open the session and check the identity. Raises the errors of ``open``."""
        self._identity = checked_identity(self._session, self._session.open(), self._expected)
