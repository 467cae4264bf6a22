"""Squelch of a QSFP module: SFF-8636 page 03h, byte 240 (squelch disable) and bits 241.7-4 (Rx output disable)."""

from __future__ import annotations

from collections.abc import Iterable

from lumion_hw.drivers.transponders.qsfp_identity import QsfpCapabilities
from lumion_hw.drivers.transponders.qsfp_memory import QsfpMemory
from lumion_hw.drivers.transponders.squelch import Side, SquelchMode, squelch_mode
from lumion_hw.errors import NotSupportedError
from lumion_hw.standards.sff8636.registers import LANES

_ANNOUNCED: dict[Side, str] = {"tx": "bit 194.1", "rx": "bits 194.3 and 194.2"}


class QsfpSquelch:
    """Reads and sets the squelch modes of a module.

    Args:
        memory: Memory of the module.
        capabilities: Capabilities that the module announces.
    """

    def __init__(self, memory: QsfpMemory, capabilities: QsfpCapabilities) -> None:
        self._memory = memory
        self._capabilities = capabilities

    def check(self, side: Side, mode: SquelchMode | None = None) -> None:
        """Raise ``NotSupportedError`` if the module cannot set this mode, or any mode if it is ``None``."""
        name = side.capitalize()
        if self._capabilities.flat or not (self._can_disable(side) or self._can_force(side)):
            raise self._unsupported(f"control of the {name} squelch", _ANNOUNCED[side])
        if mode == "off" and not self._can_disable(side):
            raise self._unsupported(f"disabling the {name} squelch", _ANNOUNCED[side])
        if mode == "forced" and not self._can_force(side):
            reason = "SFF-8636 has only Tx disable" if side == "tx" else "bit 194.2"
            raise self._unsupported(f"forcing the {name} squelch", reason)

    def read(self, side: Side) -> dict[int, SquelchMode]:
        """Return the mode of each lane. Raises ``NotSupportedError`` if the module announces no control."""
        self.check(side)
        off = (0,) * len(LANES)
        disabled = self._memory.lanes(f"{side}_squelch_disable") if self._can_disable(side) else off
        forced = self._memory.lanes("rx_output_disable") if self._can_force(side) else off
        bits = zip(LANES, disabled, forced, strict=True)
        return {lane: squelch_mode(is_disabled=bool(first), is_forced=bool(second)) for lane, first, second in bits}

    def write(self, side: Side, mode: SquelchMode, lanes: Iterable[int]) -> None:
        """Set the mode of lanes. Raises ``VerifyError`` if the module ignores the register."""
        chosen = tuple(lanes)
        if self._can_disable(side) and mode != "forced":
            self._memory.write_lanes(f"{side}_squelch_disable", chosen, int(mode == "off"))
        if self._can_force(side):
            self._memory.write_lanes("rx_output_disable", chosen, int(mode == "forced"))

    def _can_disable(self, side: Side) -> bool:
        return self._capabilities.has(f"{side}_squelch_control")

    def _can_force(self, side: Side) -> bool:
        return side == "rx" and self._capabilities.rx_output_control

    def _unsupported(self, label: str, reason: str) -> NotSupportedError:
        return self._memory.error(
            NotSupportedError,
            f"{label} is not supported: the module does not announce it ({reason})",
            hint="See the options of this module: lumion transponder decode.",
        )
