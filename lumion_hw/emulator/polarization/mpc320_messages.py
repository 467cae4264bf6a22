"""Messages of the Thorlabs MPC320 and MPC220, one row per message id (polarization facts, 4.3).

Beyond the facts' list are those that every APT device has: its identity (0x0005), what starts and stops status messages
(0x0011, 0x0012), the acknowledgement of them (0x0492), a blink (0x0223), stopping (0x0465), jogging (0x046A), saving
parameters (0x04B9: channel and the id of the message whose parameters are saved) and saying good-bye (0x0002).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lumion_hw.emulator.polarization.apt_frames import AptMessage, short, with_data

if TYPE_CHECKING:
    from lumion_hw.emulator.polarization.mpc320 import Mpc320

INFO_ID, CHANNEL_STATE_ID, HOMED_ID, COMPLETED_ID, STOPPED_ID = 0x0006, 0x0212, 0x0444, 0x0464, 0x0466
STATUS_ID, SET_PARAMETERS_ID, PARAMETERS_ID = 0x0491, 0x0530, 0x0532
_ON, _OFF = 1, 2
_FORWARD, _BACK = 1, 2
_TYPE, _FIRMWARE, _HARDWARE = 44, (1, 0, 2, 0), 1
VELOCITY_LIMITS = (10, 100)


class AptRefusal(Exception):  # noqa: N818 - what a device answers, not an error of the program
    """A message that is not carried out; its text goes to the host."""


@dataclass(frozen=True)
class MessageRow:
    """One message a device understands.

    Attributes:
        size: Length of its data; ``None`` for a message that is a header only.
        run: Carries it out, at a time; returns the answer, empty for none.
    """

    size: int | None
    run: Callable[[Mpc320, AptMessage, float], bytes]


def _data(message: AptMessage) -> bytes:
    return message.data or b""


def _info(device: Mpc320, _message: AptMessage, _at_s: float) -> bytes:
    model = device.model.encode().ljust(8, b"\0")
    head = struct.pack("<I8sH4B", device.serial_number, model, _TYPE, *_FIRMWARE)
    return with_data(INFO_ID, head + bytes(60) + struct.pack("<HHH", _HARDWARE, 0, len(device.paddles)))


def _enable(device: Mpc320, message: AptMessage, at_s: float) -> bytes:
    every = sum(device.paddles)
    if message.first & ~every or message.second not in (_ON, _OFF):
        raise AptRefusal("no such channel or state")
    device.enable(message.first if message.second == _ON else device.enabled & ~message.first, at_s)
    return b""


def _channel_state(device: Mpc320, message: AptMessage, _at_s: float) -> bytes:
    channel = device.paddle(message.first).channel
    return short(CHANNEL_STATE_ID, channel, _ON if device.enabled & channel else _OFF)


def _home(device: Mpc320, message: AptMessage, at_s: float) -> bytes:
    device.move(message.first, [0.0, float(device.parameters[1])], HOMED_ID, at_s)
    return b""


def _move(device: Mpc320, message: AptMessage, at_s: float) -> bytes:
    channel, counts = struct.unpack("<Hi", _data(message))
    device.move(channel, [float(counts)], COMPLETED_ID, at_s)
    return b""


def _jog(device: Mpc320, message: AptMessage, at_s: float) -> bytes:
    paddle = device.paddle(message.first)
    if message.second not in (_FORWARD, _BACK):
        raise AptRefusal("no such direction")
    step = device.parameters[2 + list(device.paddles).index(paddle.channel)]
    place = round(paddle.at(at_s)) + (step if message.second == _FORWARD else -step)
    device.move(paddle.channel, [float(place)], COMPLETED_ID, at_s)
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


def _nothing(_device: Mpc320, _message: AptMessage, _at_s: float) -> bytes:
    return b""


MESSAGES: Mapping[int, MessageRow] = {
    0x0002: MessageRow(None, _nothing),
    0x0005: MessageRow(None, _info),
    0x0011: MessageRow(None, _updates(True)),
    0x0012: MessageRow(None, _updates(False)),
    0x0210: MessageRow(None, _enable),
    0x0211: MessageRow(None, _channel_state),
    0x0223: MessageRow(None, _nothing),
    0x0443: MessageRow(None, _home),
    0x0453: MessageRow(6, _move),
    0x0465: MessageRow(None, _stop),
    0x046A: MessageRow(None, _jog),
    0x0490: MessageRow(None, _status),
    0x0492: MessageRow(None, _nothing),
    0x04B9: MessageRow(4, _save),
    SET_PARAMETERS_ID: MessageRow(12, _set_parameters),
    0x0531: MessageRow(None, _parameters),
}
"""By message id."""
