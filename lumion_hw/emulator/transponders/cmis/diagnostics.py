"""Test pattern checkers, and their results on page 14h (CMIS 8.12, 8.13).

The host selects the type of results, which appear after a delay. Gated measurements are not supported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lumion_hw.emulator.transponders.cmis.core import Core
from lumion_hw.emulator.transponders.cmis.ends import Receivers
from lumion_hw.emulator.transponders.cmis.host_port import Written
from lumion_hw.emulator.transponders.cmis.measurements import HOST_BER, HOST_SNR_DB
from lumion_hw.emulator.transponders.cmis.profiles import LineFormat
from lumion_hw.emulator.transponders.cmis.states import ACTIVE_STATES, DataPaths
from lumion_hw.standards.cmis.codes import DiagnosticsSelector
from lumion_hw.standards.cmis.fields import HALF_BYTES, LANES
from lumion_hw.standards.registers import f16_encode

RESULTS_PAGE = 0x14
"""Page of the selector and the results."""
SELECTOR_BYTE = 128
"""Byte of the selector on page 14h."""
_RESULTS_OFFSET = 192 - HALF_BYTES
_COUNTERS = {
    DiagnosticsSelector.HOST_COUNTERS_1_4: ("host", 0),
    DiagnosticsSelector.HOST_COUNTERS_5_8: ("host", 4),
    DiagnosticsSelector.MEDIA_COUNTERS_1_4: ("media", 0),
    DiagnosticsSelector.MEDIA_COUNTERS_5_8: ("media", 4),
}


@dataclass
class _Counter:
    """Bit and error counts of one pattern checker."""

    bits: float = 0.0
    errors: float = 0.0
    has_lost_sync: bool = False


class EmulatedDiagnostics:
    """Pattern checkers of one module, and the diagnostics results on page 14h."""

    def __init__(self, core: Core, paths: DataPaths, receivers: Receivers) -> None:
        self._core, self._paths, self._receivers = core, paths, receivers
        self.host_pattern: int | None = None
        self.restart()

    def restart(self) -> None:
        """Reset the counters and the selected type of results."""
        self._selector = 0
        self._was_enabled = False
        self._counters = {(side, lane): _Counter() for side in ("host", "media") for lane in range(1, LANES + 1)}

    def select(self, written: Written) -> None:
        """Accept a new selector of results."""
        selector = self._core.memory.count("diagnostics_selector")
        # Until then the page shows the previous results, so a host must wait after it changes the selector.
        self._core.agenda.after(self._core.timing.selector_s, lambda: self._show(selector))

    def _show(self, selector: int) -> None:
        self._selector = selector

    def sample(self, powered: bool) -> None:
        """Count bits and errors of the running checkers; ``powered`` is true in the state ModuleReady."""
        memory = self._core.memory
        # One more pass after the last checker is switched off, so that its flags end.
        enabled = memory.lanes("host_checker_enable") | memory.lanes("media_checker_enable")
        if not enabled and not self._was_enabled:
            return
        self._was_enabled = bool(enabled)
        reset = memory.count("reset_error_counters")
        for (side, lane), counter in self._counters.items():
            running = powered and self._is_enabled(side, lane) and self._has_lane(side, lane)
            locked = running and self._is_locked(side, lane)
            self._core.flags.hold(f"checker_lol_{side}_flag", running and not locked, lane)
            if reset:
                self._counters[side, lane] = _Counter()
            elif running:
                counter.has_lost_sync = counter.has_lost_sync or not locked
                if locked:
                    bits = self._bit_rate(side, lane) * self._core.timing.sample_s
                    counter.bits += bits
                    counter.errors += bits * self._ber(side, lane)

    def _is_enabled(self, side: str, lane: int) -> bool:
        return bool(self._core.memory.lanes(f"{side}_checker_enable") >> (lane - 1) & 1)

    def _has_lane(self, side: str, lane: int) -> bool:
        return side == "host" or lane in self._receivers.lanes

    def _is_locked(self, side: str, lane: int) -> bool:
        pattern = self._core.memory.count(f"{side}_checker_pattern", lane)
        if side == "host":
            return self.host_pattern == pattern
        state = self._receivers.lanes.get(lane)
        return state is not None and state.is_locked and state.light.test_pattern == pattern

    def _line_format(self, lane: int) -> LineFormat | None:
        media_interface = self._paths.media_interface(lane)
        return None if media_interface is None else self._core.profile.receiver.formats[media_interface]

    def _bit_rate(self, side: str, lane: int) -> float:
        line = self._line_format(lane)
        return self._core.profile.host_bit_rate if side == "host" or line is None else line.bit_rate

    def _ber(self, side: str, lane: int) -> float:
        return HOST_BER if side == "host" else self._receivers.lanes[lane].reception.ber

    # -- results ----------------------------------------------------------------------------------------------------

    def write_results(self) -> None:
        """Write the selected results to page 14h."""
        half = self._core.memory.half(RESULTS_PAGE)
        half[_RESULTS_OFFSET:] = bytes(HALF_BYTES - _RESULTS_OFFSET)
        if self._selector == DiagnosticsSelector.BER:
            self._write_ber()
        elif self._selector == DiagnosticsSelector.SNR:
            self._write_snr()
        elif self._selector in _COUNTERS:
            self._write_counters(*_COUNTERS[DiagnosticsSelector(self._selector)])

    def _write_ber(self) -> None:
        for side, lane in self._counters:
            if self._is_enabled(side, lane) and self._is_locked(side, lane):
                code = f16_encode(self._ber(side, lane))
                field_offset = _RESULTS_OFFSET + (0 if side == "host" else 16) + 2 * (lane - 1)
                self._core.memory.half(RESULTS_PAGE)[field_offset : field_offset + 2] = code.to_bytes(2, "big")

    def _write_snr(self) -> None:
        memory = self._core.memory
        for lane in self._active_host_lanes():
            memory.put_limited("host_snr", HOST_SNR_DB, lane)
        for lane, state in self._receivers.lanes.items():
            if state.is_locked:
                memory.put_limited("media_snr", state.reception.esnr_db, lane)

    def _active_host_lanes(self) -> Iterator[int]:
        for path in self._paths.paths:
            if path.state in ACTIVE_STATES:
                yield from range(path.first_lane, path.first_lane + path.application.host_lanes)

    def _write_counters(self, side: str, first: int) -> None:
        for index in range(1, 5):
            counter = self._counters[side, first + index]
            # Bit 0 of the bit count says that the pattern was lost in the interval.
            bits = int(counter.bits) & ~1 | counter.has_lost_sync
            self._core.memory.put_limited("error_count", int(counter.errors), index)
            self._core.memory.put_limited("bit_count", bits, index)
