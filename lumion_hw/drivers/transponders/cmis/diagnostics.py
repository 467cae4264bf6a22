"""Loopbacks, test patterns and their results, pages 13h and 14h, as far as the module offers them."""

from __future__ import annotations

from collections.abc import Collection

from lumion_hw.drivers.transponders.cmis.advertised import LOOPBACKS
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.data_paths import ALL_LANES
from lumion_hw.errors import ConfigError
from lumion_hw.interfaces import Quality, Reading
from lumion_hw.standards.cmis import FIELDS
from lumion_hw.standards.cmis.codes import DiagnosticsSelector, Pattern

RESULTS_S = 0.2
"""Time until page 14h shows what its selector was set to (facts, transponders 2.3)."""
_SELECTORS = {
    "host_ber": ("ber_results_supported", DiagnosticsSelector.BER),
    "media_ber": ("ber_results_supported", DiagnosticsSelector.BER),
    "host_snr": ("host_snr_supported", DiagnosticsSelector.SNR),
    "media_snr": ("media_snr_supported", DiagnosticsSelector.SNR),
}


class Diagnostics:
    """Diagnostics of an open module. What it offers is read once.

    Attributes:
        loopbacks: Names of the loopbacks it has.
    """

    def __init__(self, module: ModuleContext) -> None:
        self._module = module
        self._offers = bool(module.advertised.supported("diagnostics_selector"))
        memory = module.memory
        supported = {}
        if self._offers:
            with memory.pages.transaction():
                supported = {name: bool(memory.value(f"{name}_loopback_supported")) for name in LOOPBACKS}
                self._results = {name: bool(memory.value(bit)) for name, (bit, _) in _SELECTORS.items()}
        else:
            self._results = {}
        self.loopbacks = tuple(name for name in LOOPBACKS if supported.get(name))

    def set_loopback(self, kind: str, on: bool, lanes: Collection[int] = ALL_LANES) -> None:
        """Close or open a loopback.

        Args:
            kind: One of ``LOOPBACKS``.
            on: Close it.
            lanes: Lanes; all by default. A module without loopbacks of single lanes takes only all of them.

        Raises:
            NotSupportedError: The module does not offer it.
        """
        module = self._module
        module.needs(kind in self.loopbacks, f"a {kind.replace('_', ' ')} loopback")
        side = kind.partition("_")[0]
        per_lane = set(lanes) == set(ALL_LANES) or bool(module.memory.value(f"per_lane_{side}_loopback"))
        module.needs(per_lane, f"a {side} loopback of single lanes")
        module.guard()
        module.memory.set_lanes(f"{kind}_loopback", lanes, on)

    def patterns(self, end: str) -> tuple[Pattern, ...]:
        """Return the patterns of ``host_generator``, ``media_generator``, ``host_checker`` or ``media_checker``."""
        module = self._module
        module.needs(self._offers, "test patterns")
        if f"{end}_patterns" not in FIELDS:
            raise module.error(ConfigError, f"no such end {end!r}", "Ends are host or media _generator or _checker.")
        bits = module.memory.number(f"{end}_patterns")
        return tuple(pattern for pattern in Pattern if bits >> pattern & 1)

    def start_pattern(self, end: str, pattern: Pattern, lanes: Collection[int] = ALL_LANES) -> None:
        """Let a generator or checker work. Raises ``NotSupportedError`` for a pattern it does not have."""
        module = self._module
        module.needs(pattern in self.patterns(end), f"{pattern.name} at the {end.replace('_', ' ')}")
        module.guard()
        with module.memory.pages.transaction():
            for lane in lanes:
                module.memory.write(f"{end}_pattern", int(pattern), lane)
            module.memory.set_lanes(f"{end}_enable", lanes, True)

    def stop_pattern(self, end: str, lanes: Collection[int] = ALL_LANES) -> None:
        """Let a generator or checker rest."""
        self.patterns(end)
        self._module.guard()
        self._module.memory.set_lanes(f"{end}_enable", lanes, False)

    def checks_received_bits(self, lane: int) -> bool:
        """Tell whether the media checker of a lane runs, before the FEC: its errors are those that the FEC corrects."""
        checks = bool(self._results.get("media_ber")) and self._checks("media", lane)
        return checks and not self._module.memory.value("media_checker_fec_side", lane)

    def _checks(self, side: str, lane: int) -> bool:
        return bool(self._module.memory.value(f"{side}_checker_enable", lane))

    def result(self, name: str, lane: int) -> Reading | None:
        """Return a result of page 14h, such as ``media_ber``; ``None`` if the module does not offer it.

        Bit error ratios are those of the pattern checkers (CMIS 5.x, page 14h): without one that runs, what stands
        there is no measurement and comes as stale.
        """
        if not self._results.get(name):
            return None
        module, selector = self._module, _SELECTORS[name][1]
        memory = module.memory
        side, _, quantity = name.partition("_")
        if quantity == "ber" and not self._checks(side, lane):
            return Reading(None, FIELDS[name].unit, Quality.STALE, f"14h:{FIELDS[name].span(lane).start}")
        with memory.pages.transaction():
            if memory.number("diagnostics_selector") != selector:
                memory.write("diagnostics_selector", int(selector))
                module.clock.sleep(RESULTS_S)
            value = memory.value(name, lane)
        number = float(value) if isinstance(value, (int, float)) else 0.0
        field = FIELDS[name]
        return Reading(number, field.unit, Quality.OK, f"14h:{field.span(lane).start}")
