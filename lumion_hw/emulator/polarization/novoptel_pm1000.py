"""Emulated Novoptel PM1000 polarimeter: a set of 16-bit registers from address 512 (PM1000 User's Guide 0.4.8).

It measures S0 to S3 with fixed errors (power within 0.25 dB, degree of polarization within 1 %, states within 0.01 rad)
and noise: 3.5e-4 rad in 40 ns at the weakest light of its range, decreasing with the square root of the averaging time
2^ATE · 10 ns. Every averaging time gives a new measurement. To read several registers of the same measurement, use the
latched copies.

Unverified choices: undefined registers and the registers for memory, bulk read and event triggers read 0 and ignore
writes. Values outside a register's range are ignored. Reading the integer register of a value latches its fraction
register. Above the range, S0 stays at the largest power. Alarms stay until 0 is written. The non-normalised vector is
in units of the reference power over 2^15, with an offset of 2^15.

LAN: ``57 Ah Al Dh Dl`` writes (address and data, high byte first) and is not acknowledged; ``52 Ah Al`` reads and is
answered by ``Dh Dl``. USB: ``W AAA DDDD CR`` writes, ``R AAA 0000 CR`` reads and is answered by ``DDDD CR``. Invalid
bytes and lines are skipped (unverified). The burst of the USB 2 link (``X``) is not implemented.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import deque
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.emulator.optics.polarization import retarder, rotation_of_stokes
from lumion_hw.emulator.wires.mains import DeviceConnection, Switchable
from lumion_hw.emulator.wires.serial_line import SerialLine
from lumion_hw.errors import ConfigError
from lumion_hw.quantities import w_from_dbm

WRITE, READ = 0x57, 0x52
_LENGTHS = {WRITE: 5, READ: 3}
_LINE = re.compile(rb"([WRwr])([0-9A-Fa-f]{3})([0-9A-Fa-f]{4})")
_MAX_LINE = 8
_REPLY_S = 0.2e-3


class LanPeer:
    """One TCP connection to the polarimeter."""

    def __init__(self, device: Pm1000) -> None:
        self._device = device
        self._buffer = bytearray()
        self._replies: deque[bytes] = deque()

    def receive(self, data: bytes) -> None:
        """Process bytes from the host."""
        self._buffer += data
        while self._buffer:
            # Requests have no frame: a byte that cannot start a request is skipped, and the next one is tried.
            length = _LENGTHS.get(self._buffer[0], 1)
            if len(self._buffer) < length:
                return
            request = bytes(self._buffer[:length])
            del self._buffer[:length]
            address = int.from_bytes(request[1:3], "big")
            if request[0] == WRITE:
                self._device.write(address, int.from_bytes(request[3:5], "big"))
            elif request[0] == READ:
                self._replies.append(self._device.read(address).to_bytes(2, "big"))

    def transmit(self) -> bytes:
        """Return the replies for the host."""
        output = b"".join(self._replies)
        self._replies.clear()
        return output

    def next_event(self) -> float | None:
        """Return ``None``: replies are ready at once."""
        return None

    def close(self) -> None:
        """Do nothing when the host disconnects."""


class UsbPeer:
    """One serial (USB) connection to the polarimeter."""

    def __init__(self, device: Pm1000, line: SerialLine) -> None:
        self._device = device
        self._line = line
        self._text = bytearray()

    def receive(self, data: bytes) -> None:
        """Start the transmission of bytes that the host sends."""
        self._line.receive(data, self._device.now())
        self._execute_arrived()

    def _execute_arrived(self) -> None:
        while (chunk := self._line.take_arrived(self._device.now(), b"\r")) is not None:
            at_s, data = chunk
            self._text += data[: max(_MAX_LINE + 2 - len(self._text), 0)]
            if data.endswith(b"\r"):
                request = _LINE.fullmatch(bytes(self._text).strip(b"\r\n"))
                self._text.clear()
                if request is not None:
                    self._carry_out(request[1].upper(), int(request[2], 16), int(request[3], 16), at_s)

    def _carry_out(self, command: bytes, address: int, value: int, at_s: float) -> None:
        if command == b"W":
            self._device.write(address, value)
        else:
            self._line.send(b"%04X\r" % self._device.read(address), at_s + _REPLY_S)

    def transmit(self) -> bytes:
        """Return the bytes that have reached the host."""
        self._execute_arrived()
        return self._line.take_departed(self._device.now())

    def next_event(self) -> float | None:
        """Return the time at which more bytes reach the host."""
        times = (self._line.next_departure(), self._line.next_arrival(b"\r"))
        return min((time for time in times if time is not None), default=None)

    def close(self) -> None:
        """Discard all bytes when the host disconnects."""
        self._line.clear()


FIRST_ADDRESS = 512
SAMPLE_S = 10e-9
MAX_ATE = 20
RANGE_DBM = (-18.0, 4.0)
NOISE_RAD, NOISE_S = 3.5e-4, 40e-9
OVER_RANGE, UNDER_RANGE = 1 << 1, 1 << 2
_ALARM = 1
_HALF, _WORD = 1 << 15, 1 << 16
_USB_BAUD = 230_400
_BAND_GHZ10 = (19_100, 19_630)
_DEFAULT_GHZ10 = 19_341
FIRMWARE_BCD = 0x1015
TYPE = "PM1000-100M-LAN"
ALARMS, ATE, S0_INTEGER, S0_FRACTION = 0, 1, 10, 11
LIVE_UW, LATCHED_UW, STANDARD_VECTOR, EXACT_VECTOR, RELATIVE = 12, 18, 24, 31, 39
REFERENCE_UW, S3_SIGN, NORMALISATION, BAND, FREQUENCY = 38, 45, 46, 66, 69
FIRMWARE, SERIAL, MAX_POWER_UW, TYPE_TEXT = 128, 133, 134, 144
SETTINGS: Mapping[int, tuple[int, int, int]] = {
    ATE: (0, MAX_ATE, 10),
    REFERENCE_UW: (1, _WORD - 1, 1000),
    S3_SIGN: (0, 1, 0),
    NORMALISATION: (0, 2, 1),
    FREQUENCY: (*_BAND_GHZ10, _DEFAULT_GHZ10),
}
"""Smallest, largest and initial value of each writable setting, by register address."""


class Pm1000(Switchable):
    """Emulated Novoptel PM1000 polarimeter.

    Args:
        light: Returns S0, S1, S2, S3 of the input light in watts, shape ``(4,)``.
        link: ``lan`` for binary requests (TCP 5025), ``usb`` for lines of hexadecimal digits (230 400 baud), else
            ``ConfigError``.
        serial: Serial number. A text that is not a 16-bit number is converted to one.
    """

    description = "the polarimeter"

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        light: Callable[[], NDArray[np.float64]],
        *,
        link: str = "lan",
        serial: str = "1",
    ) -> None:
        if link not in ("lan", "usb"):
            raise ConfigError(f"a PM1000 has no link {link!r}", device=name, hint="Use lan or usb.")
        super().__init__(name, clock)
        self._light = light
        self._link = link
        self._gain = 10.0 ** (float(np.clip(rng.normal(0.0, 0.1), -0.25, 0.25)) / 10.0)
        self._polarization_gain = 1.0 + float(np.clip(rng.normal(0.0, 3e-3), -0.01, 0.01))
        # Fixed errors of one instrument, within the specification in its guide.
        self._rotation = rotation_of_stokes(retarder(np.clip(rng.normal(0.0, 2e-3, 3), -5e-3, 5e-3)))
        self._rng = rng
        self._settings = {number: first for number, (_, _, first) in SETTINGS.items()}
        self._latched: dict[int, int] = {}
        self._alarms = 0
        self._window = -1
        self._stokes_uw = np.zeros(4)
        self._fixed = {
            BAND: 0,
            BAND + 1: _BAND_GHZ10[0],
            BAND + 2: _BAND_GHZ10[1],
            FREQUENCY + 1: _BAND_GHZ10[0],
            FREQUENCY + 2: _BAND_GHZ10[1],
            FIRMWARE: FIRMWARE_BCD,
            SERIAL: _number(serial),
            MAX_POWER_UW: math.floor(1e6 * w_from_dbm(RANGE_DBM[1])),
        }
        text = TYPE.encode().ljust(32, b"\0")
        self._fixed |= {TYPE_TEXT + index: text[2 * index] << 8 | text[2 * index + 1] for index in range(16)}

    def connect(self) -> DeviceConnection:
        """Open another connection. Raises ``ConnectError`` without power or cable."""
        self._require_reachable()
        return DeviceConnection(self, LanPeer(self) if self._link == "lan" else UsbPeer(self, SerialLine(_USB_BAUD)))

    def advance(self) -> None:
        """Do nothing: the polarimeter measures only on request."""

    def next_due(self) -> None:
        """Return ``None``: the polarimeter does nothing without a request."""

    # -- registers

    def write(self, address: int, value: int) -> None:
        """Write a register. Reserved registers and values out of range are ignored."""
        number = address - FIRST_ADDRESS
        if number == ALARMS and value == 0:
            self._alarms = 0
        low, high, _ = SETTINGS.get(number, (1, 0, 0))  # no value is within 1 and 0
        if low <= value <= high:
            self._settings[number] = value
            if number == ATE:
                self._window = -1

    def read(self, address: int) -> int:
        """Read a register. Reserved registers read 0."""
        number = address - FIRST_ADDRESS
        if number in self._settings:
            return self._settings[number]
        if number in self._fixed:
            return self._fixed[number]
        if number == ALARMS:
            self._measure()
            return self._alarms
        # Reading the first register of a group latches the others, so that a vector comes from one measurement.
        if number in (S0_INTEGER, STANDARD_VECTOR, EXACT_VECTOR):
            self._latch(number)
        if number in self._latched and (number in (S0_FRACTION, S0_INTEGER) or number >= LATCHED_UW):
            return self._latched[number]
        return self._read_live(number)

    def _latch(self, number: int) -> None:
        self._measure()
        if number == S0_INTEGER:
            self._latched |= dict(zip((S0_INTEGER, S0_FRACTION), _fixed_point(self._stokes_uw[0]), strict=True))
            for index, value in enumerate(self._stokes_uw[1:]):
                pair = _fixed_point(value + _HALF)
                self._latched |= {LATCHED_UW + 2 * index: pair[0], LATCHED_UW + 2 * index + 1: pair[1]}
            return
        registers = self._normalised(is_exact=number == EXACT_VECTOR)
        self._latched[number] = registers[0]
        self._latched |= {number + 4 + index: word for index, word in enumerate(registers[1:])}

    def _read_live(self, number: int) -> int:
        if LIVE_UW <= number < LATCHED_UW:
            index, is_fraction = divmod(number - LIVE_UW, 2)
            if is_fraction:
                return self._latched.get(number, 0)
            self._measure()
            integer, fraction = _fixed_point(self._stokes_uw[1 + index] + _HALF)
            self._latched[number + 1] = fraction
            return integer
        for first in (STANDARD_VECTOR, EXACT_VECTOR):
            if first < number < first + 4:
                self._measure()
                return self._normalised(is_exact=first == EXACT_VECTOR)[number - first]
        if RELATIVE <= number < RELATIVE + 3:
            self._measure()
            return _signed(self._stokes_uw[1 + number - RELATIVE] / self._settings[REFERENCE_UW])
        return 0

    def _normalised(self, *, is_exact: bool) -> list[int]:
        """Return the registers of the degree of polarization and of the normalised S1 to S3."""
        power, vector = float(self._stokes_uw[0]), self._stokes_uw[1:]
        length = float(np.linalg.norm(vector))
        # STANDARD is always of unit length; EXACT is shorter for partial polarization.
        scale = power if is_exact else length
        dop = min(round(_HALF * length / power), _WORD - 1) if power > 0.0 else 0
        return [dop, *(_signed(value / scale) if scale > 0.0 else _HALF for value in vector.tolist())]

    # -- measuring

    def _measure(self) -> None:
        averaging_s = SAMPLE_S * 2 ** self._settings[ATE]
        # One measurement per averaging time: two reads within it get the same noise.
        window = math.floor(self._clock.now() / averaging_s + 1e-6)
        if window == self._window:
            return
        self._window = window
        light_w = np.asarray(self._light(), dtype=np.float64)
        min_w, max_w = (w_from_dbm(limit) for limit in RANGE_DBM)
        sigma_w = NOISE_RAD * min_w * math.sqrt(NOISE_S / averaging_s)
        stokes_w = self._gain * np.append(light_w[0], self._polarization_gain * (self._rotation @ light_w[1:]))
        stokes_w += sigma_w * self._rng.standard_normal(4)
        if self._settings[S3_SIGN]:
            stokes_w[3] = -stokes_w[3]
        if stokes_w[0] > max_w:
            self._alarms |= _ALARM | OVER_RANGE
            # The power saturates, but the state on the sphere is still reported.
            stokes_w *= max_w / stokes_w[0]
        elif stokes_w[0] < min_w:
            self._alarms |= _ALARM | UNDER_RANGE
        stokes_w[0] = max(stokes_w[0], 0.0)
        self._stokes_uw = 1e6 * stokes_w


def _fixed_point(value: float) -> tuple[int, int]:
    """Return the integer part of a number and its fraction in 1/65536."""
    integer, fraction = divmod(min(max(math.floor(value * _WORD), 0), _WORD * _WORD - 1), _WORD)
    return integer, fraction


def _signed(value: float) -> int:
    """Return the register value for a number from -1 to 1, with an offset of 2^15."""
    return min(max(round(value * _HALF) + _HALF, 0), _WORD - 1)


def _number(serial: str) -> int:
    if serial.isascii() and serial.isdecimal() and int(serial) < _WORD:
        return int(serial)
    return zlib.crc32(serial.encode()) % _WORD
