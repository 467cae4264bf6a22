"""What a module measures, and the registers that show it: monitors with alarms, link performance, C-CMIS and VDM pages.

Monitors: CMIS 8.2.4 and 8.9.5, thresholds of page 02h. Link performance is kept as current values and as statistics
over the interval since the last release of a freeze; every page that shows a quantity (24h and up, 34h, 35h, 3Ah)
takes it from here, so that they agree.
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
from lumion_hw.standards.cmis.codec import MIN_POWER_DBM, encode_vdm_value, optical_power_count, q_db
from lumion_hw.standards.cmis.coherent_pages import LINK_QUANTITIES
from lumion_hw.standards.cmis.fields import LIMITS
from lumion_hw.standards.cmis.vdm import CONTROL_PAGE, OBSERVABLES, SAMPLE_PAGE, Observable
from lumion_hw.standards.registers import NumberFormat

_WITHIN = (False,) * len(LIMITS)
_RAMP_S = 20.0
"""Time constant with which the case warms up and cools down."""


class ModuleMonitors:
    """What the module measures about itself, sampled together.

    Args:
        core: The module.
        transmitters: What it sends.
        receivers: What it gets.
    """

    def __init__(self, core: Core, transmitters: Transmitters, receivers: Receivers) -> None:
        self._core, self._transmitters, self._receivers = core, transmitters, receivers
        self._case_c, self._sampled_s = core.profile.idle_temperature_c, core.now
        self.module: dict[str, float] = {}
        self.lanes: dict[str, dict[int, float]] = {}
        self._shown_in: Memory | None = None
        self._limits = {
            monitor: tuple(threshold_value(core.memory, monitor, limit) for limit in limits)
            for monitor, limits in core.profile.thresholds.items()
        }
        self._flags = {monitor: tuple(f"{monitor}_{limit}_flag" for limit in LIMITS) for monitor in self._limits}

    @property
    def laser_temperature_c(self) -> float:
        """Temperature of the laser chip, as aux 2 shows it."""
        return self.module.get("aux2", 0.0)

    @property
    def tec_percent(self) -> float:
        """TEC current in percent of its maximum, as aux 1 shows it."""
        return self.module.get("aux1", 0.0)

    def sample(self, powered: bool) -> None:
        """Measure everything; ``powered`` is ModuleReady."""
        core = self._core
        profile = core.profile
        noise = core.rng.standard_normal(5)
        elapsed_s, self._sampled_s = core.now - self._sampled_s, core.now
        goal_c = profile.working_temperature_c if powered else profile.idle_temperature_c
        # A step of at most the whole way: a sample after a long pause must not overshoot.
        self._case_c += (goal_c - self._case_c) * min(elapsed_s / _RAMP_S, 1.0)
        hot_c = core.faults.get("temp_high", 0.0)
        self.module = {
            "temperature": self._case_c + hot_c + 0.05 * float(noise[0]),
            "supply": profile.supply_v + 0.001 * float(noise[1]),
            "aux1": profile.tec_percent + 0.2 * float(noise[2]) if powered else 0.0,
            "aux2": (profile.laser_temperature_c if powered else self._case_c) + 0.02 * float(noise[3]),
        }
        self._sample_lanes(float(noise[4]))
        self._shown_in = None
        self._hold_flags(powered)

    def _sample_lanes(self, noise: float) -> None:
        self.lanes = {"tx_power": {}, "tx_bias": {}, "rx_power": {}}
        for lane, state in self._receivers.lanes.items():
            light = self._transmitters.light(lane)
            self.lanes["tx_power"][lane] = light.power_dbm + 0.02 * noise
            self.lanes["tx_bias"][lane] = self._core.profile.bias_ma + 0.2 * noise if light.enabled else 0.0
            self.lanes["rx_power"][lane] = state.total_dbm

    def _hold_flags(self, powered: bool) -> None:
        for monitor, value in self.module.items():
            works = powered or monitor in ("temperature", "supply")
            self._judge(monitor, value, None, works)
        for monitor, lanes in self.lanes.items():
            for lane, value in lanes.items():
                sends = self._transmitters.light(lane).enabled
                works = powered and (self._receivers.works(lane) if monitor == "rx_power" else sends)
                self._judge(monitor, value, lane, works)

    def _judge(self, monitor: str, value: float, lane: int | None, works: bool) -> None:
        # Limits and value are compared in the unit of the register, as a host would.
        limits = self._limits.get(monitor)
        if limits is None:
            return
        measured = threshold_value(self._core.memory, monitor, value)
        high_alarm, low_alarm, high_warning, low_warning = limits
        beyond = (measured > high_alarm, measured < low_alarm, measured > high_warning, measured < low_warning)
        self._core.flags.hold_each(self._flags[monitor], beyond if works else _WITHIN, lane)

    def put(self) -> None:
        """Write the monitors to the lower memory and to page 11h."""
        memory = self._core.memory
        if self._shown_in is memory:  # a host that polls reads a hundred times between two samples
            return
        self._shown_in = memory
        for monitor, value in self.module.items():
            if memory.count(f"{monitor}_monitor_supported"):
                memory.put_limited(monitor, threshold_value(memory, monitor, value))
        for lane, power_dbm in self.lanes.get("tx_power", {}).items():
            memory.put_limited("tx_power", _milliwatts(power_dbm), lane)
        for lane, bias_ma in self.lanes.get("tx_bias", {}).items():
            memory.put_limited("tx_bias", threshold_value(memory, "tx_bias", bias_ma), lane)
        for lane, power_dbm in self.lanes.get("rx_power", {}).items():
            memory.put_limited("rx_power", _milliwatts(power_dbm), lane)

    def current(self, lane: int) -> Mapping[str, float]:
        """Return the lane monitors of one lane, in dBm and mA."""
        return {name: lanes[lane] for name, lanes in self.lanes.items() if lane in lanes}


def _milliwatts(power_dbm: float) -> float:
    return optical_power_count(power_dbm) * 1e-4


_MAX_Q_BER = 1e-30  # Q of a bit error ratio of 0 is infinite
HOST_BER, HOST_SNR_DB = 1e-10, 22.0
"""What the host side of every module shows: its electrical lanes are not modelled, and good (project default)."""
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
        # No register can hold -inf: what is dark is at the floor of -40 dBm.
        values["tx_power"] = max(self._monitors.current(lane)["tx_power"], MIN_POWER_DBM)
        values["rx_total_power"] = max(state.total_dbm, MIN_POWER_DBM)
        values["rx_signal_power"] = max(state.signal_dbm, MIN_POWER_DBM)
        media_interface = self._paths.media_interface(lane)
        if state.locked and media_interface is not None:
            values |= self._link_values(state, media_interface)
        if self._receivers.works(lane):
            values |= {"ber_current_host": HOST_BER, "esnr_host": HOST_SNR_DB}
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
                # Powers are measured without lock; the rest is what the signal processor finds in a locked signal.
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
        # Counted in samples, not by the clock: a sub-interval then never has one sample more than another.
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
    """Return the SNR in dB at which a format has a bit error ratio, by bisection."""
    # Sixty halvings of 50 dB: to the last bit of a double.
    low, high = -10.0, 40.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if bit_error_ratio(middle, line) > ber else (low, middle)
    return 0.5 * (low + high)


FREEZE_BYTE = 144
"""Byte of page 2Fh with the freeze request."""
_FREEZE_BIT = 0x80
_U32 = 0xFFFF_FFFF
_F16_MAX = 2.047e10  # FFFFh: mantissa 2047, exponent 31 - 24


class CoherentPages:
    """Pages 34h, 35h and 3Ah.

    Args:
        core: The module.
        performance: The statistics.
    """

    def __init__(self, core: Core, performance: EmulatedPerformance) -> None:
        self._core, self._performance = core, performance

    def put_media_fec(self) -> None:
        """Write page 34h."""
        self._put_fec("media_fec", self._performance.interval.media[1])

    def put_host_fec(self) -> None:
        """Write page 3Ah."""
        self._put_fec("host_fec", self._performance.interval.host)

    def _put_fec(self, prefix: str, counters: FecCounters) -> None:
        bits_sub = counters.bits_sub
        if self._core.has("counter_truncated"):
            # Firmware in the field truncates it so, and min and max no longer fit the average.
            bits_sub &= _U32
        for name, count in (
            ("bits", counters.bits),
            ("bits_sub_interval", bits_sub),
            ("corrected_bits", round(counters.corrected.total)),
            ("corrected_bits_min", round(counters.corrected.low)),
            ("corrected_bits_max", round(counters.corrected.high)),
            ("frames", counters.frames),
            ("frames_sub_interval", counters.frames_sub),
            ("uncorrectable_frames", round(counters.uncorrectable.total)),
            ("uncorrectable_frames_min", round(counters.uncorrectable.low)),
            ("uncorrectable_frames_max", round(counters.uncorrectable.high)),
        ):
            self._core.memory.put_limited(f"{prefix}_{name}", count)

    def put_link(self) -> None:
        """Write page 35h; powers that were never measured are at the floor."""
        memory, link = self._core.memory, self._performance.interval.link
        for item in LINK_QUANTITIES:
            triple = link[item.name]
            empty = -40.0 if item.unit == "dBm" else 0.0
            values = (triple.average, triple.low, triple.high) if triple.count else (empty,) * 3
            for word, value in zip(("avg", "min", "max"), values, strict=True):
                memory.put_limited(f"pm_{item.name}_{word}", value)


class VdmPages:
    """Samples, flags and freeze of the VDM pages.

    Args:
        core: The module.
        performance: Current values and statistics.
    """

    def __init__(self, core: Core, performance: EmulatedPerformance) -> None:
        self._core, self._performance = core, performance
        self._shown: dict[tuple[int, int], tuple[float, bytes]] = {}
        names = [tuple(f"vdm_{group}_{limit}_flag" for limit in LIMITS) for group in range(len(core.profile.vdm))]
        self._limited = [
            (
                names[group],
                place,
                instance.lane,
                OBSERVABLES[instance.code].name,
                core.profile.vdm_thresholds[instance.code],
            )
            for group, instances in enumerate(core.profile.vdm)
            for place, instance in enumerate(instances)
            if instance.code in core.profile.vdm_thresholds
        ]
        self.restart()

    def restart(self) -> None:
        """Go back to running statistics; a freeze that was requested is not."""
        self._requested = False
        self._moving = False

    def value(self, observable: Observable, lane: int) -> float:
        """Return what an instance shows."""
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
        triple = counters.corrected if ber else counters.uncorrectable
        value = triple.low if "_min_" in name else triple.high if "_max_" in name else triple.average
        return value / counters.bits_sub if ber else value

    def put_group(self, group: int) -> None:
        """Write the samples of a group."""
        half = self._core.memory.half(SAMPLE_PAGE + group)
        for place, instance in enumerate(self._core.profile.vdm[group]):
            observable = OBSERVABLES[instance.code]
            value = self.value(observable, instance.lane)
            shown = self._shown.get((group, place))
            if shown is None or shown[0] != value:  # a host that polls reads many times between two samples
                shown = self._shown[group, place] = (value, encode_vdm_value(observable, _within(observable, value)))
            half[2 * place : 2 * place + 2] = shown[1]

    def judge(self, powered: bool) -> None:
        """Compare the current values of initialised lanes with their thresholds and hold the flags of page 2Ch."""
        flags = self._core.flags
        working = {lane: powered and self._performance.works(lane) for lane in self._performance.current}
        for names, place, lane, name, (high_alarm, low_alarm, high_warning, low_warning) in self._limited:
            value = self._performance.current[lane].get(name) if working.get(lane) else None
            beyond = _WITHIN
            if value is not None:
                beyond = (value > high_alarm, value < low_alarm, value > high_warning, value < low_warning)
            flags.hold_each(names, beyond, place)

    # -- freeze -----------------------------------------------------------------------------------------------------

    def written(self, written: Written) -> None:
        """Take a freeze request, or its end."""
        request = bool(self._core.memory.byte(CONTROL_PAGE, FREEZE_BYTE) & _FREEZE_BIT)
        if request != self._requested:
            self._requested = request
            self._moving = True
            self._core.memory.put("vdm_freeze_done", False)
            self._core.memory.put("vdm_unfreeze_done", False)

    def step(self, powered: bool) -> bool:
        """Start what was requested as soon as the module can do it; returns whether it did."""
        core = self._core
        # Statistics belong to the signal processor, which is off in low power: the request waits.
        if not self._moving or not powered:
            return False
        self._moving = False
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


def _within(observable: Observable, value: float) -> float:
    """Return the value, or the nearest one that the observable's format can hold."""
    if observable.kind is NumberFormat.F16:
        return min(max(value, 0.0), _F16_MAX)
    low, high = (-32768, 32767) if observable.kind is NumberFormat.INT else (0, 65535)
    return min(max(value, float(low * observable.scale)), float(high * observable.scale))
