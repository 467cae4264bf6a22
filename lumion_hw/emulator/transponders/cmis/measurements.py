"""Measurements of a module and their registers: monitors, link performance, C-CMIS pages and VDM pages.

Monitors: CMIS 8.2.4 and 8.9.5, thresholds on page 02h. The link statistics begin at the last release of a freeze.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

from lumion_hw.emulator.transponders.cmis.core import Core
from lumion_hw.emulator.transponders.cmis.ends import Receivers, ReceiverState, Transmitters
from lumion_hw.emulator.transponders.cmis.host_port import Written
from lumion_hw.emulator.transponders.cmis.memory import Memory, threshold_value
from lumion_hw.emulator.transponders.cmis.profiles import LineFormat
from lumion_hw.emulator.transponders.cmis.reception import bit_error_ratio, frame_error_ratio
from lumion_hw.emulator.transponders.cmis.states import DataPaths
from lumion_hw.quantities import ratio_from_db
from lumion_hw.standards.cmis.codec import MIN_POWER_DBM, encode_vdm_value, q_db
from lumion_hw.standards.cmis.coherent_pages import LINK_QUANTITIES
from lumion_hw.standards.cmis.fields import LIMITS
from lumion_hw.standards.cmis.vdm import CONTROL_PAGE, OBSERVABLES, SAMPLE_PAGE, Observable
from lumion_hw.standards.registers import NumberFormat

_NO_LIMIT_EXCEEDED = (False,) * len(LIMITS)
_RAMP_S = 20.0
"""Time constant of the case temperature, in s."""


class ModuleMonitors:
    """Monitors of the module itself, such as temperature and supply."""

    def __init__(self, core: Core, transmitters: Transmitters, receivers: Receivers) -> None:
        self._core, self._transmitters, self._receivers = core, transmitters, receivers
        self._case_c, self._sampled_s = core.profile.idle_temperature_c, core.now
        self.module: dict[str, float] = {}
        self.lanes: dict[str, dict[int, float]] = {}
        self._written_to: Memory | None = None
        self._limits = {
            monitor: tuple(threshold_value(core.memory, monitor, limit) for limit in limits)
            for monitor, limits in core.profile.thresholds.items()
        }
        self._flags = {monitor: tuple(f"{monitor}_{limit}_flag" for limit in LIMITS) for monitor in self._limits}

    @property
    def laser_temperature_c(self) -> float:
        """Temperature of the laser chip (auxiliary monitor 2)."""
        return self.module.get("aux2", 0.0)

    @property
    def tec_percent(self) -> float:
        """TEC current in percent of the maximum (auxiliary monitor 1)."""
        return self.module.get("aux1", 0.0)

    def sample(self, powered: bool) -> None:
        """Sample all monitors; ``powered`` is true in the state ModuleReady."""
        core = self._core
        profile = core.profile
        noise = core.rng.standard_normal(5)
        elapsed_s, self._sampled_s = core.now - self._sampled_s, core.now
        target_c = profile.working_temperature_c if powered else profile.idle_temperature_c
        # At most the full step: a sample after a long pause must not overshoot.
        self._case_c += (target_c - self._case_c) * min(elapsed_s / _RAMP_S, 1.0)
        hot_c = core.faults.get("temp_high", 0.0)
        self.module = {
            "temperature": self._case_c + hot_c + 0.05 * float(noise[0]),
            "supply": profile.supply_v + 0.001 * float(noise[1]),
            "aux1": profile.tec_percent + 0.2 * float(noise[2]) if powered else 0.0,
            "aux2": (profile.laser_temperature_c if powered else self._case_c) + 0.02 * float(noise[3]),
        }
        self._sample_lanes(float(noise[4]))
        self._written_to = None
        self._update_flags(powered)

    def _sample_lanes(self, noise: float) -> None:
        self.lanes = {"tx_power": {}, "tx_bias": {}, "rx_power": {}}
        for lane, state in self._receivers.lanes.items():
            light = self._transmitters.light(lane)
            self.lanes["tx_power"][lane] = light.power_dbm + 0.02 * noise
            self.lanes["tx_bias"][lane] = self._core.profile.bias_ma + 0.2 * noise if light.enabled else 0.0
            self.lanes["rx_power"][lane] = state.total_dbm

    def _update_flags(self, powered: bool) -> None:
        for monitor, value in self.module.items():
            is_valid = powered or monitor in ("temperature", "supply")
            self._check_limits(monitor, value, None, is_valid)
        for monitor, lanes in self.lanes.items():
            for lane, value in lanes.items():
                sends = self._transmitters.light(lane).enabled
                is_valid = powered and (self._receivers.is_initialised(lane) if monitor == "rx_power" else sends)
                self._check_limits(monitor, value, lane, is_valid)

    def _check_limits(self, monitor: str, value: float, lane: int | None, is_valid: bool) -> None:
        # Limits and value are compared in the unit of the register, as a host would do.
        limits = self._limits.get(monitor)
        if limits is None:
            return
        measured = threshold_value(self._core.memory, monitor, value)
        high_alarm, low_alarm, high_warning, low_warning = limits
        exceeded = (measured > high_alarm, measured < low_alarm, measured > high_warning, measured < low_warning)
        self._core.flags.hold_all(self._flags[monitor], exceeded if is_valid else _NO_LIMIT_EXCEEDED, lane)

    def write_registers(self) -> None:
        """Write the monitors to the lower memory and to page 11h."""
        memory = self._core.memory
        if self._written_to is memory:  # a polling host reads a hundred times between two samples
            return
        self._written_to = memory
        for monitor, value in self.module.items():
            if memory.count(f"{monitor}_monitor_supported"):
                memory.put_limited(monitor, threshold_value(memory, monitor, value))
        for monitor, values in self.lanes.items():
            if memory.count(f"{monitor}_monitor_supported"):
                for lane, value in values.items():
                    memory.put_limited(monitor, threshold_value(memory, monitor, value), lane)

    def current(self, lane: int) -> Mapping[str, float]:
        """Return the monitored powers (dBm) and laser bias (mA) of one lane."""
        return {name: lanes[lane] for name, lanes in self.lanes.items() if lane in lanes}


_MAX_Q_BER = 1e-30  # the Q of a bit error ratio of 0 would be infinite
HOST_BER, HOST_SNR_DB = 1e-10, 22.0
"""Host-side readings of every module: the electrical lanes are always good (assumed)."""
_POWERS = ("tx_power", "rx_total_power", "rx_signal_power")
_OBSERVED = {item.name: item.observable for item in LINK_QUANTITIES}


@dataclass
class Statistics:
    """Sum, count, minimum and maximum of one quantity."""

    count: int = 0
    total: float = 0.0
    minimum: float = 0.0
    maximum: float = 0.0

    def add(self, value: float) -> None:
        """Add one value to the statistics."""
        self.minimum = value if not self.count else min(self.minimum, value)
        self.maximum = value if not self.count else max(self.maximum, value)
        self.count += 1
        self.total += value

    @property
    def average(self) -> float:
        """Mean of all values; 0 without values."""
        return self.total / self.count if self.count else 0.0


@dataclass
class FecCounters:
    """FEC statistics of one lane over an interval, from the sub-intervals with continuous lock.

    Attributes:
        bits_sub: Bits in the last sub-interval.
        corrected: Corrected bits: total, and minimum and maximum per sub-interval.
        frames_sub: Frames in the last sub-interval.
        uncorrectable: Uncorrectable frames: total, and minimum and maximum per sub-interval.
    """

    bits: int = 0
    bits_sub: int = 0
    corrected: Statistics = field(default_factory=Statistics)
    frames: int = 0
    frames_sub: int = 0
    uncorrectable: Statistics = field(default_factory=Statistics)

    def add(self, bits: int, corrected: int, frames: int, uncorrectable: int) -> None:
        """Add the bits and frames of one sub-interval."""
        self.bits += bits
        self.bits_sub = bits
        self.corrected.add(corrected)
        self.frames += frames
        self.frames_sub = frames
        self.uncorrectable.add(uncorrectable)


@dataclass
class IntervalStatistics:
    """Statistics of one interval: link quantities of lane 1, FEC counters of each lane and of the host side."""

    link: dict[str, Statistics] = field(default_factory=lambda: {item.name: Statistics() for item in LINK_QUANTITIES})
    media: dict[int, FecCounters] = field(default_factory=dict)
    host: FecCounters = field(default_factory=FecCounters)


@dataclass
class _SubInterval:
    """Samples of one sub-interval; sums by media lane, and over the host side."""

    samples: int = 0
    locked: dict[int, int] = field(default_factory=dict)
    ber: dict[int, float] = field(default_factory=dict)
    frame_errors: dict[int, float] = field(default_factory=dict)
    host: int = 0


class EmulatedPerformance:
    """Link performance of a module."""

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
        """Start a new interval and discard the current values."""
        self.current: dict[int, dict[str, float]] = {}
        self.frozen: IntervalStatistics | None = None
        self._start_interval()

    def _start_interval(self) -> None:
        self._running = IntervalStatistics(media={lane: FecCounters() for lane in self._receivers.lanes})
        self._sub = _SubInterval()

    @property
    def interval(self) -> IntervalStatistics:
        """The statistics in the registers: the frozen or the running interval."""
        return self.frozen or self._running

    def freeze(self) -> None:
        """Freeze the statistics in the registers, and start a new interval."""
        self.frozen = copy.deepcopy(self._running)

    def release(self) -> None:
        """End a freeze: the registers show the running interval."""
        self.frozen = None
        self._start_interval()

    def is_initialised(self, lane: int) -> bool:
        """Return whether the receive side of a lane is initialised."""
        return self._receivers.is_initialised(lane)

    # -- sampling ---------------------------------------------------------------------------------------------------

    def sample(self, powered: bool) -> None:
        """Measure the current values and add them to the statistics; ``powered`` is true in the state ModuleReady.

        Without power the interval ends, and the next begins when the module is ready again. Frozen statistics are kept.
        """
        for lane, state in self._receivers.lanes.items():
            self.current[lane] = self._measure(lane, state, powered)
        if powered:
            self._accumulate()
        else:
            self._start_interval()

    def _measure(self, lane: int, state: ReceiverState, powered: bool) -> dict[str, float]:
        values = self._values_without_link(powered)
        # Registers cannot hold -inf: darkness is shown as the floor of -40 dBm.
        values["tx_power"] = max(self._monitors.current(lane)["tx_power"], MIN_POWER_DBM)
        values["rx_total_power"] = max(state.total_dbm, MIN_POWER_DBM)
        values["rx_signal_power"] = max(state.signal_dbm, MIN_POWER_DBM)
        media_interface = self._paths.media_interface(lane)
        if state.is_locked and media_interface is not None:
            values |= self._link_values(state, media_interface)
        if self._receivers.is_initialised(lane):
            values |= {"ber_current_host": HOST_BER, "esnr_host": HOST_SNR_DB}
        return values

    def _values_without_link(self, powered: bool) -> dict[str, float]:
        biases = ("xi", "xq", "yi", "yq", "x_phase", "y_phase")
        return {
            "laser_age": 1.0,
            "tec_current": self._monitors.tec_percent,
            "laser_frequency_error": 0.0,
            "laser_temperature": self._monitors.laser_temperature_c,
            **{f"modulator_bias_{name}": 45.0 + index if powered else 0.0 for index, name in enumerate(biases)},
        }

    def _link_values(self, state: ReceiverState, media_interface: int) -> dict[str, float]:
        light, reception = state.light, state.reception
        line = self._core.profile.receiver.formats[media_interface]
        quality = q_db(min(max(reception.ber, _MAX_Q_BER), 0.49))
        return {
            "cd_fine": light.cd_ps_per_nm,
            "cd_coarse": light.cd_ps_per_nm,
            "dgd": light.dgd_ps,
            "sopmd_fine": light.sopmd_ps2,
            "sopmd_coarse": light.sopmd_ps2,
            "pdl": light.pdl_db,
            "osnr": reception.osnr_db,
            "esnr": reception.esnr_db,
            "esnr_media": reception.esnr_db,
            "pam4_ltp_media": reception.esnr_db,
            "mer": reception.esnr_db,
            "evm": 100.0 / ratio_from_db(reception.esnr_db / 2.0),
            "cfo": reception.offset_mhz,
            "sop_rate": light.sop_rate_krad_per_s,
            "clock_recovery": 0.0,
            "snr_margin": reception.esnr_db - self._threshold_snr_db[media_interface],
            "q": quality,
            "q_margin": quality - q_db(line.fec_limit_ber),
            "ber_current_media": reception.ber,
            "errored_frames_current_media": self._frames_sub(line) * frame_error_ratio(reception.ber, line),
        }

    def _frames_sub(self, line: LineFormat) -> int:
        return round(line.bit_rate * self._core.timing.sub_interval_s / line.frame_bits)

    def _accumulate(self) -> None:
        if 1 in self.current and self._core.profile.coherent:
            locked = self._receivers.lanes[1].is_locked
            for name, observable in _OBSERVED.items():
                # Powers are measured without lock; the other quantities need a locked signal.
                if locked or name in _POWERS:
                    self._running.link[name].add(self.current[1].get(observable, 0.0))
        sub = self._sub
        sub.samples += 1
        for lane, state in self._receivers.lanes.items():
            media_interface = self._paths.media_interface(lane)
            if state.is_locked and media_interface is not None:
                line = self._core.profile.receiver.formats[media_interface]
                sub.locked[lane] = sub.locked.get(lane, 0) + 1
                sub.ber[lane] = sub.ber.get(lane, 0.0) + state.reception.ber
                errors = frame_error_ratio(state.reception.ber, line)
                sub.frame_errors[lane] = sub.frame_errors.get(lane, 0.0) + errors
        sub.host += bool(self.current.get(1, {}).get("ber_current_host"))
        timing = self._core.timing
        # Counted in samples, not by the clock, so that all sub-intervals have the same number of samples.
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
            self._running.host.add(bits, round(bits * HOST_BER), bits // 1_000_000, 0)


def _snr_at(ber: float, line: LineFormat) -> float:
    """Return the SNR in dB at which a line format has a given bit error ratio."""
    # Sixty halvings of 50 dB reach the last bit of a double.
    minimum, maximum = -10.0, 40.0
    for _ in range(60):
        middle = 0.5 * (minimum + maximum)
        minimum, maximum = (middle, maximum) if bit_error_ratio(middle, line) > ber else (minimum, middle)
    return 0.5 * (minimum + maximum)


FREEZE_BYTE = 144
"""Byte of the freeze request on page 2Fh."""
_FREEZE_BIT = 0x80
_U32 = 0xFFFF_FFFF
_F16_MAX = 2.047e10  # FFFFh: mantissa 2047, exponent 31 - 24


class CoherentPages:
    """The C-CMIS pages 34h, 35h and 3Ah (FEC and link performance) of a module."""

    def __init__(self, core: Core, performance: EmulatedPerformance) -> None:
        self._core, self._performance = core, performance

    def write_media_fec(self) -> None:
        """Write the FEC performance of the media side to page 34h."""
        self._write_fec("media_fec", self._performance.interval.media[1])

    def write_host_fec(self) -> None:
        """Write the FEC performance of the host side to page 3Ah."""
        self._write_fec("host_fec", self._performance.interval.host)

    def _write_fec(self, prefix: str, counters: FecCounters) -> None:
        bits_sub = counters.bits_sub
        if self._core.has("counter_truncated"):
            # Firmware in the field truncates the count like this; minimum and maximum then do not fit the average.
            bits_sub &= _U32
        for name, count in (
            ("bits", counters.bits),
            ("bits_sub_interval", bits_sub),
            ("corrected_bits", round(counters.corrected.total)),
            ("corrected_bits_min", round(counters.corrected.minimum)),
            ("corrected_bits_max", round(counters.corrected.maximum)),
            ("frames", counters.frames),
            ("frames_sub_interval", counters.frames_sub),
            ("uncorrectable_frames", round(counters.uncorrectable.total)),
            ("uncorrectable_frames_min", round(counters.uncorrectable.minimum)),
            ("uncorrectable_frames_max", round(counters.uncorrectable.maximum)),
        ):
            self._core.memory.put_limited(f"{prefix}_{name}", count)

    def write_link(self) -> None:
        """Write the link performance to page 35h. Powers that were never measured have the lowest register value."""
        memory, link = self._core.memory, self._performance.interval.link
        for item in LINK_QUANTITIES:
            statistics = link[item.name]
            empty = -40.0 if item.unit == "dBm" else 0.0
            values = (statistics.average, statistics.minimum, statistics.maximum) if statistics.count else (empty,) * 3
            for word, value in zip(("avg", "min", "max"), values, strict=True):
                memory.put_limited(f"pm_{item.name}_{word}", value)


class VdmPages:
    """The VDM pages (versatile diagnostics monitoring) of a module: samples, flags and freeze of statistics."""

    def __init__(self, core: Core, performance: EmulatedPerformance) -> None:
        self._core, self._performance = core, performance
        self._reported_values: dict[tuple[int, int], tuple[float, bytes]] = {}
        names = [tuple(f"vdm_{group}_{limit}_flag" for limit in LIMITS) for group in range(len(core.profile.vdm))]
        self._limited = [
            (
                names[group],
                index,
                instance.lane,
                OBSERVABLES[instance.code].name,
                core.profile.vdm_thresholds[instance.code],
            )
            for group, instances in enumerate(core.profile.vdm)
            for index, instance in enumerate(instances)
            if instance.code in core.profile.vdm_thresholds
        ]
        self.restart()

    def restart(self) -> None:
        """Show running statistics again, without a freeze request."""
        self._requested = False
        self._is_pending = False

    def value(self, observable: Observable, lane: int) -> float:
        """Return the value of a VDM observable on a lane."""
        if observable.statistic:
            return self._statistic(observable.name, lane)
        return self._performance.current.get(lane, {}).get(observable.name, 0.0)

    def _statistic(self, name: str, lane: int) -> float:
        interval = self._performance.interval
        counters = interval.host if name.endswith("_host") else interval.media.get(lane, FecCounters())
        if not counters.bits_sub:
            return 0.0
        if name.startswith("ferc_total"):
            return counters.uncorrectable.total
        ber = name.startswith("ber_")
        statistics = counters.corrected if ber else counters.uncorrectable
        value = statistics.minimum if "_min_" in name else statistics.maximum if "_max_" in name else statistics.average
        return value / counters.bits_sub if ber else value

    def write_group(self, group: int) -> None:
        """Write the samples of a group of VDM observables."""
        half = self._core.memory.half(SAMPLE_PAGE + group)
        for index, instance in enumerate(self._core.profile.vdm[group]):
            observable = OBSERVABLES[instance.code]
            value = self.value(observable, instance.lane)
            reported = self._reported_values.get((group, index))
            if reported is None or reported[0] != value:  # a polling host reads many times between two samples
                data = encode_vdm_value(observable, _clamp_to_format(observable, value))
                reported = self._reported_values[group, index] = (value, data)
            half[2 * index : 2 * index + 2] = reported[1]

    def check_thresholds(self, powered: bool) -> None:
        """Compare the current values of initialised lanes with their thresholds, and update the flags of page 2Ch."""
        flags = self._core.flags
        working = {lane: powered and self._performance.is_initialised(lane) for lane in self._performance.current}
        for names, index, lane, name, (high_alarm, low_alarm, high_warning, low_warning) in self._limited:
            value = self._performance.current[lane].get(name) if working.get(lane) else None
            exceeded = _NO_LIMIT_EXCEEDED
            if value is not None:
                exceeded = (value > high_alarm, value < low_alarm, value > high_warning, value < low_warning)
            flags.hold_all(names, exceeded, index)

    # -- freeze -----------------------------------------------------------------------------------------------------

    def written(self, written: Written) -> None:
        """Process a write to the freeze request byte."""
        request = bool(self._core.memory.byte(CONTROL_PAGE, FREEZE_BYTE) & _FREEZE_BIT)
        if request != self._requested:
            self._requested = request
            self._is_pending = True
            self._core.memory.put("vdm_freeze_done", False)
            self._core.memory.put("vdm_unfreeze_done", False)

    def step(self, powered: bool) -> bool:
        """Start a pending freeze or unfreeze if possible. Return whether it was started."""
        core = self._core
        # Statistics belong to the signal processor, which is off in low power, so the request waits.
        if not self._is_pending or not powered:
            return False
        self._is_pending = False
        if self._requested and not core.has("freeze_never_done"):
            core.agenda.after(core.timing.freeze_s, self._freeze)
        elif not self._requested:
            core.agenda.after(core.timing.unfreeze_s, self._release)
        return True

    def _freeze(self) -> None:
        if self._requested:
            self._performance.freeze()
            self._core.memory.put("vdm_freeze_done", True)

    def _release(self) -> None:
        if not self._requested:
            self._performance.release()
            self._core.memory.put("vdm_unfreeze_done", True)


def _clamp_to_format(observable: Observable, value: float) -> float:
    if observable.kind is NumberFormat.F16:
        return min(max(value, 0.0), _F16_MAX)
    minimum, maximum = (-32768, 32767) if observable.kind is NumberFormat.INT else (0, 65535)
    return min(max(value, float(minimum * observable.scale)), float(maximum * observable.scale))
