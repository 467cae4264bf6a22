"""Register access through an NXP SC18IM700 bridge, which converts UART messages to I2C transfers.

Source: data sheet "SC18IM700, Master I2C-bus controller with UART interface", Rev. 02, 10 August 2007. The clause
numbers in this module are unverified.
"""

from __future__ import annotations

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import ConfigError, ConnectError
from lumion_hw.links.base import Link
from lumion_hw.sessions.conversation import Conversation, format_bytes
from lumion_hw.sessions.module.registers import (
    IDENTITY_DEVICE,
    ModuleAbsentError,
    NotRespondingError,
    ShortReadError,
    split_into_rows,
    split_read,
)

FIFO_BYTES = 16
_DEVICE_BYTES = 256
_START, _STOP, _READ_REGISTER = b"S", b"P", b"R"
_I2C_STAT = 0x0A
_STATUS_QUERY = _READ_REGISTER + bytes([_I2C_STAT]) + _STOP
_OK, _NACK_ADDRESS, _NACK_DATA, _TIME_OUT = 0xF0, 0xF1, 0xF2, 0xF8
_REFUSALS = (_NACK_ADDRESS, _NACK_DATA, _TIME_OUT)
_STATUS_TEXT = {
    _OK: "done",
    _NACK_ADDRESS: "address not acknowledged",
    _NACK_DATA: "data not acknowledged",
    _TIME_OUT: "bus time-out",
}
_BITS_PER_UART_BYTE = 10
_I2C_BYTE_S = 9 / 100e3  # at 100 kHz, the slowest bus speed in use
_RETRY_PERIOD_S = 0.002
_NO_DATA_S = 0.1
"""Time in s to wait for data after the transmission time."""


class Sc18im700(Conversation):
    """Register access to one module on the I2C bus of a bridge. Thread-safe.

    Args:
        link: UART to the bridge, 8N1.
        clock: Clock of the link.
        retry_s: Time in seconds for which an access that is not acknowledged is repeated. A module is silent for up to
            80 ms after a write and 300 ms after power-up (SFF-8472, SFF-8431).
        timeout_s: Time limit in seconds for a reply, beyond the transmission time.
        baud: Baud rate of the UART; 9600 after a reset of the bridge.
        largest_read: Longest read in one bus transaction, 1 to 16 bytes.
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
        largest_read: int = FIFO_BYTES,
    ) -> None:
        super().__init__(link, clock, device=device, timeout_s=timeout_s, quiet_s=0.1)
        self._retry_s = retry_s
        self._largest_read = min(largest_read, FIFO_BYTES)
        self._byte_s = _BITS_PER_UART_BYTE / baud + _I2C_BYTE_S

    @property
    def name(self) -> str:
        """Address of the bridge."""
        return self.address

    @property
    def largest_read(self) -> int:
        """Longest read in one bus transaction, in bytes."""
        return self._largest_read

    def open(self, timeout_s: float = 5.0) -> None:
        """Open the link and check that a bridge replies. Raises ``ConnectError``."""
        with self.transaction():
            self.open_link(timeout_s)  # also discards the "OK" that the bridge sends after power-up
            for _ in range(self.resync_rounds):  # the first query may complete a command of another program
                if self.probe(self._reply_deadline(len(_STATUS_QUERY) + 1)):
                    return
                self._discard_input(self._quiet_s)
            self.close()
            raise self.error(
                ConnectError,
                "no SC18IM700 bridge responds",
                hint="Check baud rate, wiring and supply of the bridge.",
            )

    def read(self, device: int, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes; raises the errors of ``RegisterAccess.read``.

        A two-byte number at an even offset is read in one transfer, unless ``largest_read`` is 1.
        """
        _check_range(device, offset, length)
        with self.transaction():
            parts = split_read(offset, length, self._largest_read)
            return b"".join(self._read_chunk(device, start, size) for start, size in parts)

    def write(self, device: int, offset: int, data: bytes) -> None:
        """Write ``data``; raises the errors of ``RegisterAccess.read``."""
        _check_range(device, offset, len(data))
        with self.transaction():
            for start, chunk in split_into_rows(offset, data):
                self._write_chunk(device, start, chunk)

    def probe(self, deadline: Deadline) -> bool:
        """Return whether the bridge replies with exactly one valid status byte."""
        until = min(deadline, self._reply_deadline(len(_STATUS_QUERY) + 1))
        end = self._data_deadline(len(_STATUS_QUERY) + 1)
        self.send(_STATUS_QUERY, until)
        reply = self.receive_available(1, until)
        if not reply or reply[0] not in _STATUS_TEXT:
            return False
        return not self.receive_available(1, end if self._clock.now() < end else self._data_deadline())

    def _read_chunk(self, device: int, offset: int, length: int) -> bytes:
        """Read in one transfer with a repeated start (clause 7.1.7)."""
        label = f"reading 0x{device:02X}:{offset}+{length}"
        message = _START + bytes([device << 1, 1, offset]) + _START + bytes([device << 1 | 1, length]) + _STOP
        deadline = Deadline(self._clock.now() + self._retry_s)
        while True:
            with self.exchange(label):
                data, status = self._read_data_and_status(message, length, label)
                if status == _OK and len(data) != length:
                    raise self.error(
                        ShortReadError,
                        f"{label}: received only {format_bytes(data)}",
                        hint="Bytes were lost. Check the UART and its baud rate.",
                    )
            if status == _OK:
                return data
            self._wait_or_raise(device, label, status, deadline)

    def _read_data_and_status(self, message: bytes, length: int, label: str) -> tuple[bytes, int]:
        self.send(message, self._reply_deadline(len(message)))
        received = self.receive_available(length, self._data_deadline(len(message) + length))
        deadline = self._reply_deadline(length + len(_STATUS_QUERY) + 1)
        self.send(_STATUS_QUERY, deadline)
        received += self.receive_exactly(1, label, deadline)
        while len(received) <= length:  # the read was refused, or the data is late and more will follow
            missing = length + 1 - len(received)
            added = self.receive_available(
                missing, self._data_deadline(missing) if received[-1] in _REFUSALS else deadline
            )
            if not added:
                break
            received += added
        return received[:-1], self._check_status(label, received[-1])

    def _write_chunk(self, device: int, offset: int, data: bytes) -> None:
        """Write in one transfer (clause 7.1.1)."""
        label = f"writing 0x{device:02X}:{offset}+{len(data)}"
        message = _START + bytes([device << 1, 1 + len(data), offset]) + data + _STOP
        self._repeat_until_ok(device, message, label)
        self._await_write_cycle(device, offset, label)

    def _await_write_cycle(self, device: int, offset: int, label: str) -> None:
        """Wait until the module acknowledges again after a write (SFF-8472, up to 80 ms)."""
        self._repeat_until_ok(device, _START + bytes([device << 1, 1, offset]) + _STOP, label)

    def _repeat_until_ok(self, device: int, message: bytes, label: str) -> None:
        deadline = Deadline(self._clock.now() + self._retry_s)
        while True:
            with self.exchange(label):
                self.send(message, self._reply_deadline(len(message)))
                status = self._status(label, len(message))
            if status == _OK:
                return
            self._wait_or_raise(device, label, status, deadline)

    def _status(self, label: str, n_bytes_before: int) -> int:
        """Return the status of the last transfer (clause 7.3.8)."""
        deadline = self._reply_deadline(n_bytes_before + len(_STATUS_QUERY) + 1)
        self.send(_STATUS_QUERY, deadline)
        return self._check_status(label, self.receive_exactly(1, label, deadline)[0])

    def _check_status(self, label: str, status: int) -> int:
        if status not in _STATUS_TEXT:
            raise self._frame_error(label, f"the unknown status 0x{status:02X}")
        stray = bytes(self._buffer) + self._link.read(Deadline(self._clock.now()))
        if stray:  # then the bytes taken as data and status may be wrong as well
            raise self._frame_error(label, f"followed by unexpected bytes: {format_bytes(stray)}")
        return status

    def _wait_or_raise(self, device: int, label: str, status: int, deadline: Deadline) -> None:
        if self._clock.now() < deadline:
            self._clock.sleep(_RETRY_PERIOD_S)
            return
        absent = status == _NACK_ADDRESS and device == IDENTITY_DEVICE
        kind = ModuleAbsentError if absent else NotRespondingError
        raise self.error(
            kind,
            f"{label}: {_STATUS_TEXT[status]} for {self._retry_s:g} s",
            hint="Check that the module is plugged in and powered."
            if absent
            else "The module is busy, or does not have this device address.",
        )

    def _reply_deadline(self, n_bytes: int) -> Deadline:
        return Deadline(self._clock.now() + self._timeout_s + n_bytes * self._byte_s)

    def _data_deadline(self, n_bytes: int = 1) -> Deadline:
        return Deadline(self._clock.now() + _NO_DATA_S + n_bytes * self._byte_s)


def _check_range(device: int, offset: int, length: int) -> None:
    if not (0 <= device < 0x80 and offset >= 0 and length > 0 and offset + length <= _DEVICE_BYTES):
        raise ConfigError(
            f"I2C device {device} has no {length} registers at offset {offset}",
            hint="A device address has 7 bits, and a device has 256 bytes.",
        )
