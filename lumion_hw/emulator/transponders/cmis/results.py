"""The registers that show link performance: C-CMIS pages 34h, 35h and 3Ah, and the VDM pages with their freeze."""

from __future__ import annotations

from lumion_hw.emulator.transponders.cmis.core import Core
from lumion_hw.emulator.transponders.cmis.host_port import Written
from lumion_hw.emulator.transponders.cmis.performance import EmulatedPerformance, FecCounters
from lumion_hw.standards.cmis.codec import encode_vdm_value
from lumion_hw.standards.cmis.coherent_pages import LINK_QUANTITIES
from lumion_hw.standards.cmis.fields import LIMITS
from lumion_hw.standards.cmis.vdm import CONTROL_PAGE, OBSERVABLES, SAMPLE_PAGE, Observable
from lumion_hw.standards.registers import NumberFormat

FREEZE_BYTE = 144
"""Byte of page 2Fh with the freeze request."""
_FREEZE_BIT = 0x80
_U32 = 0xFFFF_FFFF
_F16_MAX = 2.047e10


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
        self._limited = [
            (group, place, instance.lane, OBSERVABLES[instance.code].name, core.profile.vdm_thresholds[instance.code])
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
            half[2 * place : 2 * place + 2] = encode_vdm_value(observable, _within(observable, value))

    def judge(self, powered: bool) -> None:
        """Compare the current values of initialised lanes with their thresholds and hold the flags of page 2Ch."""
        flags = self._core.flags
        for group, place, lane, name, (high_alarm, low_alarm, high_warning, low_warning) in self._limited:
            works = powered and self._performance.works(lane)
            value = self._performance.current.get(lane, {}).get(name) if works else None
            beyond = (False,) * len(LIMITS)
            if value is not None:
                beyond = (value > high_alarm, value < low_alarm, value > high_warning, value < low_warning)
            for limit, active in zip(LIMITS, beyond, strict=True):
                flags.hold(f"vdm_{group}_{limit}_flag", active, place)

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
