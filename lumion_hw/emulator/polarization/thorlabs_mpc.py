"""Emulated Thorlabs MPC320 and MPC220: three or two fibre paddles, rotated by motors.

Command language: APT frames on a serial line of 115 200 baud; channels are the bits 1, 2, 4. Homed, completed and
stopped motions are announced to every connection. Periodic status messages follow once a host has started them, or
always with ``chatty_s``.

From public reports about real devices: all channels are on after power-on (pyLabLib issue 29, pull request 58). An
unknown message, or one of a wrong length, is silently ignored (the same issue).

Unverified choices: an enable message switches all channels on or off by its mask. A motion of a channel that is off is
ignored, and a moving channel that is switched off stops. Homing moves to the end at 0 and then to the home position. A
replaced motion is not announced. A known message for a missing channel, or with a value outside the limits, is answered
by HW_RICHRESPONSE (0x0081) with its id, code 1 and a text. Saving parameters (0x04B9) has no reply; only the parameters
of message 0x0530 survive a power cycle. Announced motions contain channel and counts or, with ``long_announcements``,
the data of a status message. An incomplete message is discarded after 0.1 s of silence.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.emulator.optics.polarization import HALF, QUARTER, Jones, plates
from lumion_hw.emulator.polarization.apt_frames import AptFrameReader, AptMessage, header_only, with_data
from lumion_hw.emulator.wires.serial_device import SerialDevice, SerialPeer
from lumion_hw.emulator.wires.serial_line import SerialLine
from lumion_hw.errors import ConfigError

MODELS = {"MPC320": (QUARTER, HALF, QUARTER), "MPC220": (QUARTER, HALF)}
"""Retardances of the paddles of each model, in rad."""
BAUD = 115_200
COUNTS_MAX = 1370
COUNTS_PER_DEGREE = 1370 / 170
DEGREES_PER_S = 400.0
"""Speed at a velocity of 100 %, in degrees per second."""
UPDATE_S = 0.1
"""Period in s of status messages that a host has started."""
MOVING_MA = 150
RICH_RESPONSE = 0x0081
_SHORT_STATUS_BYTES = 6
_REFUSED = 1
_FIRST_SERIAL = 38_000_000
_REPLY_S = 1e-3
_SILENCE_S = 0.1
_MAX_BACKLOG_S = 1.0
_MAX_UNREAD_BYTES = 4096
_ACTIVATION_LOSS_DB = 0.05
BACKWARD, FORWARD, HOMING, HOMED, IS_SETTLED, ENABLED = 1 << 4, 1 << 5, 1 << 9, 1 << 10, 1 << 13, 1 << 31


@dataclass
class Paddle:
    """Position of one paddle as a function of time.

    Attributes:
        channel: Bit of the channel.
        times_s: Times of the last motion's start, turning points and end.
        counts: Positions at these times.
        announce: Message id that announces the end of the present motion, ``None`` when not moving.
        homed: Whether the paddle was homed since power-on.
    """

    channel: int
    times_s: list[float]
    counts: list[float]
    announce: int | None = None
    homed: bool = False

    def position(self, at_s: float) -> float:
        """Return the paddle's position in counts."""
        return float(np.interp(at_s, self.times_s, self.counts))

    def speed(self, at_s: float) -> float:
        """Return the paddle's speed in counts per second, negative backwards."""
        if self.announce is None or not self.times_s[0] <= at_s < self.times_s[-1]:
            return 0.0
        position_counts = int(np.searchsorted(self.times_s, at_s, side="right"))
        begin, end = position_counts - 1, position_counts
        return (self.counts[end] - self.counts[begin]) / (self.times_s[end] - self.times_s[begin])

    def stop_at_present_position(self, at_s: float) -> None:
        """Stop the paddle at its present position."""
        self.counts, self.times_s, self.announce = [self.position(at_s)], [at_s], None


class _MpcPeer(SerialPeer):
    """One host connection to the paddle controller."""

    def __init__(self, device: Mpc320, line: SerialLine) -> None:
        super().__init__(device, line)
        self._decoder = AptFrameReader()
        self._received_s = -math.inf

    def messages(self, data: bytes, end_s: float) -> list[AptMessage]:
        """Return the APT messages that the received bytes complete."""
        if end_s - self.line.byte_s * len(data) > self._received_s + _SILENCE_S:
            self._decoder.discard_incomplete()
        self._received_s = end_s
        return self._decoder.feed(data)


class Mpc320(SerialDevice[_MpcPeer]):
    """Emulated Thorlabs paddle polarization controller.

    Args:
        turn: Called with the Jones matrix of the paddles, at construction and whenever they have moved.
        model: One of :data:`MODELS`, else ``ConfigError``.
        serial: Serial number. A text that is not a number is converted to one.
        chatty_s: Period of unsolicited status messages; ``None`` for none.
        long_announcements: Whether announced motions contain a whole status.

    Attributes:
        paddles: The paddles by channel.
        enabled: Bits of the channels that are on.
        parameters: Velocity in per cent, then home position and jog steps of three paddles in counts.
        saved: Parameters after power-on.
    """

    description = "the controller"

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        *,
        turn: Callable[[Jones], None],
        model: str = "MPC320",
        serial: str = "38000001",
        chatty_s: float | None = None,
        long_announcements: bool = False,
    ) -> None:
        if model not in MODELS:
            raise ConfigError(f"there is no model {model}", device=name, hint=f"Use one of {', '.join(MODELS)}.")
        super().__init__(name, clock)
        self._turn = turn
        self.model = model
        self.serial_number = _number(serial)
        self._long = long_announcements
        retardances = MODELS[model]
        self._offsets_rad = rng.uniform(0.0, math.pi, len(retardances))
        positions = [float(rng.integers(0, COUNTS_MAX + 1)) for _ in retardances]
        self.paddles = {
            1 << index: Paddle(1 << index, [clock.now()], [position_counts])
            for index, position_counts in enumerate(positions)
        }
        self.enabled = sum(self.paddles)
        self.parameters = self.saved = (100, 685, 201, 201, 201)
        self._chatty_s = chatty_s
        self._updates_s = chatty_s
        self._next_update_s = clock.now() + (chatty_s or 0.0)
        self._reported_counts: list[float] = []
        self._report_positions(clock.now())

    @property
    def counts_max(self) -> int:
        """Largest position of a paddle in counts."""
        return COUNTS_MAX

    def power_cycle(self) -> None:
        """Switch the power off and on. Paddles keep their positions, all channels are on, saved parameters apply."""
        self.advance()
        now_s = self._clock.now()
        for peer in self._peers:
            peer.line.clear()
        for paddle in self.paddles.values():
            paddle.stop_at_present_position(now_s)
            paddle.homed = False
        self.enabled, self.parameters = sum(self.paddles), self.saved
        self.start_updates(False, now_s)

    def next_due(self) -> float | None:
        """Return the time of the next announcement; ``None`` if there is none."""
        times = [paddle.times_s[-1] for paddle in self.paddles.values() if paddle.announce is not None]
        if self._updates_s is not None:
            times.append(self._next_update_s)
        return min(times, default=None)

    def _new_peer(self) -> _MpcPeer:
        return _MpcPeer(self, SerialLine(BAUD))

    def _follow(self, now_s: float) -> None:
        for peer in tuple(self._peers):
            while (chunk := peer.line.take_arrived(now_s)) is not None:
                at_s, data = chunk
                self._end_motions(at_s)
                for message in peer.messages(data, at_s):
                    self._carry_out(peer, message, at_s)
        self._end_motions(now_s)
        self._update(now_s)
        self._report_positions(now_s)

    # -- messages

    def _carry_out(self, peer: _MpcPeer, message: AptMessage, at_s: float) -> None:
        try:
            row = MESSAGES.get(message.number)
            # Silently ignored, as on a real device (pyLabLib issue 29).
            if row is None or row.size != (None if message.data is None else len(message.data)):
                return
            answer = row.run(self, message, at_s)
        except AptRefusal as refusal:
            text = str(refusal).encode("ascii")[:63].ljust(64, b"\0")
            answer = with_data(RICH_RESPONSE, struct.pack("<HH", message.number, _REFUSED) + text)
        if answer:
            peer.line.send(answer, at_s + _REPLY_S)

    def paddle(self, channel: int) -> Paddle:
        """Return the paddle of a channel. Raises ``AptRefusal`` if the channel does not exist."""
        if channel not in self.paddles:
            raise AptRefusal("no such channel")
        return self.paddles[channel]

    def status(self, channel: int, at_s: float) -> bytes:
        """Return the data of a paddle's status message: channel, counts, velocity, current in mA, status bits."""
        paddle = self.paddle(channel)
        speed = paddle.speed(at_s)
        bits = FORWARD if speed > 0 else BACKWARD if speed < 0 else 0
        bits |= HOMING if paddle.announce == HOMED_ID else 0
        bits |= HOMED if paddle.homed else 0
        bits |= IS_SETTLED if paddle.announce is None else 0
        bits |= ENABLED if self.enabled & channel else 0
        current_ma = MOVING_MA if paddle.announce is not None else 0
        return struct.pack("<HihhI", channel, round(paddle.position(at_s)), round(speed), current_ma, bits)

    def enable(self, mask: int, at_s: float) -> None:
        """Switch on the channels of a mask and all others off. A moving paddle that is switched off stops."""
        self.enabled = mask
        for paddle in self.paddles.values():
            if not self.enabled & paddle.channel and paddle.announce is not None:
                paddle.stop_at_present_position(at_s)

    def move(self, channel: int, positions: list[float], announce: int, at_s: float) -> None:
        """Move a paddle through positions at the set velocity, unless the channel is off. Raises ``AptRefusal``."""
        paddle = self.paddle(channel)
        if any(not 0 <= position_counts <= COUNTS_MAX for position_counts in positions):
            raise AptRefusal("position outside the limits")
        if not self.enabled & channel:  # silently ignored (model choice)
            return
        speed = self.parameters[0] / 100.0 * DEGREES_PER_S * COUNTS_PER_DEGREE
        times_s, counts = [at_s], [paddle.position(at_s)]
        for position_counts in positions:
            # Not before the reply could have left: a motion to the present position ends too.
            times_s.append(times_s[-1] + max(abs(position_counts - counts[-1]) / speed, _REPLY_S))
            counts.append(position_counts)
        paddle.times_s, paddle.counts, paddle.announce = times_s, counts, announce

    def stop(self, channel: int, announce: int, at_s: float) -> None:
        """Stop a paddle at its present position."""
        self.paddle(channel).stop_at_present_position(at_s)
        self._announce_motion(channel, announce, at_s)

    def start_updates(self, on: bool, at_s: float) -> None:
        """Start or stop the periodic status messages."""
        self._updates_s = UPDATE_S if on else self._chatty_s
        self._next_update_s = at_s + (self._updates_s or 0.0)

    # -- announcements

    def _announce(self, frame: bytes, at_s: float) -> None:
        for peer in self._peers:
            if peer.line.unread < _MAX_UNREAD_BYTES:  # a host that does not read misses unsolicited messages
                peer.line.send(frame, at_s)

    def _announce_motion(self, channel: int, number: int, at_s: float) -> None:
        if number == HOMED_ID:
            self._announce(header_only(HOMED_ID, channel), at_s)
            return
        data = self.status(channel, at_s)
        self._announce(with_data(number, data if self._long else data[:_SHORT_STATUS_BYTES]), at_s)

    def _end_motions(self, at_s: float) -> None:
        # Announced in the order in which the motions end.
        ended = [
            paddle
            for paddle in self.paddles.values()
            if paddle.announce is not None and paddle.times_s[-1] <= at_s + 1e-9
        ]
        for paddle in sorted(ended, key=lambda paddle: paddle.times_s[-1]):
            end_s, number = paddle.times_s[-1], paddle.announce
            paddle.stop_at_present_position(end_s)
            paddle.homed |= number == HOMED_ID
            self._announce_motion(paddle.channel, number or 0, end_s)

    def _update(self, now_s: float) -> None:
        if self._updates_s is None:
            return
        # After a long pause, older missed messages are skipped.
        self._next_update_s = max(self._next_update_s, now_s - _MAX_BACKLOG_S)
        while self._next_update_s <= now_s:
            for channel in self.paddles:
                self._announce(with_data(STATUS_ID, self.status(channel, self._next_update_s)), self._next_update_s)
            self._next_update_s += self._updates_s

    def _report_positions(self, now_s: float) -> None:
        positions = [paddle.position(now_s) for paddle in self.paddles.values()]
        if positions != self._reported_counts:  # each call makes the world compute the light anew
            self._reported_counts = positions
            angles_rad = self._offsets_rad + np.radians(np.array(positions) / COUNTS_PER_DEGREE)
            self._turn(plates(angles_rad.tolist(), MODELS[self.model], _ACTIVATION_LOSS_DB))


def _number(serial: str) -> int:
    return (
        int(serial)
        if serial.isascii() and serial.isdecimal() and len(serial) < 10
        else _FIRST_SERIAL + zlib.crc32(serial.encode()) % 1_000_000
    )


INFO_ID, CHANNEL_STATE_ID, HOMED_ID, COMPLETED_ID, STOPPED_ID = 0x0006, 0x0212, 0x0444, 0x0464, 0x0466
STATUS_ID, SET_PARAMETERS_ID, PARAMETERS_ID = 0x0491, 0x0530, 0x0532
_ON, _OFF = 1, 2
_FORWARD_DIRECTION, _BACKWARD_DIRECTION = 1, 2
_TYPE, _FIRMWARE, _HARDWARE = 44, (1, 0, 2, 0), 1
VELOCITY_LIMITS = (10, 100)


class AptRefusal(Exception):  # noqa: N818 - a reply of the device, not an error of the program
    """Refusal of a message, with a text for the host."""


@dataclass(frozen=True)
class MessageRow:
    """Handler of one APT message.

    Attributes:
        size: Length of the message's data; ``None`` for a header alone.
        run: Executes the message at a given time; returns the reply, empty for none.
    """

    size: int | None
    run: Callable[[Mpc320, AptMessage, float], bytes]


def _data(message: AptMessage) -> bytes:
    return message.data or b""


def _info(device: Mpc320, _message: AptMessage, _at_s: float) -> bytes:
    model = device.model.encode().ljust(8, b"\0")
    header = struct.pack("<I8sH4B", device.serial_number, model, _TYPE, *_FIRMWARE)
    return with_data(INFO_ID, header + bytes(60) + struct.pack("<HHH", _HARDWARE, 0, len(device.paddles)))


def _enable(device: Mpc320, message: AptMessage, at_s: float) -> bytes:
    all_channels = sum(device.paddles)
    if message.first & ~all_channels or message.second not in (_ON, _OFF):
        raise AptRefusal("no such channel or state")
    device.enable(message.first if message.second == _ON else device.enabled & ~message.first, at_s)
    return b""


def _channel_state(device: Mpc320, message: AptMessage, _at_s: float) -> bytes:
    channel = device.paddle(message.first).channel
    return header_only(CHANNEL_STATE_ID, channel, _ON if device.enabled & channel else _OFF)


def _home(device: Mpc320, message: AptMessage, at_s: float) -> bytes:
    device.move(message.first, [0.0, float(device.parameters[1])], HOMED_ID, at_s)
    return b""


def _move(device: Mpc320, message: AptMessage, at_s: float) -> bytes:
    channel, counts = struct.unpack("<Hi", _data(message))
    device.move(channel, [float(counts)], COMPLETED_ID, at_s)
    return b""


def _jog(device: Mpc320, message: AptMessage, at_s: float) -> bytes:
    paddle = device.paddle(message.first)
    if message.second not in (_FORWARD_DIRECTION, _BACKWARD_DIRECTION):
        raise AptRefusal("no such direction")
    step = device.parameters[2 + list(device.paddles).index(paddle.channel)]
    position_counts = round(paddle.position(at_s)) + (step if message.second == _FORWARD_DIRECTION else -step)
    device.move(paddle.channel, [float(position_counts)], COMPLETED_ID, at_s)
    return b""


def _stop(device: Mpc320, message: AptMessage, at_s: float) -> bytes:
    device.stop(message.first, STOPPED_ID, at_s)
    return b""


def _status(device: Mpc320, message: AptMessage, at_s: float) -> bytes:
    return with_data(STATUS_ID, device.status(message.first, at_s))


def _set_parameters(device: Mpc320, message: AptMessage, _at_s: float) -> bytes:
    _, velocity, home, *jogs = struct.unpack("<6H", _data(message))
    low, high = VELOCITY_LIMITS
    if not low <= velocity <= high or any(counts > device.counts_max for counts in (home, *jogs)):
        raise AptRefusal("parameter outside the limits")
    device.parameters = (velocity, home, jogs[0], jogs[1], jogs[2])
    return b""


def _parameters(device: Mpc320, _message: AptMessage, _at_s: float) -> bytes:
    return with_data(PARAMETERS_ID, struct.pack("<6H", 0, *device.parameters))


def _save(device: Mpc320, message: AptMessage, _at_s: float) -> bytes:
    _, number = struct.unpack("<HH", _data(message))
    if number == SET_PARAMETERS_ID:
        device.saved = device.parameters
    return b""


def _updates(on: bool) -> Callable[[Mpc320, AptMessage, float], bytes]:
    def run(device: Mpc320, _message: AptMessage, at_s: float) -> bytes:
        device.start_updates(on, at_s)
        return b""

    return run


def _ignore(_device: Mpc320, _message: AptMessage, _at_s: float) -> bytes:
    return b""


MESSAGES: Mapping[int, MessageRow] = {
    0x0002: MessageRow(None, _ignore),
    0x0005: MessageRow(None, _info),
    0x0011: MessageRow(None, _updates(True)),
    0x0012: MessageRow(None, _updates(False)),
    0x0210: MessageRow(None, _enable),
    0x0211: MessageRow(None, _channel_state),
    0x0223: MessageRow(None, _ignore),
    0x0443: MessageRow(None, _home),
    0x0453: MessageRow(6, _move),
    0x0465: MessageRow(None, _stop),
    0x046A: MessageRow(None, _jog),
    0x0490: MessageRow(None, _status),
    0x0492: MessageRow(None, _ignore),
    0x04B9: MessageRow(4, _save),
    SET_PARAMETERS_ID: MessageRow(12, _set_parameters),
    0x0531: MessageRow(None, _parameters),
}
"""Accepted messages by message id."""
