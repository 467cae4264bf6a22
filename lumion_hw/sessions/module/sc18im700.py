"""Registers through an NXP SC18IM700 bridge: messages on a UART become transfers on an I2C bus.

Message forms, registers and status codes after the data sheet "SC18IM700, Master I2C-bus controller with UART
interface", Rev. 02, 10 August 2007: clause 7.1.1 (write), 7.1.4 (read internal register), 7.1.7 (read after write by
repeated start), 7.3.8 (``I2CStat``); these clause numbers and the 655 ms below still have to be compared with the
document. The FIFOs hold 16 bytes each way (clause 2), so no message and no reply here is longer; users of the real
chip report that a read of 64 bytes never ends.
"""

from __future__ import annotations

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import ConfigError, ConnectError
from lumion_hw.links.base import Link
from lumion_hw.sessions.conversation import Conversation, shown
from lumion_hw.sessions.module.registers import (
    IDENTITY_DEVICE,
    ModuleAbsentError,
    NotRespondingError,
    ShortReadError,
    row_pieces,
)

FIFO_BYTES = 16
_DEVICE_BYTES = 256
_START, _STOP, _READ_REGISTER = b"S", b"P", b"R"
_I2C_STAT = 0x0A
_STATUS_QUERY = _READ_REGISTER + bytes([_I2C_STAT]) + _STOP
_OK, _NACK_ADDRESS, _NACK_DATA, _TIME_OUT = 0xF0, 0xF1, 0xF2, 0xF8
_REFUSALS = (_NACK_ADDRESS, _NACK_DATA, _TIME_OUT)
_STATUS_WORDS = {
    _OK: "done",
    _NACK_ADDRESS: "address not acknowledged",
    _NACK_DATA: "data not acknowledged",
    _TIME_OUT: "bus time-out",
}
_BITS_PER_UART_BYTE = 10
_I2C_BYTE_S = 9 / 100e3  # at the slowest bus speed modules are used with
_RETRY_PERIOD_S = 0.002
_NOTHING_S = 0.1
"""Beyond the wire times: a read that has brought nothing by then was probably refused, and the status is asked for.

Nothing is decided by it: on a busy host data come later than this, and are found before their status.
"""


class Sc18im700(Conversation):
    """Register access to one module on the I2C bus of a bridge. Thread-safe.

    Args:
        link: The UART, 8N1.
        clock: The link's clock.
        device: Device name, for messages.
        retry_s: How long an access that is not acknowledged is repeated. A module is silent for up to 80 ms after
            a write and 300 ms after power-up (SFF-8472, SFF-8431).
        timeout_s: Time for a reply of the bridge beyond the wire times. The bridge needs none of it; host and USB do.
        baud: Baud rate of the UART, to know the wire times; 9600 after reset.
    """

    # A bridge that waits for the rest of a message gives up after about 655 ms of silence.
    pause_s = 0.7
    harmless = b""

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        device: str,
        retry_s: float = 0.5,
        timeout_s: float = 0.5,
        baud: int = 9600,
    ) -> None:
        super().__init__(link, clock, device=device, timeout_s=timeout_s, quiet_s=0.1)
        self._retry_s = retry_s
        self._byte_s = _BITS_PER_UART_BYTE / baud + _I2C_BYTE_S

    @property
    def name(self) -> str:
        """The bridge's address."""
        return self.address

    def open(self, timeout_s: float = 5.0) -> None:
        """Open the link and check that a bridge answers. Raises ``ConnectError``."""
        with self.transaction():
            self.open_link(timeout_s)  # also takes the "OK" the bridge sends after power-up
            for _ in range(self.resync_rounds):  # the first question may end a command that another program has begun
                if self.probe(self._reply_deadline(len(_STATUS_QUERY) + 1)):
                    return
                self._discard_input(self._quiet_s)
            self.close()
            raise self.error(
                ConnectError,
                "nothing answers like an SC18IM700 bridge",
                hint="Check baud rate, wiring and supply of the bridge.",
            )

    def read(self, device: int, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes; raises as ``RegisterAccess.read``.

        Reads of more than 16 bytes are several transfers, cut at even distances from ``offset``: two-byte values that
        begin at an even distance are coherent.
        """
        _check_range(device, offset, length)
        with self.transaction():
            return b"".join(
                self._read_piece(device, start, min(FIFO_BYTES, offset + length - start))
                for start in range(offset, offset + length, FIFO_BYTES)
            )

    def write(self, device: int, offset: int, data: bytes) -> None:
        """Write ``data`` in row pieces; raises as ``RegisterAccess.read``."""
        _check_range(device, offset, len(data))
        with self.transaction():
            for start, piece in row_pieces(offset, data):
                self._write_piece(device, start, piece)

    def probe(self, deadline: Deadline) -> bool:
        """Read the status register: exactly one byte, and a status, must come back."""
        until = min(deadline, self._reply_deadline(len(_STATUS_QUERY) + 1))
        alone = self._soon(len(_STATUS_QUERY) + 1)
        self.send(_STATUS_QUERY, until)
        reply = self.receive_available(1, until)
        if not reply or reply[0] not in _STATUS_WORDS:
            return False
        return not self.receive_available(1, alone if self._clock.now() < alone else self._soon())

    def _read_piece(self, device: int, offset: int, length: int) -> bytes:
        """Make one transfer: write the offset, repeated start, read (clause 7.1.7)."""
        label = f"reading 0x{device:02X}:{offset}+{length}"
        message = _START + bytes([device << 1, 1, offset]) + _START + bytes([device << 1 | 1, length]) + _STOP
        deadline = Deadline(self._clock.now() + self._retry_s)
        while True:
            with self.exchange(label):
                data, status = self._data_and_status(message, length, label)
                if status == _OK and len(data) != length:
                    raise self.error(
                        ShortReadError,
                        f"{label}: only {shown(data)}",
                        hint="Bytes were lost on the way; check the UART and its baud rate.",
                    )
            if status == _OK:
                return data
            self._wait_or_give_up(device, label, status, deadline)

    def _data_and_status(self, message: bytes, length: int, label: str) -> tuple[bytes, int]:
        """Send a read transfer and ask for its status; return both, also where the data come after that question."""
        self.send(message, self._reply_deadline(len(message)))
        seen = self.receive_available(length, self._soon(len(message) + length))
        deadline = self._reply_deadline(length + len(_STATUS_QUERY) + 1)
        self.send(_STATUS_QUERY, deadline)
        seen += self.receive_exactly(1, label, deadline)
        while len(seen) <= length:  # refused; or late, and more will come
            missing = length + 1 - len(seen)
            more = self.receive_available(missing, self._soon(missing) if seen[-1] in _REFUSALS else deadline)
            if not more:
                break
            seen += more
        return seen[:-1], self._checked(label, seen[-1])

    def _write_piece(self, device: int, offset: int, data: bytes) -> None:
        """Make one write transfer (clause 7.1.1)."""
        label = f"writing 0x{device:02X}:{offset}+{len(data)}"
        message = _START + bytes([device << 1, 1 + len(data), offset]) + data + _STOP
        self._repeat_until_ok(device, message, label)
        self._await_write_cycle(device, offset, label)

    def _await_write_cycle(self, device: int, offset: int, label: str) -> None:
        """Poll until the module acknowledges again: it stores what was written meanwhile (SFF-8472, up to 80 ms).

        Only the offset is sent, so that a busy module is known at once; a read would wait for bytes that never come.
        """
        self._repeat_until_ok(device, _START + bytes([device << 1, 1, offset]) + _STOP, label)

    def _repeat_until_ok(self, device: int, message: bytes, label: str) -> None:
        """Make a write transfer again and again until the module acknowledges it; raises as :meth:`write`."""
        deadline = Deadline(self._clock.now() + self._retry_s)
        while True:
            with self.exchange(label):
                self.send(message, self._reply_deadline(len(message)))
                status = self._status(label, len(message))
            if status == _OK:
                return
            self._wait_or_give_up(device, label, status, deadline)

    def _status(self, label: str, n_bytes_before: int) -> int:
        """Return the status of the last transfer (clause 7.3.8)."""
        deadline = self._reply_deadline(n_bytes_before + len(_STATUS_QUERY) + 1)
        self.send(_STATUS_QUERY, deadline)
        return self._checked(label, self.receive_exactly(1, label, deadline)[0])

    def _checked(self, label: str, status: int) -> int:
        """Return a status that is one, and the last byte there is."""
        if status not in _STATUS_WORDS:
            raise self._frame_error(label, f"the status 0x{status:02X}, which the bridge does not have")
        stray = bytes(self._buffer) + self._link.read(Deadline(self._clock.now()))
        if stray:  # then what was taken for data and status may have been something else, too
            raise self._frame_error(label, f"followed by {shown(stray)}, which nobody asked for")
        return status

    def _wait_or_give_up(self, device: int, label: str, status: int, deadline: Deadline) -> None:
        """Wait before the next attempt; past the deadline raise the error that says what is missing."""
        if self._clock.now() < deadline:
            self._clock.sleep(_RETRY_PERIOD_S)
            return
        absent = status == _NACK_ADDRESS and device == IDENTITY_DEVICE
        kind = ModuleAbsentError if absent else NotRespondingError
        raise self.error(
            kind,
            f"{label}: {_STATUS_WORDS[status]} for {self._retry_s:g} s",
            hint="Check that the module is plugged in and powered."
            if absent
            else "The module is busy, or has no such device address.",
        )

    def _reply_deadline(self, n_bytes: int) -> Deadline:
        return Deadline(self._clock.now() + self._timeout_s + n_bytes * self._byte_s)

    def _soon(self, n_bytes: int = 1) -> Deadline:
        return Deadline(self._clock.now() + _NOTHING_S + n_bytes * self._byte_s)


def _check_range(device: int, offset: int, length: int) -> None:
    if not (0 <= device < 0x80 and offset >= 0 and length > 0 and offset + length <= _DEVICE_BYTES):
        raise ConfigError(
            f"no such registers: {length} bytes at {offset} of I2C device {device}",
            hint="A device address has 7 bits, and a device has 256 bytes.",
        )
