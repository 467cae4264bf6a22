"""Two-wire interface of an emulated QSFP module (SFF-8636 clause 5): address counter, roll-over, limit of a write."""

from __future__ import annotations

from abc import ABC, abstractmethod

from lumion_hw.emulator.transponders.qsfp.offsets import HALF_BYTES

DEVICE_ADDRESS = 0x50
"""Seven-bit address of the module (A0h with the read/write bit)."""
MAX_WRITE_BYTES = 4
"""Largest number of bytes in one write."""


def next_address(address: int) -> int:
    """Return the following address: after the last byte of a 128-byte half comes its first byte."""
    return address // HALF_BYTES * HALF_BYTES + (address + 1) % HALF_BYTES


class TwoWirePort(ABC):
    """Bytes on the bus (see :class:`lumion_hw.emulator.transponders.i2c_bridge.I2cTarget`).

    The address counter keeps the address after the last byte of a read or write, for reads of the current address. A
    write takes effect at STOP. The standard does not support a repeated START after data; such a write is discarded. A
    fifth data byte is not acknowledged, and the whole write is discarded.
    """

    def __init__(self) -> None:
        self.reset_port()

    def reset_port(self) -> None:
        """Forget the current transaction and the address counter."""
        self._counter = 0
        self._is_reading = False
        self._written: bytearray | None = None

    @abstractmethod
    def _acknowledges(self, at_s: float) -> bool:
        """Return whether the module acknowledges its address now."""

    @abstractmethod
    def _begin_read(self) -> None:
        """Prepare the memory for a read; multi-byte values do not change until the next read."""

    @abstractmethod
    def _read_byte(self, address: int) -> int:
        """Return a byte for the host, with the side effects of its reading."""

    @abstractmethod
    def _write_bytes(self, addresses: list[int], data: bytes, at_s: float) -> None:
        """Execute a write."""

    def i2c_start(self, address: int, read: bool, at_s: float) -> bool:
        """Process START and an address byte. Return whether the module acknowledges."""
        self._is_reading, self._written = False, None
        if address != DEVICE_ADDRESS or not self._acknowledges(at_s):
            return False
        self._is_reading = read
        if read:
            self._begin_read()
        else:
            self._written = bytearray()
        return True

    def i2c_write(self, value: int) -> bool:
        """Receive one byte: the memory address, then data. Return whether the module acknowledges."""
        if self._written is None:
            return False
        if len(self._written) > MAX_WRITE_BYTES:
            self._written = None
            return False
        self._written.append(value)
        if len(self._written) == 1:
            self._counter = value
        return True

    def i2c_read(self) -> int:
        """Return the next byte of a read; FFh when the module is not addressed."""
        if not self._is_reading:
            return 0xFF
        value = self._read_byte(self._counter)
        self._counter = next_address(self._counter)
        return value

    def i2c_stop(self, at_s: float) -> None:
        """Process STOP, which ends the transaction."""
        written = self._written
        self._is_reading, self._written = False, None
        if written is None or len(written) < 2:
            return
        addresses = [written[0]]
        while len(addresses) < len(written):
            addresses.append(next_address(addresses[-1]))
        self._counter = addresses.pop()
        self._write_bytes(addresses, bytes(written[1:]), at_s)
