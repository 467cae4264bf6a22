"""Access to the memory of an SFP module."""

from __future__ import annotations

from collections.abc import Collection

from lumion_hw.clock import Clock
from lumion_hw.drivers.transponders.sfp_identity import is_set
from lumion_hw.errors import DeviceAddress, DeviceError, FrameError, IdentityError, LinkError, LinkLost, VerifyError
from lumion_hw.sessions.module.registers import RegisterAccess, largest_read_of, read_whole_numbers
from lumion_hw.standards.registers import checksum_matches, unscaled
from lumion_hw.standards.sff8472.registers import A0H, A2H, BITS, CHECKSUMS, FIELDS, FLAG_BITS

MONITOR_START = FIELDS["temperature"].byte
SOFT_CONTROL_S = 0.1
"""Time in s until a control bit takes effect and status bits follow (SFF-8431 Table 8)."""
_MONITOR_BYTES = 16  # monitors and status in one transfer
_STATUS = FIELDS["status_control"]
_SOFT_TX_DISABLE = BITS["soft_tx_disable"]
_FLAG_FIELDS = (("alarm_flags", True), ("warning_flags", False))
_POLL_S = 0.02
_COVERED = {
    "CC_BASE": "kind, vendor and wavelength",
    "CC_EXT": "serial number, capabilities and kind of calibration",
    "CC_DMI": "thresholds and calibration constants",
}
TOLERATED = ("CC_BASE",)
"""Checksums that may be wrong with only a warning, because some modules store them wrongly."""


class SfpMemory:
    """Memory of one SFP module.

    Args:
        registers: Access to the module's registers.
        clock: Clock for waiting times.
        accepted: Names of the checksums that may be wrong.

    Attributes:
        warnings: Warnings about accepted checksums, by checksum.
    """

    def __init__(
        self, registers: RegisterAccess, clock: Clock, device: str, accepted: Collection[str] = TOLERATED
    ) -> None:
        self.registers = registers
        self.warnings: dict[str, str] = {}
        self._accepted = accepted
        self._clock = clock
        self._target = DeviceAddress(device, registers.name)

    def await_bus(self, timeout_s: float) -> None:
        """Wait until the identity memory can be read. Raises ``LinkError`` if this fails within ``timeout_s``."""
        deadline = self._clock.now() + timeout_s
        while True:
            try:
                self.registers.read(A0H, 0, 1)
                return
            except LinkLost:
                raise
            except LinkError:
                if self._clock.now() >= deadline:
                    raise
            self._clock.sleep(_POLL_S)

    def read_with_checksums(self, i2c_device: int, n_bytes: int, names: tuple[str, ...]) -> bytes:
        """Return the first ``n_bytes`` of an I2C device after checking the checksums ``names``.

        Raises:
            DeviceError: A checksum in the memory is wrong and not accepted.
            FrameError: A checksum is wrong and a second reading differs, so the bus is faulty.
        """
        memory = self.registers.read(i2c_device, 0, n_bytes)
        damaged = [name for name in names if not checksum_matches(CHECKSUMS[name], memory)]
        self.warnings = {name: text for name, text in self.warnings.items() if name not in names}
        if not damaged:
            return memory
        # The bus has no error check, so only two equal readings prove that the memory itself is wrong.
        repeated = self.registers.read(i2c_device, 0, n_bytes)
        if repeated != memory:
            raise self._target.error(
                FrameError,
                f"wrong checksum {' and '.join(damaged)}, and a second reading differs",
                hint="Check the bus: pull-ups, speed, connectors.",
            )
        refused = [name for name in damaged if name not in self._accepted]
        if refused:
            raise self._target.error(
                DeviceError,
                f"wrong checksum {' and '.join(refused)} in the module's memory",
                hint="The module is damaged or wrongly programmed. To use it anyway, set accept_wrong_checksums.",
            )
        for name in damaged:
            self.warnings[name] = f"{name} is wrong: {_COVERED[name]} may be wrong"
        return memory

    def guard(self, serial: str, part_number: str) -> None:
        """Raise ``IdentityError`` if the module is not the one with this serial and part number any longer."""
        first, last = FIELDS["part_number"], FIELDS["serial_number"]
        data = self.registers.read(A0H, first.byte, last.end - first.byte)
        actual = str(unscaled(first, data[: first.length])), str(unscaled(last, data[-last.length :]))
        if actual != (part_number, serial):
            raise self._target.error(
                IdentityError,
                f"expected {part_number} with serial {serial}, found {actual[0]} with serial {actual[1]}: the module "
                "was replaced; nothing was written",
                hint="Call identify() to use the new module, or close the driver.",
            )

    def monitors(self) -> bytes:
        """Return the monitors and status bits, A2h:96 to 111, read in one transfer if the connection can."""

        def read() -> bytes:
            return self.registers.read(A2H, MONITOR_START, _MONITOR_BYTES)

        is_by_byte = largest_read_of(self.registers) == 1
        return read_whole_numbers(read, MONITOR_START, self.registers.name) if is_by_byte else read()

    def status_bit(self, name: str, memory: bytes | None = None) -> bool:
        """Return a status bit, from ``memory`` if given, otherwise from the module."""
        if memory is None:
            return is_set(name, self.registers.read(A2H, _STATUS.byte, 1), _STATUS.byte)
        return is_set(name, memory, MONITOR_START)

    def asserted_flags(self) -> set[tuple[str, bool]]:
        """Return the flags that are set now, and whether each is an alarm or a warning."""
        start = FIELDS["alarm_flags"].byte
        memory = self.registers.read(A2H, start, FIELDS["warning_flags"].end - start)
        asserted = set()
        for field_name, is_alarm in _FLAG_FIELDS:
            field = FIELDS[field_name]
            word = int.from_bytes(memory[field.byte - start : field.end - start], "big")
            asserted |= {(name, is_alarm) for name, bit in FLAG_BITS.items() if word >> bit & 1}
        return asserted

    def select_tx_disable(self, off: bool) -> None:
        """Set or clear the soft TX_DISABLE bit.

        Raises ``VerifyError`` if the value read back differs.
        """
        with self.registers.transaction():
            before = self.registers.read(A2H, _STATUS.byte, 1)[0]
            # If already on, a write would only make the module busy. Off is always written.
            if not off and not before & _SOFT_TX_DISABLE.mask:
                return
            # Rate select and power level share this byte; read-only bits are written as 0.
            other_bits = before & _STATUS.write_mask & ~_SOFT_TX_DISABLE.mask
            self.registers.write(A2H, _STATUS.byte, bytes([other_bits | (_SOFT_TX_DISABLE.mask if off else 0)]))
            deadline = self._clock.now() + SOFT_CONTROL_S
            while self.status_bit("soft_tx_disable") is not off:
                if self._clock.now() >= deadline:
                    raise self._target.error(
                        VerifyError,
                        "the bit TX_DISABLE (A2h:110.6) did not change",
                        wrote=int(off),
                        read=int(not off),
                        hint="The module ignores this bit. Use its TX_DISABLE pin.",
                    )
                self._clock.sleep(_POLL_S)
