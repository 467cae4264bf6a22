"""Faults of one module, by name: in force at once or at a scripted time, until cleared or for a while."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from lumion_hw.emulator.transponders.cmis.core import Core
from lumion_hw.errors import ConfigError, LimitError


@dataclass(frozen=True)
class ModuleFault:
    """One fault.

    Attributes:
        strength: How much, if nothing is said.
        effect: What happens.
        counts: What the strength counts; most are there or not.
        low: Least strength.
        high: Greatest strength.
        unit: Unit of the strength.
    """

    strength: float
    effect: str
    counts: str = "1: there"
    low: float = 1.0
    high: float = 1.0
    unit: str = ""


FAULTS: Mapping[str, ModuleFault] = MappingProxyType(
    {
        "los": ModuleFault(1.0, "no light reaches the receivers"),
        "lol": ModuleFault(1.0, "the receivers lose lock"),
        "lof": ModuleFault(1.0, "the receivers lose framing"),
        "tx_failure": ModuleFault(1.0, "the transmitters fail"),
        "tec_runaway": ModuleFault(1.0, "module fault with cause 1"),
        "temp_high": ModuleFault(
            40.0, "the case is hotter by so many degrees Celsius", "how much hotter", 0, 100, "degC"
        ),
        "module_fault": ModuleFault(2.0, "module fault with this cause", "cause of 00h:41", 0, 255),
        "stuck_power_up": ModuleFault(1.0, "power-up never ends"),
        "stuck_init": ModuleFault(1.0, "data path initialisation never ends"),
        "slow_init": ModuleFault(10.0, "data path initialisation takes so many times as long", "factor", 1, 1000),
        "stuck_config": ModuleFault(1.0, "ConfigStatus stays in progress"),
        "no_init_pending": ModuleFault(1.0, "DPInitPending is not raised when the application stays the same"),
        "reject_appsel0": ModuleFault(1.0, "AppSel 0 is refused"),
        "stuck_tuning": ModuleFault(1.0, "tuning never ends"),
        "wavelength_unlocked": ModuleFault(1.0, "the laser is not on its wavelength"),
        "nack": ModuleFault(1.0, "the next accesses, so many, are not acknowledged", "how many accesses", 1, 1_000_000),
        "torn_read": ModuleFault(1.0, "every second byte of a read is older than its neighbour"),
        "bad_checksum": ModuleFault(1.0, "the checksum of page 00h is wrong"),
        "counter_truncated": ModuleFault(1.0, "the sub-interval bit counter of page 34h has only 32 bits"),
        "freeze_never_done": ModuleFault(1.0, "a freeze of the statistics never completes"),
        "reserved_bits_set": ModuleFault(1.0, "reserved bits are not 0"),
        "drops_to_lowpwr_on_reset": ModuleFault(1.0, "a reset leaves a software low power request behind"),
        "unplug": ModuleFault(1.0, "the module is pulled out"),
    }
)
"""Faults by name."""


class FaultPanel:
    """Switches faults of one module on and off.

    Args:
        core: The module.
        changed: Called with the name after a fault came or went.
        advance: Brings the module to the present, before a fault comes or goes by hand.
    """

    def __init__(self, core: Core, changed: Callable[[str], None], advance: Callable[[], None]) -> None:
        self._core, self._changed, self._advance = core, changed, advance

    @property
    def active(self) -> tuple[str, ...]:
        """Faults in force now."""
        self._advance()
        return tuple(self._core.faults)

    def inject(
        self, name: str, strength: float | None = None, *, after_s: float = 0.0, lasts_s: float | None = None
    ) -> None:
        """Put a fault in force.

        Args:
            name: One of ``FAULTS``.
            strength: How much, in what the fault counts; by default that of ``FAULTS``.
            after_s: Wait so long on the module's time.
            lasts_s: Clear it so long after it came; by default it stays.

        Raises:
            ConfigError: There is no such fault, or the strength is no number.
            LimitError: The strength is out of range.
        """
        if name not in FAULTS:
            raise ConfigError(f"there is no fault {name}", device=self._core.name, hint=f"Faults: {', '.join(FAULTS)}.")
        fault = FAULTS[name]
        value = fault.strength if strength is None else _checked(name, fault, strength)
        self._advance()

        # At its own time, and not before what was due until then.
        def come() -> None:
            self._core.faults[name] = value
            self._changed(name)

        if after_s > 0:
            self._core.agenda.after(after_s, come, lasting=True)  # a reset of the module does not call it off
        else:
            come()
        if lasts_s is not None:
            self._core.agenda.after(after_s + lasts_s, lambda: self.clear(name), lasting=True)

    def clear(self, name: str) -> None:
        """End a fault; harmless when it is not in force."""
        self._advance()
        if self._core.faults.pop(name, None) is not None:
            self._changed(name)


def _checked(name: str, fault: ModuleFault, strength: Any) -> float:
    """Return a strength that the fault can have. Raises ``ConfigError`` for what is no number, ``LimitError``."""
    hint = f"Give {fault.low:g} to {fault.high:g} {fault.unit}".rstrip() + "."
    try:
        # float() would take True and "1".
        value = math.nan if isinstance(strength, bool | str | bytes) else float(strength)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"fault {name}: strength is {strength!r}", hint=hint)
    if not fault.low <= value <= fault.high:
        limit = fault.low if value < fault.low else fault.high
        raise LimitError(
            f"fault {name}: strength is out of range", requested=value, limit=limit, unit=fault.unit, hint=hint
        )
    return value
