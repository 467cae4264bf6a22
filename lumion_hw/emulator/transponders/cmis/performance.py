"""Link performance of a module: current values, and statistics over the interval since the last release of a freeze.

All pages that show a quantity, 24h and up, 34h and 35h, take it from here, so that they agree.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from lumion_hw.emulator.transponders.cmis.core import Core
from lumion_hw.emulator.transponders.cmis.data_paths import DataPaths
from lumion_hw.emulator.transponders.cmis.ends import Receivers, ReceiverState, Transmitters
from lumion_hw.emulator.transponders.cmis.monitors import ModuleMonitors
from lumion_hw.emulator.transponders.cmis.profile import LineFormat
from lumion_hw.emulator.transponders.cmis.reception import bit_error_ratio, frame_error_ratio
from lumion_hw.quantities import ratio_from_db
from lumion_hw.standards.cmis.codec import MIN_POWER_DBM, q_db
from lumion_hw.standards.cmis.coherent_pages import LINK_QUANTITIES

_MAX_Q_BER = 1e-30
_HOST_BER = 1e-10
_POWERS = ("tx_power", "rx_total_power", "rx_signal_power")
_OBSERVED = {item.name: item.observable for item in LINK_QUANTITIES}


@dataclass
class Triple:
    """Average, minimum and maximum of one quantity."""

    count: int = 0
    total: float = 0.0
    low: float = 0.0
    high: float = 0.0

    def add(self, value: float) -> None:
        """Include one value."""
        self.low = value if not self.count else min(self.low, value)
        self.high = value if not self.count else max(self.high, value)
        self.count += 1
        self.total += value

    @property
    def average(self) -> float:
        """Mean; 0 without values."""
        return self.total / self.count if self.count else 0.0


@dataclass
class FecCounters:
    """Error correction of one lane over an interval; a sub-interval without lock throughout does not count.

    Attributes:
        bits: Received bits.
        bits_sub: Bits in a sub-interval.
        corrected: Corrected bits, in total and at least and at most in a sub-interval.
        frames: Received frames.
        frames_sub: Frames in a sub-interval.
        uncorrectable: Uncorrectable frames, the same way.
    """

    bits: int = 0
    bits_sub: int = 0
    corrected: Triple = field(default_factory=Triple)
    frames: int = 0
    frames_sub: int = 0
    uncorrectable: Triple = field(default_factory=Triple)

    def add(self, bits: int, corrected: int, frames: int, uncorrectable: int) -> None:
        """Include one sub-interval."""
        self.bits += bits
        self.bits_sub = bits
        self.corrected.add(corrected)
        self.frames += frames
        self.frames_sub = frames
        self.uncorrectable.add(uncorrectable)


@dataclass
class Interval:
    """Statistics of one interval: link quantities of lane 1, counters of each lane, counters of the host side."""

    link: dict[str, Triple] = field(default_factory=lambda: {item.name: Triple() for item in LINK_QUANTITIES})
    media: dict[int, FecCounters] = field(default_factory=dict)
    host: FecCounters = field(default_factory=FecCounters)


@dataclass
class _SubInterval:
    """The sub-interval that is running: sums over its samples."""

    samples: int = 0
    locked: dict[int, int] = field(default_factory=dict)
    ber: dict[int, float] = field(default_factory=dict)
    frame_errors: dict[int, float] = field(default_factory=dict)
    host: int = 0


class EmulatedPerformance:
    """Measures the link with every sample of the receivers.

    Args:
        core: The module.
        paths: The data paths.
        transmitters: What it sends.
        receivers: What it gets.
        monitors: What it measures about itself.
    """

    def __init__(
        self, core: Core, paths: DataPaths, transmitters: Transmitters, receivers: Receivers, monitors: ModuleMonitors
    ) -> None:
        self._core, self._paths = core, paths
        self._transmitters, self._receivers, self._monitors = transmitters, receivers, monitors
        self._threshold_snr_db = {
            code: _snr_at(line.fec_limit_ber, line) for code, line in core.profile.receiver.formats.items()
        }
        self.restart()

    def restart(self) -> None:
        """Begin a new interval and forget the current values."""
        self.current: dict[int, dict[str, float]] = {}
        self.frozen: Interval | None = None
        self._start_interval()

    def _start_interval(self) -> None:
        self._running = Interval(media={lane: FecCounters() for lane in self._receivers.lanes})
        self._sub = _SubInterval()

    @property
    def interval(self) -> Interval:
        """The statistics that the registers show: frozen, or of the running interval."""
        return self.frozen or self._running

    def freeze(self) -> None:
        """Hold the statistics that the registers show."""
        self.frozen = copy.deepcopy(self._running)

    def release(self) -> None:
        """Show running statistics again: those of a new interval."""
        self.frozen = None
        self._start_interval()

    def works(self, lane: int) -> bool:
        """Tell whether the receive side of a lane is initialised."""
        return self._receivers.works(lane)

    # -- sampling ---------------------------------------------------------------------------------------------------

    def sample(self, powered: bool) -> None:
        """Measure the current values and take them into the statistics; ``powered`` is ModuleReady.

        Without power there is nothing to count: the interval of the signal processor ends, and the next one starts
        when the module is ready again. What is frozen stays.
        """
        for lane, state in self._receivers.lanes.items():
            self.current[lane] = self._measure(lane, state, powered)
        if powered:
            self._accumulate()
        else:
            self._start_interval()

    def _measure(self, lane: int, state: ReceiverState, powered: bool) -> dict[str, float]:
        values = self._own_values(powered)
        values["tx_power"] = max(self._monitors.current(lane)["tx_power"], MIN_POWER_DBM)
        values["rx_total_power"] = max(state.total_dbm, MIN_POWER_DBM)
        values["rx_signal_power"] = max(state.signal_dbm, MIN_POWER_DBM)
        media_interface = self._paths.media_interface(lane)
        if state.locked and media_interface is not None:
            values |= self._link_values(state, media_interface)
        if self._receivers.works(lane):
            values |= {"ber_current_host": _HOST_BER, "esnr_host": 22.0}
        return values

    def _own_values(self, powered: bool) -> dict[str, float]:
        """Return what does not depend on the received light; the modulator has no bias without power."""
        biases = ("xi", "xq", "yi", "yq", "x_phase", "y_phase")
        return {
            "laser_age": 1.0,
            "tec_current": self._monitors.tec_percent,
            "laser_frequency_error": 0.0,
            "laser_temperature": self._monitors.laser_temperature_c,
            **{f"modulator_bias_{name}": 45.0 + place if powered else 0.0 for place, name in enumerate(biases)},
        }

    def _link_values(self, state: ReceiverState, media_interface: int) -> dict[str, float]:
        light, found = state.light, state.reception
        line = self._core.profile.receiver.formats[media_interface]
        quality = q_db(min(max(found.ber, _MAX_Q_BER), 0.49))
        return {
            "cd_fine": light.cd_ps_per_nm,
            "cd_coarse": light.cd_ps_per_nm,
            "dgd": light.dgd_ps,
            "sopmd_fine": light.sopmd_ps2,
            "sopmd_coarse": light.sopmd_ps2,
            "pdl": light.pdl_db,
            "osnr": found.osnr_db,
            "esnr": found.esnr_db,
            "esnr_media": found.esnr_db,
            "pam4_ltp_media": found.esnr_db,
            "mer": found.esnr_db,
            "evm": 100.0 / ratio_from_db(found.esnr_db / 2.0),
            "cfo": found.offset_mhz,
            "sop_rate": light.sop_rate_krad_per_s,
            "clock_recovery": 0.0,
            "snr_margin": found.esnr_db - self._threshold_snr_db[media_interface],
            "q": quality,
            "q_margin": quality - q_db(line.fec_limit_ber),
            "ber_current_media": found.ber,
            "errored_frames_current_media": self._frames_sub(line) * frame_error_ratio(found.ber, line),
        }

    def _frames_sub(self, line: LineFormat) -> int:
        return round(line.bit_rate * self._core.timing.sub_interval_s / line.frame_bits)

    def _accumulate(self) -> None:
        if 1 in self.current and self._core.profile.coherent:
            locked = self._receivers.lanes[1].locked
            for name, observable in _OBSERVED.items():
                if locked or name in _POWERS:
                    self._running.link[name].add(self.current[1].get(observable, 0.0))
        sub = self._sub
        sub.samples += 1
        for lane, state in self._receivers.lanes.items():
            media_interface = self._paths.media_interface(lane)
            if state.locked and media_interface is not None:
                line = self._core.profile.receiver.formats[media_interface]
                sub.locked[lane] = sub.locked.get(lane, 0) + 1
                sub.ber[lane] = sub.ber.get(lane, 0.0) + state.reception.ber
                errors = frame_error_ratio(state.reception.ber, line)
                sub.frame_errors[lane] = sub.frame_errors.get(lane, 0.0) + errors
        sub.host += bool(self.current.get(1, {}).get("ber_current_host"))
        timing = self._core.timing
        if sub.samples >= round(timing.sub_interval_s / timing.sample_s):
            self._finish_sub_interval(sub)
            self._sub = _SubInterval()

    def _finish_sub_interval(self, sub: _SubInterval) -> None:
        seconds = self._core.timing.sub_interval_s
        for lane, locked in sub.locked.items():
            media_interface = self._paths.media_interface(lane)
            if locked == sub.samples and media_interface is not None:
                line = self._core.profile.receiver.formats[media_interface]
                bits, frames = round(line.bit_rate * seconds), self._frames_sub(line)
                corrected = round(bits * sub.ber[lane] / locked)
                uncorrectable = round(frames * sub.frame_errors[lane] / locked)
                self._running.media[lane].add(bits, corrected, frames, uncorrectable)
        if sub.host == sub.samples:
            bits = round(8 * self._core.profile.host_bit_rate * seconds)
            self._running.host.add(bits, round(bits * _HOST_BER), bits // 1_000_000, 0)


def _snr_at(ber: float, line: LineFormat) -> float:
    """Return the SNR in dB at which a format has a bit error ratio, by bisection."""
    low, high = -10.0, 40.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if bit_error_ratio(middle, line) > ber else (low, middle)
    return 0.5 * (low + high)
