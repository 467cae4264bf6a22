"""Faults of one module by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from lumion_hw.emulator.transponders.cmis.core import Core
from lumion_hw.emulator.transponders.module_fault import ModuleFault
from lumion_hw.errors import ConfigError, LimitError

FAULTS: Mapping[str, ModuleFault] = MappingProxyType(
    {
        "los": ModuleFault(1.0, "no light reaches the receivers"),
        "lol": ModuleFault(1.0, "the receivers lose lock"),
        "lof": ModuleFault(1.0, "the receivers lose framing"),
        "tx_failure": ModuleFault(1.0, "the transmitters fail"),
        "tec_runaway": ModuleFault(1.0, "the module enters its fault state with cause 1 (TEC runaway)"),
        "temp_high": ModuleFault(
            40.0, "the case temperature rises by the strength, in degrees Celsius", "temperature rise", 0, 100, "degC"
        ),
        "module_fault": ModuleFault(
            2.0, "the module enters its fault state; the strength is the cause code", "cause in 00h:41", 0, 255
        ),
        "stuck_power_up": ModuleFault(1.0, "power-up never ends"),
        "stuck_init": ModuleFault(1.0, "data path initialisation never ends"),
        "slow_init": ModuleFault(10.0, "data path initialisation takes longer by this factor", "factor", 1, 1000),
        "stuck_config": ModuleFault(1.0, "ConfigStatus stays in progress"),
        "no_init_pending": ModuleFault(1.0, "DPInitPending is not raised when the application stays the same"),
        "reject_appsel0": ModuleFault(1.0, "AppSel 0 is refused"),
        "stuck_tuning": ModuleFault(1.0, "tuning never ends"),
        "wavelength_unlocked": ModuleFault(1.0, "the laser is not locked to its wavelength"),
        "nack": ModuleFault(
            1.0, "the module does not acknowledge the next accesses", "number of accesses", 1, 1_000_000
        ),
        "torn_read": ModuleFault(1.0, "every second byte of a read comes from an older sample than its neighbour"),
        "bad_checksum": ModuleFault(1.0, "the checksum of page 00h is wrong"),
        "counter_truncated": ModuleFault(1.0, "the sub-interval bit counter of page 34h has only 32 bits"),
        "freeze_never_done": ModuleFault(1.0, "a freeze of the statistics never completes"),
        "reserved_bits_set": ModuleFault(1.0, "reserved bits are not 0"),
        "drops_to_lowpwr_on_reset": ModuleFault(1.0, "a reset leaves the software low-power request set"),
        "unplug": ModuleFault(1.0, "the module is unplugged"),
    }
)
"""Faults by name."""


class FaultPanel:
    """Starts and clears the faults of one module.

    Args:
        changed: Called with the fault's name after the fault has started or ended.
        advance: Called before a fault starts or ends; brings the module to the present time.
    """

    def __init__(self, core: Core, changed: Callable[[str], None], advance: Callable[[], None]) -> None:
        self._core, self._changed, self._advance = core, changed, advance

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the active faults."""
        self._advance()
        return tuple(self._core.faults)

    def inject(
        self, name: str, strength: float | None = None, *, after_s: float = 0.0, lasts_s: float | None = None
    ) -> None:
        """Start a fault of the module.

        Args:
            name: Name in ``FAULTS``.
            strength: Strength, in the unit of the fault; by default that of ``FAULTS``.
            after_s: Delay before the start, in the module's time.
            lasts_s: Duration of the fault; by default it stays until :meth:`clear`.

        Raises:
            ConfigError: There is no such fault, or the strength is not a number.
            LimitError: The strength is out of range.
        """
        if name not in FAULTS:
            raise ConfigError(f"unknown fault {name!r}", device=self._core.name, hint=f"Faults: {', '.join(FAULTS)}.")
        fault = FAULTS[name]
        value = fault.strength if strength is None else _validated(name, fault, strength)
        self._advance()

        # The fault starts at its own time, after everything that is due before.
        def start() -> None:
            self._core.faults[name] = value
            self._changed(name)

        if after_s > 0:
            self._core.agenda.after(after_s, start, lasting=True)  # a reset of the module does not cancel it
        else:
            start()
        if lasts_s is not None:
            self._core.agenda.after(after_s + lasts_s, lambda: self.clear(name), lasting=True)

    def clear(self, name: str) -> None:
        """End a fault, if it is active."""
        self._advance()
        if self._core.faults.pop(name, None) is not None:
            self._changed(name)


def _validated(name: str, fault: ModuleFault, strength: Any) -> float:
    hint = f"Give {fault.low:g} to {fault.high:g} {fault.unit}".rstrip() + "."
    try:
        # float() would accept True and "1".
        value = math.nan if isinstance(strength, bool | str | bytes) else float(strength)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"fault {name}: strength {strength!r} is not a number", hint=hint)
    if not fault.low <= value <= fault.high:
        limit = fault.low if value < fault.low else fault.high
        raise LimitError(
            f"fault {name}: strength is out of range", requested=value, limit=limit, unit=fault.unit, hint=hint
        )
    return value
