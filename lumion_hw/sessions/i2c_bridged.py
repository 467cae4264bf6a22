"""One I2C device behind what knows device addresses: an SC18IM700 bridge, or an adapter of this computer."""

from __future__ import annotations

from lumion_hw.sessions.register_access import IDENTITY_DEVICE, RegisterAccess


class BridgedI2c:
    """The device at one address of a ``RegisterAccess``; implements ``I2cDevice``.

    An access that is cut into pieces is not one bus transaction: an SC18IM700 reads 16 bytes at a time, cut at even
    distances from the start, and writes inside rows of 8 bytes. CMIS numbers that begin there arrive whole.

    Args:
        registers: The bridge's registers, or the adapter.
        address: 7-bit I2C address.
    """

    def __init__(self, registers: RegisterAccess, address: int = IDENTITY_DEVICE) -> None:
        self._registers = registers
        self._address = address

    @property
    def name(self) -> str:
        """The address of the bridge or adapter."""
        return self._registers.name

    def open(self) -> None:
        """Open it. Raises ``ConnectError``."""
        self._registers.open()

    def close(self) -> None:
        """Release it; idempotent, never raises."""
        self._registers.close()

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes; raises as ``I2cDevice.read``."""
        return self._registers.read(self._address, offset, length)

    def write(self, offset: int, data: bytes) -> None:
        """Write ``data``; raises as ``I2cDevice.write``."""
        self._registers.write(self._address, offset, data)
