"""What drivers of SCPI instruments have in common: who answered, and commands that do not fail silently.

:class:`ScpiDriver` is the base of a driver; :class:`StrictScpi` is what it sends its commands through: parse, check
limits, drain the error queue, verify.
"""

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
    """The four fields of ``*IDN?`` (IEEE 488.2, 10.14), as the instrument says them."""

    maker: str
    model: str
    serial: str
    firmware: str


@dataclass(frozen=True)
class ExpectedIdentity:
    """Who should answer.

    Attributes:
        makers: Beginnings of the maker's name, in capitals.
        models: Models of the family, in capitals; any of these makers if there is none.
        model: The one model that must be found; any of the family if ``None``.
        serial: The serial number that must be found; any if ``None``.
    """

    makers: tuple[str, ...]
    models: Collection[str]
    model: str | None = None
    serial: str | None = None

    def matches(self, identity: Identity) -> bool:
        """Tell whether this is who should answer; maker and model in any letter case."""
        model = identity.model.upper()
        return (
            identity.maker.upper().startswith(self.makers)
            and (not self.models or model in self.models)
            and (self.model is None or model == self.model.upper())
            and (self.serial is None or identity.serial == self.serial)
        )


def checked_identity(session: ScpiSession, reply: str, expected: ExpectedIdentity) -> Identity:
    """Return the identity in a reply to ``*IDN?``.

    Raises:
        IdentityError: Another instrument answers; the session forgets it.
    """
    # Four fields (IEEE 488.2, 10.14); some firmware pads them.
    fields = [field.strip() for field in reply.split(",")]
    if len(fields) == 4 and expected.matches(identity := Identity(*fields)):
        return identity
    session.forget_identity()
    wanted = expected.model or " or ".join(expected.models) or f"an instrument of {' or '.join(expected.makers)}"
    raise session.error(
        IdentityError,
        f"expected {wanted}, serial {expected.serial or 'any'}; found {reply!r}",
        hint="Check the address in the bench file, or which instrument is plugged in there.",
    )


_log = logging.getLogger(__name__)

# Known queues hold 10 to 30 entries; one that never empties must not hold the session.
_LARGEST_QUEUE = 64
_LIMIT_SLACK = 1e-6  # limits are float32 on the wire
NOT_A_VALUE = 1e20
"""Numbers beyond this are marks, not values: the largest float32 or float64, 9.9E37 for infinity, 9.91E37 for NaN."""
_OPERATION_COMPLETE = 1  # bit 0 of the standard event status register (IEEE 488.2, 11.5.1)
# Trigger ignored, questionable data, maths error (dark reading in dBm), query interrupted or unterminated:
# these occur in normal operation (public drivers for this family ignore them too).
KEYSIGHT_IGNORABLE_ERRORS = frozenset({-213, -231, -261, -410, -420})
"""Errors that Keysight's optical meters and lasers queue in normal operation."""


class StrictScpi:
    """Settings of a SCPI instrument, none of which fails silently.

    Args:
        session: The conversation with the instrument.
        ignorable: Error codes that occur in the instrument's normal operation.
        error_query: The query that takes the oldest error out of the queue.
    """

    def __init__(
        self, session: ScpiSession, ignorable: frozenset[int] = frozenset(), error_query: str = "SYST:ERR?"
    ) -> None:
        self.session = session
        self._ignorable = ignorable
        self._error_query = error_query
        self._resyncs_seen = 0

    def number(self, command: str, timeout_s: float | None = None, held: HeldSetup | None = None) -> float:
        """Return the number a query is answered with, which may be a mark. Raises ``FrameError`` for other answers.

        Args:
            command: The query.
            timeout_s: Time for the reply; the session's default if omitted.
            held: The settings that the number depends on, read along with it.
        """
        reply = self.session.query(command, timeout_s) if held is None else held.ask(command, timeout_s)
        try:
            return float(reply)
        except ValueError:
            raise self.wrong_shape(command, reply, "a number") from None

    def setting(self, command: str, held: HeldSetup | None = None) -> float:
        """Return the number a query for a setting is answered with. Raises ``DeviceError`` for a mark."""
        value = self.number(command, held=held)
        if is_value(value):
            return value
        raise self.session.error(
            DeviceError,
            f"{command} is answered with {value:g}, which marks a query that failed",
            command=command,
            hint=f"The instrument says: {self.errors()}.",
        )

    def numbers(self, command: str, timeout_s: float | None = None) -> tuple[float, ...]:
        """Return the list of numbers a query is answered with. Raises ``FrameError`` for other answers."""
        reply = self.session.query(command, timeout_s)
        try:
            return tuple(float(field) for field in reply.split(","))
        except ValueError:
            raise self.wrong_shape(command, reply, "numbers") from None

    def read_keyword(self, command: str, keywords: Iterable[str]) -> str:
        """Return the one of some words, in mixed case such as ``SMEasure``, that a query is answered with.

        Raises ``FrameError`` for any other answer.
        """
        by_form = {form: word for word in keywords for form in (_short(word), word.upper())}
        reply = self.session.query(command)
        if reply.strip().upper() not in by_form:
            raise self.wrong_shape(command, reply, f"one of {', '.join(by_form.values())}")
        return by_form[reply.strip().upper()]

    def set_keyword(self, header: str, word: str) -> None:
        """Set a word and read it back; ``word`` in mixed case, such as ``SMEasure``, is accepted in both its forms."""
        short = _short(word)
        with self.session.transaction():
            self.set(f"{header} {short}")
            found = self.session.query(f"{header}?")
        if found.upper() not in (short, word.upper()):
            raise self.session.error(VerifyError, header, wrote=short, read=found)

    def set_number(
        self,
        header: str,
        text: str,
        wrote: float,
        scale: float,
        tolerance: float,
        what: str,
        held: HeldSetup | None = None,
    ) -> float:
        """Set a number and read it back.

        Args:
            header: Header of the setting.
            text: What is sent.
            wrote: Its value in the caller's unit.
            scale: The caller's unit per unit of the instrument's reply.
            tolerance: Largest accepted difference, in the caller's unit.
            what: The quantity, for the message.
            held: The settings that the number depends on, restored before it is sent if somebody else changed them.

        Returns:
            The value read back, in the caller's unit.

        Raises:
            DeviceError: The instrument refuses.
            VerifyError: The instrument keeps another value.
        """
        with self.session.transaction():
            if held is not None:
                held.keep()
            self.set(f"{header} {text}")
            found = scale * self.setting(f"{header}?", held)
            self.verify(what, wrote, found, tolerance)
        return found

    def operations_done(self) -> bool:
        """Tell whether no operation is pending, without waiting for it.

        ``*OPC`` sets its bit at once when nothing is pending; ``*OPC?`` would hold the line until then, or answers 0
        (Keysight's optical instruments).
        """
        with self.session.transaction():
            self.number("*ESR?")  # an operation that ended before does not count
            self.session.write("*OPC")
            return bool(int(self.number("*ESR?")) & _OPERATION_COMPLETE)

    def errors(self) -> tuple[tuple[int, str], ...]:
        """Drain the error queue (``SYSTem:ERRor?``), oldest first."""
        found: list[tuple[int, str]] = []
        with self.session.transaction():
            for _ in range(_LARGEST_QUEUE):
                reply = self.session.query(self._error_query)
                code_text, _, text = reply.partition(",")
                try:
                    code = int(code_text)
                except ValueError:
                    raise self.wrong_shape(self._error_query, reply, "a number") from None
                # Both 0 and +0 occur in the field, so the number is read and not the text.
                if code == 0:
                    break
                found.append((code, text.strip().strip('"')))
            self._resyncs_seen = self.session.counters.resyncs
        return tuple(found)

    def set(self, command: str) -> None:
        """Send a command and drain the error queue. Raises ``DeviceError`` for an error that is not ignorable."""
        with self.session.transaction():
            if self.session.counters.resyncs != self._resyncs_seen:
                # What is queued from before a link fault would be blamed on this command.
                _log.warning("%s: errors from before a link fault: %s", self.session.device, self.errors())
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

    def check_limits(self, header: str, what: str, value: float, scale: float, unit: str) -> None:
        """Compare a value with the instrument's own limits, before anything is sent.

        Args:
            header: Header of the setting; its query takes ``MIN`` and ``MAX``.
            what: The quantity, for the message.
            value: The value asked for, in ``unit``.
            scale: ``unit`` per unit of the instrument's reply.
            unit: Unit of ``value``.

        Raises:
            LimitError: ``value`` is outside, or not a number.
        """
        # Asked each time: limits follow the sensor, the range and the laser that are plugged in.
        self.check_within(what, value, *self.limits(header, scale), unit)

    def limits(self, header: str, scale: float) -> tuple[float, float]:
        """Return the instrument's own limits of a setting, whose query takes ``MIN`` and ``MAX``, times ``scale``."""
        with self.session.transaction():
            return scale * self.setting(f"{header}? MIN"), scale * self.setting(f"{header}? MAX")

    def check_within(self, what: str, value: float, lowest: float, highest: float, unit: str) -> None:
        """Compare a value with limits, all in ``unit``. Raises ``LimitError`` if it is outside, or not a number."""
        if lowest - _LIMIT_SLACK * abs(lowest) <= value <= highest + _LIMIT_SLACK * abs(highest):
            return
        raise self.session.error(
            LimitError,
            f"{what} is outside the instrument's limits of {lowest:.9g} to {highest:.9g} {unit}",
            requested=value,
            limit=lowest if value < lowest else highest,
            unit=unit,
            hint="Nothing was changed.",
        )

    def verify(self, what: str, wrote: float, found: float, tolerance: float) -> None:
        """Compare a value set with the value read back. Raises ``VerifyError``."""
        # Negated, so that NaN does not pass.
        if not abs(found - wrote) <= tolerance:
            raise self.session.error(
                VerifyError,
                what,
                wrote=wrote,
                read=found,
                hint="The instrument keeps another value; see its front panel.",
            )

    def wrong_shape(self, command: str, reply: str, expected: str) -> FrameError:
        """Return the error of a reply that is not what it should be, and trust no reply before a resynchronisation."""
        self.session.mark_out_of_sync(f"{command} answered with {reply!r}")
        return self.session.error(
            FrameError,
            f"{command}: expected {expected}, found {reply!r}",
            hint="Check that nobody else talks to the instrument over this connection.",
        )


def _short(word: str) -> str:
    """Return the short form: the capitals of a word as its maker writes it.

    SCPI's own rule for short forms is broken by several, such as Santec's MODe.
    """
    return "".join(letter for letter in word if not letter.islower())


def is_value(number: float) -> bool:
    """Tell whether a number from the wire is a value, and no mark such as 9.9E37."""
    return math.isfinite(number) and abs(number) < NOT_A_VALUE


class DeviceNames(TypedDict, total=False):
    """The named arguments that every :class:`ScpiDriver` is made with."""

    device: Required[str]
    expected_model: str | None
    expected_serial: str | None


class ScpiDriver(IdentifiedDriver[Identity, ScpiSession]):
    """Base of the drivers of instruments that answer ``*IDN?``.

    A subclass writes ``open`` (``_identify`` asks who is there) and talks through ``_session``, the conversation, and
    ``_scpi``, a :class:`StrictScpi` on it; time is ``_clock``, its name in messages ``_device``.

    Args:
        link: The link to the instrument.
        clock: The link's clock.
        device: Device name, for messages.
        expected_model: Model that must be found; any of the family if omitted.
        expected_serial: Serial number that must be found; any if omitted.

    Attributes:
        makers: Beginnings of the maker's name, in capitals.
        models: Models of the family, in capitals.
        terminator: What ends a message to the instrument.
        ignorable_errors: Error codes that occur in its normal operation.
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
        """Return the session it talks through; for instruments that want more than a link before they answer."""
        return ScpiSession(link, clock, device=device, terminator=self.terminator)

    def close(self) -> None:
        """Release the link; idempotent, never raises. What the instrument does stays as it is."""
        with self._closing:
            self._identity = None
            self._session.close()

    @property
    def firmware(self) -> str:
        """Firmware version. Raises ``ConnectError`` while it is not open."""
        return self.identity.firmware

    def _identify(self) -> None:
        """Open the session and check who answers. Raises as ``open`` of every driver."""
        self._identity = checked_identity(self._session, self._session.open(), self._expected)
