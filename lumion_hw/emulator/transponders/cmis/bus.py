"""Two more ways to a module: byte by byte on an I2C bus, and as the linear file that Linux makes of it."""

from __future__ import annotations

import contextlib

from lumion_hw.emulator.transponders.cmis.host_port import WRITE_BYTES
from lumion_hw.emulator.transponders.cmis.module import CmisModule
from lumion_hw.errors import LinkError
from lumion_hw.sessions.module.registers import IDENTITY_DEVICE
from lumion_hw.standards.cmis.fields import HALF_BYTES
from lumion_hw.standards.cmis.lower_memory import BANK_SELECT_BYTE


class ModuleOnBus:
    """A module as an I2C target at 50h (see :class:`lumion_hw.emulator.transponders.i2c_bridge.I2cTarget`).

    A write takes effect at STOP or at a repeated START, as one transaction, however long it was.

    Args:
        module: The module.
    """

    def __init__(self, module: CmisModule) -> None:
        self._module = module
        self._address: int | None = None
        self._written = bytearray()
        self._writing = False

    def i2c_start(self, address: int, read: bool, at_s: float) -> bool:
        """Address the module; returns whether it acknowledges."""
        self._end_write()
        if address != IDENTITY_DEVICE:
            return False
        try:
            self._module.acknowledge("START")
        except LinkError:
            return False
        self._writing = not read
        if read:
            self._module.begin_read()
        return True

    def i2c_write(self, value: int) -> bool:
        """Take a byte: first the address, then data; a byte too many is not acknowledged and spoils the write."""
        if not self._writing:
            return False
        if self._address is None:
            self._address = value
            return True
        if len(self._written) >= self._module.write_limit(self._address):
            self._written.clear()
            self._writing = False
            return False
        self._written.append(value)
        return True

    def i2c_read(self) -> int:
        """Give the next byte."""
        return self._module.next_byte()

    def i2c_stop(self, at_s: float) -> None:
        """End the transaction."""
        self._end_write()

    def _end_write(self) -> None:
        """Carry out what was written: an address alone moves the pointer, and a read goes on from there."""
        data, address, writing = bytes(self._written), self._address, self._writing
        self._written.clear()
        self._address, self._writing = None, False
        if address is None or not writing:
            return
        if not data:
            self._module.seek(address)
            return
        with contextlib.suppress(LinkError):  # the module went silent inside the transaction: the bytes are lost
            self._module.write(address, data)


class LinearView:
    """The memory as one file: 00h at 0 to 255, byte b of page p of a bank at (256 bank + p) 128 + b.

    As the Linux kernel does it: page select before each access to an upper half other than 00h's, writes of 8 bytes.

    Args:
        module: The module.
    """

    def __init__(self, module: CmisModule) -> None:
        self._module = module

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes of the file. Raises as ``CmisModule.read``."""
        data = bytearray()
        while len(data) < length:
            position = offset + len(data)
            address = self._map(position)
            size = min(length - len(data), HALF_BYTES - address % HALF_BYTES)
            data += self._module.read(address, size)
        return bytes(data)

    def write(self, offset: int, data: bytes) -> None:
        """Write to the file. Raises as ``CmisModule.write``."""
        done = 0
        while done < len(data):
            address = self._map(offset + done)
            size = min(len(data) - done, HALF_BYTES - address % HALF_BYTES, WRITE_BYTES)
            self._module.write(address, data[done : done + size])
            done += size

    def _map(self, position: int) -> int:
        """Select the page of a position; returns the byte address on the bus."""
        if position < HALF_BYTES:
            return position
        bank, page = divmod((position - HALF_BYTES) // HALF_BYTES, 256)
        self._module.write(BANK_SELECT_BYTE, bytes([bank, page]))
        return HALF_BYTES + position % HALF_BYTES
