"""Faults of one emulated QSFP module by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from lumion_hw.emulator.transponders.agenda import Agenda
from lumion_hw.emulator.transponders.module_fault import ModuleFault
from lumion_hw.errors import ConfigError, LimitError

FAULTS: Mapping[str, ModuleFault] = MappingProxyType(
    {
        "los": ModuleFault(1.0, "no light reaches the receivers"),
        "lol": ModuleFault(1.0, "the receivers lose lock"),
        "tx_failure": ModuleFault(1.0, "all lasers fail"),
        "temp_high": ModuleFault(
            40.0, "the case temperature rises by the strength, in degrees Celsius", "temperature rise", 0, 100, "degC"
        ),
        "supply_low": ModuleFault(0.4, "the supply voltage drops by the strength, in V", "voltage drop", 0, 3, "V"),
        "stuck_init": ModuleFault(1.0, "initialisation never ends: monitors stay invalid, and the module stays dark"),
        "slow_init": ModuleFault(10.0, "initialisation takes longer by this factor", "factor", 1, 1000),
        "stuck_low_power": ModuleFault(1.0, "the module does not leave low-power mode"),
        "nack": ModuleFault(
            1.0, "the module does not acknowledge the next accesses", "number of accesses", 1, 1_000_000
        ),
        "torn_read": ModuleFault(1.0, "the second byte of every monitor comes from an older sample than the first"),
        "bad_checksum": ModuleFault(1.0, "the checksum CC_BASE of page 00h is wrong"),
        "reserved_bits_set": ModuleFault(1.0, "reserved bits of the status and control bytes are not 0"),
        "unplug": ModuleFault(1.0, "the module is unplugged"),
    }
)
"""Faults by name."""


class QsfpFaultPanel:
    """Starts and clears the faults of one module.

    Args:
        device: Name of the module, for errors.
        changed: Called with the fault's name after the fault has started or ended.
        advance: Called before a fault starts or ends; brings the module to the present time.
    """

    def __init__(
        self, device: str, agenda: Agenda, changed: Callable[[str], None], advance: Callable[[], None]
    ) -> None:
        self._device, self._agenda, self._changed, self._advance = device, agenda, changed, advance
        self._active: dict[str, float] = {}

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the active faults."""
        self._advance()
        return tuple(self._active)

    def strength(self, name: str) -> float | None:
        """Return the strength of a fault; ``None`` if it is not active."""
        return self._active.get(name)

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
            raise ConfigError(f"unknown fault {name!r}", device=self._device, hint=f"Faults: {', '.join(FAULTS)}.")
        value = FAULTS[name].strength if strength is None else _validated(name, strength)
        self._advance()
        if after_s > 0:
            self._agenda.after(after_s, lambda: self._start(name, value), lasting=True)  # survives a reset
        else:
            self._start(name, value)
        if lasts_s is not None:
            self._agenda.after(after_s + lasts_s, lambda: self._end(name), lasting=True)

    def clear(self, name: str) -> None:
        """End a fault, if it is active."""
        self._advance()
        self._end(name)

    def use_up(self, name: str) -> None:
        """Reduce the strength of a counting fault by 1, and end the fault at 0."""
        self._active[name] -= 1
        if self._active[name] < 1:
            self._end(name)

    def _start(self, name: str, value: float) -> None:
        self._active[name] = value
        self._changed(name)

    def _end(self, name: str) -> None:
        if self._active.pop(name, None) is not None:
            self._changed(name)


def _validated(name: str, strength: object) -> float:
    fault = FAULTS[name]
    hint = f"Give {fault.low:g} to {fault.high:g} {fault.unit}".rstrip() + "."
    # bool is a number in Python; a strength of True is a mistake.
    if isinstance(strength, bool) or not isinstance(strength, int | float) or not math.isfinite(strength):
        raise ConfigError(f"fault {name}: strength {strength!r} is not a number", hint=hint)
    if not fault.low <= strength <= fault.high:
        limit = fault.low if strength < fault.low else fault.high
        raise LimitError(
            f"fault {name}: strength is out of range",
            requested=float(strength),
            limit=limit,
            unit=fault.unit,
            hint=hint,
        )
    return float(strength)
