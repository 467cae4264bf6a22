"""Keysight (Agilent) N7744A, N7745A, N7744C and N7745C multiport optical power meters.

Commands after the N774xC Programming Guide: bare wavelengths are metres, ranges are dBm in steps of 10 dB, blocks are
little-endian float32, floats on the wire have 32 bits.
"""

from __future__ import annotations

import logging
import math
import struct
import threading
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.drivers.meters.strict_scpi import StrictScpi
from lumion_hw.errors import (
    ConfigError,
    ConnectError,
    FrameError,
    IdentityError,
    LumionError,
)
from lumion_hw.interfaces import PowerReading, RangeState
from lumion_hw.links.base import Link
from lumion_hw.sessions.scpi import ScpiSession

_log = logging.getLogger(__name__)

PORTS = {"N7744A": 4, "N7745A": 8, "N7744C": 4, "N7745C": 8}
"""Supported models and their numbers of ports."""
WAVELENGTH_TOLERANCE_NM = 0.006
"""Largest accepted difference between a wavelength set and read back: half a step of 0.01 nm, and float32."""
AVERAGING_TOLERANCE = 1e-3
"""Largest accepted relative difference between an averaging time set and read back."""
RANGE_STEP_DB = 10.0
_RANGE_TOLERANCE_DB = 0.5
_NOT_A_POWER_W = 1e20  # over-range is sent as the largest float32, other firmware sends 9.9E37
# Trigger ignored, questionable data, maths error (dark reading in dBm), query interrupted or unterminated:
# these occur in normal operation (public drivers for this family ignore them too).
IGNORABLE_ERRORS = frozenset({-213, -231, -261, -410, -420})
_SHORTEST_TIMEOUT_S = 2.0
_TIMEOUT_FACTOR = 1.2
_MAKERS = ("KEYSIGHT", "AGILENT")


@dataclass(frozen=True)
class _Identity:
    maker: str
    model: str
    serial: str
    firmware: str


class KeysightN77xx:
    """Driver of one meter; implements ``PowerMeter``. Thread-safe; every set is read back.

    Readings are absolute powers in watts: the driver sets the unit and switches references off when it opens. Ports
    are triggered by each reading, so that a reading is never older than its call.

    Args:
        link: The link to the instrument (raw socket, port 5025, or VISA).
        clock: The link's clock.
        device: Device name, for messages.
        expected_model: Model that must be found, such as ``N7745C``; any of the family if omitted.
        expected_serial: Serial number that must be found; any if omitted.
    """

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        device: str,
        expected_model: str | None = None,
        expected_serial: str | None = None,
    ) -> None:
        self._session = ScpiSession(link, clock, device=device)
        self._scpi = StrictScpi(self._session, IGNORABLE_ERRORS)
        self._clock = clock
        self._device = device
        self._expected_model = expected_model
        self._expected_serial = expected_serial
        self._identity: _Identity | None = None
        self._averaging_s: dict[int, float] = {}
        self._closing = threading.Lock()

    def open(self) -> None:
        """Open the link, check the identity and the ports, and bring the ports into a known state.

        Raises:
            ConnectError: The link cannot be opened.
            IdentityError: Another instrument answers.
            LinkTimeout: Nothing answers.
        """
        with self._session.transaction():
            try:
                self._identity = self._checked(self._session.open())
                self._check_ports()
                self.errors()  # what was left by others is not ours
                for channel in self.channels:
                    self._prepare(channel)
            except LumionError:
                self._identity = None
                self._session.close()
                raise

    def __enter__(self) -> KeysightN77xx:
        """Open."""
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Give the ports back to the front panel as far as possible, and close the link; idempotent, never raises."""
        with self._closing:
            identity, self._identity = self._identity, None
            if identity is not None and not self._session.tainted:
                try:
                    for channel in range(1, PORTS[identity.model] + 1):
                        self._session.write(f"INIT{channel}:CONT 1")
                except LumionError as error:
                    _log.debug("%s: not given back to the front panel: %s", self._device, error)
            self._session.close()

    @property
    def channels(self) -> tuple[int, ...]:
        """Port numbers, from 1."""
        return tuple(range(1, PORTS[self._opened().model] + 1))

    @property
    def model(self) -> str:
        """Model, such as ``N7745C``."""
        return self._opened().model

    @property
    def serial(self) -> str:
        """Serial number."""
        return self._opened().serial

    @property
    def firmware(self) -> str:
        """Firmware version."""
        return self._opened().firmware

    @property
    def session(self) -> ScpiSession:
        """The session, for its counters and for commands this driver does not have."""
        return self._session

    def wavelength_nm(self, channel: int) -> float:
        """Return the wavelength used for the responsivity, in nm."""
        return 1e9 * self._scpi.number(f"SENS{self._checked_channel(channel)}:POW:WAV?")

    def set_wavelength_nm(self, channel: int, wavelength_nm: float) -> None:
        """Set the wavelength used for the responsivity; automatic ranging rests meanwhile, which it would disturb.

        Raises:
            LimitError: Outside the instrument's limits; nothing was sent.
            VerifyError: The instrument keeps a value that differs by more than ``WAVELENGTH_TOLERANCE_NM``.
        """
        header = f"SENS{self._checked_channel(channel)}:POW:WAV"
        with self._session.transaction():
            self._scpi.check_limits(header, f"wavelength of port {channel}", wavelength_nm, 1e9, "nm")
            automatic = self._is_automatic(channel)
            if automatic:
                self._scpi.set(f"SENS{channel}:POW:RANG:AUTO 0")
            try:
                self._scpi.set(f"{header} {wavelength_nm:.9g}NM")
            finally:
                if automatic:
                    self._scpi.set(f"SENS{channel}:POW:RANG:AUTO 1")
            found_nm = self.wavelength_nm(channel)
            self._scpi.verify(f"wavelength of port {channel} in nm", wavelength_nm, found_nm, WAVELENGTH_TOLERANCE_NM)

    def averaging_s(self, channel: int) -> float:
        """Return the averaging time in seconds."""
        value_s = self._scpi.number(f"SENS{self._checked_channel(channel)}:POW:ATIM?")
        self._averaging_s[channel] = value_s
        return value_s

    def set_averaging_s(self, channel: int, averaging_s: float) -> None:
        """Set the averaging time.

        Raises:
            LimitError: Outside the instrument's limits; nothing was sent.
            VerifyError: The instrument keeps a value that differs by more than 0.1 %.
        """
        header = f"SENS{self._checked_channel(channel)}:POW:ATIM"
        with self._session.transaction():
            self._scpi.check_limits(header, f"averaging time of port {channel}", averaging_s, 1.0, "s")
            self._scpi.set(f"{header} {averaging_s:.9g}S")
            found_s = self.averaging_s(channel)
            tolerance_s = AVERAGING_TOLERANCE * averaging_s
            self._scpi.verify(f"averaging time of port {channel} in s", averaging_s, found_s, tolerance_s)

    def range_dbm(self, channel: int) -> float | None:
        """Return the power range in dBm, or ``None`` while ranging is automatic."""
        with self._session.transaction():
            if self._is_automatic(self._checked_channel(channel)):
                return None
            return self._scpi.number(f"SENS{channel}:POW:RANG?")

    def set_range_dbm(self, channel: int, range_dbm: float | None) -> None:
        """Set the power range, or automatic ranging with ``None``.

        Raises:
            ConfigError: Not a multiple of 10 dB, which the instrument would round.
            LimitError: Outside the instrument's limits; nothing was sent.
            VerifyError: The instrument keeps another range.
        """
        header = f"SENS{self._checked_channel(channel)}:POW:RANG"
        with self._session.transaction():
            if range_dbm is not None:
                self._scpi.check_limits(header, f"range of port {channel}", range_dbm, 1.0, "dBm")
                if range_dbm % RANGE_STEP_DB:
                    raise ConfigError(
                        f"a range of {range_dbm:g} dBm does not exist on port {channel}",
                        device=self._device,
                        address=self._session.address,
                        hint=f"Ranges are multiples of {RANGE_STEP_DB:g} dBm.",
                    )
            automatic = int(range_dbm is None)
            self._scpi.set(f"{header}:AUTO {automatic}")
            if range_dbm is not None:
                self._scpi.set(f"{header} {range_dbm:g}DBM")
            found = self._scpi.number(f"{header}:AUTO?")
            self._scpi.verify(f"automatic ranging of port {channel} (1 is on)", automatic, found, 0)
            if range_dbm is not None:
                found_dbm = self._scpi.number(f"{header}?")
                self._scpi.verify(f"range of port {channel} in dBm", range_dbm, found_dbm, _RANGE_TOLERANCE_DB)

    def read(self, channel: int) -> PowerReading:
        """Trigger and return one reading."""
        command = f"READ{self._checked_channel(channel)}:POW?"
        with self._session.transaction():
            value_w = self._scpi.number(command, self._timeout_s((channel,)))
            return self._reading(channel, value_w)

    def read_all(self) -> tuple[PowerReading, ...]:
        """Trigger all ports together and return one reading per port."""
        with self._session.transaction():
            payload = self._session.query_block("READ:POW:ALL?", self._timeout_s(self.channels))
            if len(payload) != 4 * len(self.channels):
                raise FrameError(
                    f"READ:POW:ALL? gave {len(payload)} bytes for {len(self.channels)} ports of 4 bytes",
                    device=self._device,
                    address=self._session.address,
                    hint="Close and open the meter again.",
                )
            values_w = np.frombuffer(payload, "<f4").tolist()
            return tuple(
                self._reading(channel, value_w) for channel, value_w in zip(self.channels, values_w, strict=True)
            )

    def errors(self) -> tuple[tuple[int, str], ...]:
        """Drain the instrument's error queue, oldest first."""
        return self._scpi.errors()

    def _opened(self) -> _Identity:
        if self._identity is None:
            raise ConnectError(
                "the meter is not open", device=self._device, address=self._session.address, hint="Call open() first."
            )
        return self._identity

    def _checked(self, reply: str) -> _Identity:
        """Return the identity in a reply to ``*IDN?``, if it is the expected one."""
        fields = [field.strip() for field in reply.split(",")]
        expected = f"{self._expected_model or ' or '.join(PORTS)}, serial {self._expected_serial or 'any'}"
        if (
            len(fields) == 4
            and fields[0].upper().startswith(_MAKERS)
            and fields[1] in PORTS
            and self._expected_model in (None, fields[1])
            and self._expected_serial in (None, fields[2])
        ):
            return _Identity(*fields)
        self._session.forget_identity()
        raise IdentityError(
            f"expected {expected}; found {reply!r}",
            device=self._device,
            address=self._session.address,
            hint="Check the address in the bench file, or which instrument is plugged in there.",
        )

    def _check_ports(self) -> None:
        """Check that the instrument has the ports its model has: pairs of uint16, slot and channel."""
        payload = self._session.query_block("READ:POW:ALL:CONF?")
        expected = b"".join(struct.pack("<HH", port, 1) for port in self.channels)
        if payload != expected:
            raise IdentityError(
                f"expected the {len(self.channels)} ports of a {self.model}; found the channel map {payload.hex(' ')}",
                device=self._device,
                address=self._session.address,
                hint="Check the model in the bench file.",
            )

    def _prepare(self, channel: int) -> None:
        """Make readings of a port absolute, in watts, and triggered by the reading."""
        self._scpi.set(f"SENS{channel}:POW:REF:STAT 0")
        self._scpi.set(f"SENS{channel}:POW:UNIT 1")
        self._scpi.verify(f"unit of port {channel} (1 is watt)", 1, self._scpi.number(f"SENS{channel}:POW:UNIT?"), 0)
        self._scpi.set(f"INIT{channel}:CONT 0")
        self.averaging_s(channel)

    def _checked_channel(self, channel: int) -> int:
        if channel not in self.channels:
            raise ConfigError(
                f"there is no port {channel}",
                device=self._device,
                address=self._session.address,
                hint=f"A {self.model} has the ports 1 to {len(self.channels)}.",
            )
        return channel

    def _is_automatic(self, channel: int) -> bool:
        return self._scpi.number(f"SENS{channel}:POW:RANG:AUTO?") != 0

    def _timeout_s(self, channels: tuple[int, ...]) -> float:
        """Return the time for one reading, from the averaging times last read back."""
        longest_s = max(self._averaging_s.get(channel, 0.0) for channel in channels)
        return max(_SHORTEST_TIMEOUT_S, _TIMEOUT_FACTOR * longest_s)

    def _reading(self, channel: int, value_w: float) -> PowerReading:
        is_power = math.isfinite(value_w) and abs(value_w) < _NOT_A_POWER_W
        return PowerReading(
            channel, RangeState.OK if is_power else RangeState.OVER, self._clock.now(), value_w if is_power else None
        )
