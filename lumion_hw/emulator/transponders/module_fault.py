"""Faults of emulated pluggable modules, and the panel that starts and ends them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lumion_hw.emulator.transponders.agenda import Agenda
from lumion_hw.errors import ConfigError, LimitError


@dataclass(frozen=True)
class ModuleFault:
    """Description of one fault of a pluggable module.

    Attributes:
        strength: Default strength.
        strength_meaning: Meaning of the strength; empty for a fault that is only present or absent.
    """

    strength: float
    effect: str
    strength_meaning: str = "1: present"
    low: float = 1.0
    high: float = 1.0
    unit: str = ""


class FaultPanel:
    """Starts and clears the faults of one module.

    Args:
        device: Name of the module, for errors.
        table: The faults that the module can have, by name.
        active: Strength of the active faults by name, which the module reads.
        agenda: Events of the module.
        changed: Called with the fault's name after the fault has started or ended.
        advance: Called before a fault starts or ends; brings the module to the present time.
    """

    def __init__(
        self,
        device: str,
        table: Mapping[str, ModuleFault],
        active: dict[str, float],
        agenda: Agenda,
        changed: Callable[[str], None],
        advance: Callable[[], None],
    ) -> None:
        self._device, self._table, self._active, self._agenda = device, table, active, agenda
        self._changed, self._advance = changed, advance

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the active faults."""
        self._advance()
        return tuple(self._active)

    def inject(
        self, name: str, strength: float | None = None, *, after_s: float = 0.0, lasts_s: float | None = None
    ) -> None:
        """Start a fault of the module.

        Args:
            name: Name in the table of the module.
            strength: Strength, in the unit of the fault; by default that of the table.
            after_s: Delay before the start, in the module's time.
            lasts_s: Duration of the fault; by default it stays until :meth:`clear`.

        Raises:
            ConfigError: There is no such fault, or the strength is not a number.
            LimitError: The strength is out of range.
        """
        if name not in self._table:
            raise ConfigError(f"unknown fault {name!r}", device=self._device, hint=f"Faults: {', '.join(self._table)}.")
        fault = self._table[name]
        value = fault.strength if strength is None else _validated(name, fault, strength)
        self._advance()

        # The fault starts at its own time, after everything that is due before.
        def start() -> None:
            self._active[name] = value
            self._changed(name)

        if after_s > 0:
            self._agenda.after(after_s, start, lasting=True)  # a reset of the module does not cancel it
        else:
            start()
        if lasts_s is not None:
            self._agenda.after(after_s + lasts_s, lambda: self.clear(name), lasting=True)

    def clear(self, name: str) -> None:
        """End a fault, if it is active."""
        self._advance()
        if self._active.pop(name, None) is not None:
            self._changed(name)

    def strength(self, name: str) -> float | None:
        """Return the strength of a fault; ``None`` if it is not active."""
        return self._active.get(name)

    def use_up(self, name: str) -> None:
        """Reduce the strength of a counting fault by 1, and end the fault at 0."""
        self._active[name] -= 1
        if self._active[name] < 1:
            del self._active[name]
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
