"""The memory of an SFP module through its registers: checked reads, coherent reads, and the one control bit."""

from __future__ import annotations

from collections.abc import Collection

from lumion_hw.clock import Clock
from lumion_hw.drivers.transponders.sfp_identity import is_set
from lumion_hw.errors import DeviceAddress, DeviceError, FrameError, LinkError, LinkLost, VerifyError
from lumion_hw.sessions.module.registers import RegisterAccess
from lumion_hw.standards.registers import checksum_matches
from lumion_hw.standards.sff8472.registers import A0H, A2H, BITS, CHECKSUMS, FIELDS, FLAG_BITS

MONITOR_START = FIELDS["temperature"].byte
SOFT_CONTROL_S = 0.1
"""Time until a soft control bit has taken effect, and status bits follow (SFF-8431 Table 8)."""
_MONITOR_BYTES = 16  # monitors and status in one transfer
_STATUS = FIELDS["status_control"]
_SOFT_TX_DISABLE = BITS["soft_tx_disable"]
_FLAG_FIELDS = (("alarm_flags", True), ("warning_flags", False))
_POLL_S = 0.02
_COVERED = {
    "CC_BASE": "what the module says of its kind, maker and wavelength",
    "CC_EXT": "its serial number, and what it says of its abilities and calibration",
    "CC_DMI": "thresholds and calibration constants",
}
TOLERATED = ("CC_BASE",)
"""Check sums that are only warned of: modules have them wrong, and nothing is scaled by what they cover."""


class SfpMemory:
    """What the driver reads from and writes to a module.

    Args:
        registers: The way to the module's registers.
        clock: Measures the waits.
        device: Device name, for messages.
        accepted: Check sums that may be wrong.

    Attributes:
        warnings: What was accepted, in words, by check sum.
    """

    def __init__(
        self, registers: RegisterAccess, clock: Clock, device: str, accepted: Collection[str] = TOLERATED
    ) -> None:
        self.registers = registers
        self.warnings: dict[str, str] = {}
        self._accepted = accepted
        self._clock = clock
        self._target = DeviceAddress(device, registers.name)

    def await_bus(self, within_s: float) -> None:
        """Wait until the identity memory can be read. Raises the last ``LinkError`` after ``within_s``."""
        deadline = self._clock.now() + within_s
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

    def checked(self, i2c_device: int, n_bytes: int, names: tuple[str, ...]) -> bytes:
        """Return the first ``n_bytes`` of a device, whose check sums ``names`` are right or accepted.

        Raises:
            DeviceError: A check sum in the module's memory is wrong, and not accepted.
            FrameError: A check sum is wrong, and reading again gives other bytes: the bus is at fault.
        """
        memory = self.registers.read(i2c_device, 0, n_bytes)
        wrong = [name for name in names if not checksum_matches(CHECKSUMS[name], memory)]
        self.warnings = {name: words for name, words in self.warnings.items() if name not in names}
        if not wrong:
            return memory
        # Without a check on the bus a wrong sum may be a wrong read; only the same bytes twice are the module's own.
        again = self.registers.read(i2c_device, 0, n_bytes)
        if again != memory:
            raise self._target.error(
                FrameError,
                f"{' and '.join(wrong)} wrong, and a second read gives other bytes",
                hint="Check the bus: pull-ups, speed, connectors.",
            )
        refused = [name for name in wrong if name not in self._accepted]
        if refused:
            raise self._target.error(
                DeviceError,
                f"{' and '.join(refused)} wrong in the module's memory",
                hint="The module is damaged or badly programmed; accept_wrong_checksums reads it all the same.",
            )
        for name in wrong:
            self.warnings[name] = f"{name} does not fit: {_COVERED[name]} may be wrong"
        return memory

    def monitors(self) -> bytes:
        """Return A2h:96 to 111, monitors and status bits in one coherent transfer."""
        return self.registers.read(A2H, MONITOR_START, _MONITOR_BYTES)

    def status_bit(self, name: str, memory: bytes | None = None) -> bool:
        """Return a status bit, from the bytes of :meth:`monitors` or from the module."""
        if memory is None:
            return is_set(name, self.registers.read(A2H, _STATUS.byte, 1), _STATUS.byte)
        return is_set(name, memory, MONITOR_START)

    def asserted_flags(self) -> set[tuple[str, bool]]:
        """Return the flags asserted now, as pairs of name and whether it is an alarm."""
        start = FIELDS["alarm_flags"].byte
        memory = self.registers.read(A2H, start, FIELDS["warning_flags"].end - start)
        asserted = set()
        for field_name, is_alarm in _FLAG_FIELDS:
            field = FIELDS[field_name]
            word = int.from_bytes(memory[field.byte - start : field.end - start], "big")
            asserted |= {(name, is_alarm) for name, bit in FLAG_BITS.items() if word >> bit & 1}
        return asserted

    def select_tx_disable(self, off: bool) -> None:
        """Set or clear the soft TX_DISABLE bit and read it back; the other writable bits stay.

        Raises:
            VerifyError: The module keeps another value.
        """
        with self.registers.transaction():
            before = self.registers.read(A2H, _STATUS.byte, 1)[0]
            # On already: a write would only make the module busy, for 50 ms on the emulated one. Off is always written.
            if not off and not before & _SOFT_TX_DISABLE.mask:
                return
            # Rate select and power level share the byte; bits that only the module writes are sent as 0.
            kept = before & _STATUS.write_mask & ~_SOFT_TX_DISABLE.mask
            self.registers.write(A2H, _STATUS.byte, bytes([kept | (_SOFT_TX_DISABLE.mask if off else 0)]))
            deadline = self._clock.now() + SOFT_CONTROL_S
            while self.status_bit("soft_tx_disable") is not off:
                if self._clock.now() >= deadline:
                    raise self._target.error(
                        VerifyError,
                        "soft TX_DISABLE (A2h:110.6)",
                        wrote=int(off),
                        read=int(not off),
                        hint="The module ignores the bit; switch its TX_DISABLE pin instead.",
                    )
                self._clock.sleep(_POLL_S)
