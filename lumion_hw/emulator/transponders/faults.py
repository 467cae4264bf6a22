"""Faults of one module, by name: in force at once or at a scripted time, until cleared or for a while."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from lumion_hw.emulator.transponders.core import Core
from lumion_hw.errors import ConfigError

FAULTS: Mapping[str, tuple[float, str]] = MappingProxyType(
    {
        "los": (1.0, "no light reaches the receivers"),
        "lol": (1.0, "the receivers lose lock"),
        "lof": (1.0, "the receivers lose framing"),
        "tx_failure": (1.0, "the transmitters fail"),
        "tec_runaway": (1.0, "module fault with cause 1"),
        "temp_high": (40.0, "the case is hotter by so many degrees Celsius"),
        "module_fault": (2.0, "module fault with this cause"),
        "stuck_power_up": (1.0, "power-up never ends"),
        "stuck_init": (1.0, "data path initialisation never ends"),
        "slow_init": (10.0, "data path initialisation takes so many times as long"),
        "stuck_config": (1.0, "ConfigStatus stays in progress"),
        "no_init_pending": (1.0, "DPInitPending is not raised when the application stays the same"),
        "reject_appsel0": (1.0, "AppSel 0 is refused"),
        "stuck_tuning": (1.0, "tuning never ends"),
        "wavelength_unlocked": (1.0, "the laser is not on its wavelength"),
        "nack": (1.0, "the next accesses, so many, are not acknowledged"),
        "torn_read": (1.0, "every second byte of a read is older than its neighbour"),
        "bad_checksum": (1.0, "the checksum of page 00h is wrong"),
        "counter_truncated": (1.0, "the sub-interval bit counter of page 34h has only 32 bits"),
        "freeze_never_done": (1.0, "a freeze of the statistics never completes"),
        "reserved_bits_set": (1.0, "reserved bits are not 0"),
        "drops_to_lowpwr_on_reset": (1.0, "a reset leaves a software low power request behind"),
        "unplug": (1.0, "the module is pulled out"),
    }
)
"""Faults by name: default strength, and what happens."""


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
            ConfigError: There is no such fault.
        """
        if name not in FAULTS:
            raise ConfigError(f"there is no fault {name}", device=self._core.name, hint=f"Faults: {', '.join(FAULTS)}.")
        self._advance()
        value = FAULTS[name][0] if strength is None else strength

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
