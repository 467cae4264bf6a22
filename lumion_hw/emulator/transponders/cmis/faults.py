"""Faults of one module, by name: in force at once or at a scripted time, until cleared or for a while."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lumion_hw.emulator.transponders.cmis.core import Core
from lumion_hw.emulator.transponders.cmis.module_faults import FAULTS, ModuleFault
from lumion_hw.errors import ConfigError, LimitError


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

        def come() -> None:
            self._core.faults[name] = value
            self._changed(name)

        if after_s > 0:
            self._core.agenda.after(after_s, come, lasting=True)
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
        value = math.nan if isinstance(strength, bool | str | bytes) else float(strength)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"fault {name}: strength is {strength!r}", hint=hint)
    if not fault.low <= value <= fault.high:
        limit = fault.low if value < fault.low else fault.high
        raise LimitError(
            f"fault {name}: strength is out of range", asked=value, limit=limit, unit=fault.unit, hint=hint
        )
    return value
