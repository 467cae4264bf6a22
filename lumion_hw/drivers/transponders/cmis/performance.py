"""Link performance in one statistics interval, read from several sources that are compared with each other."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.diagnostics import Diagnostics, Instance, Vdm, VdmSample
from lumion_hw.drivers.transponders.cmis.monitors import lane_readings
from lumion_hw.interfaces import LinkQuantity, Performance, Quality, Reading
from lumion_hw.standards.cmis import FIELDS, codes, decode
from lumion_hw.standards.cmis.codec import MIN_POWER_DBM, q_db
from lumion_hw.standards.cmis.coherent_pages import FEC_COUNTERS, LINK_QUANTITIES
from lumion_hw.standards.cmis.fields import HALF_BYTES
from lumion_hw.standards.cmis.vdm import Observable

FEC_PAGE = 0x34
"""Page of the media FEC counters."""
LINK_PAGE = 0x35
"""Page of the link performance."""
TOLERANCE_DB = 0.5
"""Largest difference in dB at which two sources agree (docs/transponders.md)."""
_SLACK_DB = TOLERANCE_DB + 0.1  # plus the coarsest resolution of these registers
_DECIBELS = ("dB", "dBm")
_BER_TOLERANCE = 2.0  # factor for 0.5 dB of SNR near the FEC limit
_BER_FLOOR = 1e-9
_VDM_WORDS = {"min": "minimum", "max": "maximum", "avg": "average", "current": "current"}
_VDM_FEC = {"ber": "prefec_ber", "errored_frames": "ferc", "sewmax": "sewmax"}
_FEC_UNITS = {"prefec_ber": "", "uncorrectable_frames": "frames", "ferc": ""}
_SIDES = ("media", "host")
_OF_TRANSMITTER = ("laser_", "tec_", "modulator_", "supply_")
_POWERS = frozenset({"tx_power", "rx_total_power", "rx_signal_power"})
_COHERENT_LANE = 1  # the media lane of pages 34h and 35h
_MODULE = 0  # in place of a lane: a quantity of the whole module
_Key = tuple[str, int]
"""Name of a quantity, and its lane; 0 for a quantity of the whole module."""


@dataclass(frozen=True)
class ReadLanes:
    """Lanes whose link performance is read. The name of a quantity on lane ``n`` is ``name.n``.

    Attributes:
        media_lane: Media lane whose quantities are named without lane number.
        host_lane: Host lane whose quantities are named without lane number.
        media: Media lanes to read; ``None`` reads all.
        host: Host lanes to read; ``None`` reads all.
    """

    media_lane: int = 1
    host_lane: int = 1
    media: Collection[int] | None = None
    host: Collection[int] | None = None

    def has(self, instance: Instance, name: str) -> bool:
        """Return whether a VDM instance belongs to these lanes or to the whole module."""
        lanes = self.host if _is_of_host(name) else self.media
        return lanes is None or _lane_of(instance) in (_MODULE, *lanes)

    def name(self, key: _Key) -> str:
        """Return the name of a quantity, with its lane number if needed."""
        name, lane = key
        return name if lane in (_MODULE, self.plain_lane(name)) else f"{name}.{lane}"

    def plain_lane(self, name: str) -> int:
        """Return the lane on which this quantity is named without lane number."""
        return self.host_lane if _is_of_host(name) else self.media_lane


@dataclass(frozen=True)
class LiveLanes:
    """State of a module's lanes while its link performance is read.

    Attributes:
        emitting: Media lanes of active data paths.
        emitting_host_lanes: Host lanes of active data paths.
        locked: Media lanes with a locked receiver.
    """

    emitting: Collection[int]
    emitting_host_lanes: Collection[int]
    locked: Collection[int]

    def is_fresh(self, key: _Key) -> bool:
        """Return whether a quantity is measured now. Without a signal, registers keep their last values."""
        name, lane = key
        if _is_of_host(name):
            return _has(self.emitting_host_lanes, lane)
        return _has(self.emitting, lane) and (_has(self.locked, lane) or not _of_receiver(name))


def _has(lanes: Collection[int], lane: int) -> bool:
    return bool(lanes) if lane == _MODULE else lane in lanes


@dataclass
class _Draft:
    """Values of one quantity, before they are compared."""

    members: dict[str, Reading] = field(default_factory=dict)
    others: list[tuple[str, Reading]] = field(default_factory=list)

    def add(self, member: str, reading: Reading) -> None:
        """Add a reading of one kind, such as ``average``. A second reading of the same kind is only compared."""
        if member in self.members:
            self.others.append((member, reading))
        else:
            self.members[member] = reading

    def finish(self, quality: Quality | None) -> LinkQuantity:
        """Return the quantity. ``quality`` replaces the quality of all readings unless it is ``None``."""
        members = {name: _with_quality(reading, quality) for name, reading in self.members.items()}
        return LinkQuantity(**members, others=tuple(_with_quality(reading, quality) for _, reading in self.others))


def _with_quality(reading: Reading, quality: Quality | None) -> Reading:
    return reading if quality is None else Reading(reading.value, reading.unit, quality, reading.source)


class _Drafts:
    """Values of all quantities, before they are compared.

    Attributes:
        quantities: Quantities by name and lane.
        remarks: Descriptions of contradictions.
    """

    def __init__(self, lanes: ReadLanes) -> None:
        self._lanes = lanes
        self.quantities: dict[_Key, _Draft] = {}
        self.remarks: list[str] = []

    def of(self, name: str, lane: int) -> _Draft:
        """Return a quantity by name and lane."""
        plain = (name, self._lanes.plain_lane(name))
        module_key = (name, _MODULE)
        key = (name, lane)
        if key == module_key and plain in self.quantities:
            key = plain
        elif key == plain and module_key in self.quantities:
            key = module_key
        return self.quantities.setdefault(key, _Draft())

    def add_fec(self, counters: Mapping[str, int]) -> None:
        """Add the FEC counters of page 34h."""
        ratios = bit_error_ratios(counters)
        ber = self.of("prefec_ber", _COHERENT_LANE)
        if ratios is None:
            ber.add("average", Reading(None, "", Quality.STALE, "34h:144/128"))
            return
        average, low, high, is_consistent = ratios
        quality = Quality.OK if is_consistent else Quality.INCONSISTENT
        if not is_consistent:
            self.remarks.append("prefec_ber: the average is not within the counters of 34h:136-167")
        ber.add("average", Reading(average, "", Quality.OK, "34h:144/128"))
        ber.add("minimum", Reading(low, "", quality, "34h:152/136"))
        ber.add("maximum", Reading(high, "", quality, "34h:160/136"))
        frames = counters["frames"]
        uncorrectable = Reading(float(counters["uncorrectable_frames"]), "frames", Quality.OK, "34h:176")
        self.of("uncorrectable_frames", _COHERENT_LANE).add("average", uncorrectable)
        if frames:
            ferc = Reading(counters["uncorrectable_frames"] / frames, "", Quality.OK, "34h:176/168")
            self.of("ferc", _COHERENT_LANE).add("average", ferc)

    def add_link(self, page: bytes) -> None:
        """Add the link quantities of page 35h."""
        for quantity in LINK_QUANTITIES:
            draft = self.of(quantity.name, _COHERENT_LANE)
            for word, member in (("avg", "average"), ("min", "minimum"), ("max", "maximum")):
                item = FIELDS[f"pm_{quantity.name}_{word}"]
                value = decode(item, page[item.byte - HALF_BYTES : item.byte - HALF_BYTES + item.length])
                number = float(value) if isinstance(value, (int, float)) else 0.0
                draft.add(member, _floored(quantity.name, number, quantity.unit, str(item)))

    def add_samples(self, samples: tuple[VdmSample, ...]) -> None:
        """Add VDM samples. Samples of unknown types are ignored."""
        for sample in samples:
            observable = sample.instance.descriptor.observable
            if observable is None:
                continue
            name, member = _quantity_of(observable)
            if self._lanes.has(sample.instance, name):
                reading = _floored(name, sample.value, observable.unit, sample.instance.source)
                self.of(name, _lane_of(sample.instance)).add(member, reading)

    def compare(self, name: str, reading: Reading | None) -> None:
        """Add a present value from a second source, for comparison."""
        if reading is not None and reading.quality is Quality.OK:
            for lane in (self._lanes.media_lane, _MODULE):
                if (name, lane) in self.quantities:
                    self.quantities[name, lane].others.append(("current", reading))


class PerformanceReader:
    """Reads the link performance and counts the statistics intervals.

    Args:
        module: Open module.
        vdm: Versatile diagnostics monitoring of the module.
        diagnostics: Loopbacks and test patterns of the module.
    """

    def __init__(self, module: ModuleContext, vdm: Vdm, diagnostics: Diagnostics) -> None:
        self._module = module
        self._vdm = vdm
        self._diagnostics = diagnostics
        self._interval = 0
        self._fresh_before: frozenset[_Key] = frozenset()
        self._started_s: float | None = None

    def units(self, lanes: ReadLanes) -> dict[str, str]:
        """Return the units of all quantities measured on these lanes, by quantity name."""
        units = dict(_FEC_UNITS) if self._module.advertised.coherent else {}
        if self._module.advertised.coherent:
            units |= {item.name: item.unit for item in LINK_QUANTITIES}
        for item in (*self._vdm.instances, *self._vdm.further):
            observable = item.descriptor.observable
            if observable is None:
                continue
            name = _quantity_of(observable)[0]
            if lanes.has(item, name):
                units.setdefault(lanes.name((name, _lane_of(item))), observable.unit)
        return units | ({"q": "dB"} if "prefec_ber" in units else {})

    def read(self, lanes: ReadLanes, live: LiveLanes) -> Performance:
        """End a statistics interval and return the link performance in it.

        Args:
            lanes: Lanes to read.
            live: State of the lanes; values of dark or unlocked lanes are stale.
        """
        module = self._module
        module.needs(module.advertised.coherent or bool(self._vdm.instances), "link performance")
        drafts = _Drafts(lanes)
        # In low power nothing is measured, and a freeze may not end.
        in_low_power = module.memory.number("module_state") != codes.ModuleState.READY
        with module.memory.pages.transaction():
            if in_low_power:
                self._statistics(drafts)
            else:
                with self._vdm.frozen():
                    self._statistics(drafts)
            ended_s = module.clock.now()
            drafts.add_samples(self._vdm.samples(statistic=False, all_banks=True))
        self._other_pages(drafts, lanes.media_lane)
        self._interval += 1
        started_s, self._started_s = self._started_s, ended_s
        fresh = frozenset(key for key in drafts.quantities if live.is_fresh(key))
        quantities = {
            lanes.name(key): _finish(lanes.name(key), draft, key in fresh, key in self._fresh_before, drafts.remarks)
            for key, draft in drafts.quantities.items()
        }
        # Only the lanes of this reading; others may have been stale in the meantime.
        self._fresh_before = fresh
        _add_q(quantities)
        return Performance(module.clock.now(), self._interval, started_s, ended_s, quantities, tuple(drafts.remarks))

    def _statistics(self, drafts: _Drafts) -> None:
        module = self._module
        if module.advertised.coherent:
            first, last = FEC_COUNTERS[0][1], FEC_COUNTERS[-1][1] + FEC_COUNTERS[-1][2]
            drafts.add_fec(read_counters(module.memory.pages.read_page(FEC_PAGE, first, last - first)))
            drafts.add_link(module.memory.pages.read_page(LINK_PAGE, HALF_BYTES, HALF_BYTES))
        drafts.add_samples(self._vdm.samples(statistic=True, all_banks=True))

    def _other_pages(self, drafts: _Drafts, lane: int) -> None:
        if self._diagnostics.checks_received_bits(lane):
            drafts.compare("prefec_ber", self._diagnostics.result("media_ber", lane))
        drafts.compare("esnr", self._diagnostics.result("media_snr", lane))
        readings = lane_readings(self._module, lane)
        drafts.compare("tx_power", readings["tx_power"])
        drafts.compare("rx_total_power", readings["rx_power"])


def _lane_of(instance: Instance) -> int:
    return _MODULE if instance.lane is None else instance.lane


def _is_of_host(name: str) -> bool:
    return "host" in name.split("_")


def _of_receiver(name: str) -> bool:
    return not (name in _POWERS or name.startswith(_OF_TRANSMITTER))


def _finish(name: str, draft: _Draft, fresh: bool, steady: bool, remarks: list[str]) -> LinkQuantity:
    if not fresh:
        return draft.finish(Quality.STALE)
    problem = _contradiction(name.partition(".")[0], draft, steady)
    if problem:
        remarks.append(f"{name}: {problem}")
    return draft.finish(Quality.INCONSISTENT if problem else None)


def read_counters(data: bytes) -> dict[str, int]:
    """Return the counters of page 34h by name, from its bytes starting at 128."""
    return {
        name: int.from_bytes(data[byte - HALF_BYTES : byte - HALF_BYTES + length], "big")
        for name, byte, length in FEC_COUNTERS
    }


def bit_error_ratios(counters: Mapping[str, int]) -> tuple[float, float, float, bool] | None:
    """Return average, minimum and maximum pre-FEC bit error ratio, and whether the FEC counters are consistent.

    Returns ``None`` if no bits were counted.
    """
    bits, per_sub = counters["bits"], counters["bits_sub_interval"]
    if not bits:
        return None
    average = counters["corrected_bits"] / bits
    low, high = counters["corrected_bits_min"], counters["corrected_bits_max"]
    # A tolerance of 1e-9 for rounding.
    is_consistent = per_sub > 0 and low / per_sub <= average * (1 + 1e-9) and average <= high / per_sub * (1 + 1e-9)
    if not is_consistent:
        frames = counters["frames"]
        # Both counters use the same sub-interval and so have the same ratio to the interval.
        per_sub = bits * counters["frames_sub_interval"] // frames if frames else 0
    if not per_sub:
        return average, average, average, False
    return average, low / per_sub, high / per_sub, is_consistent


def _quantity_of(observable: Observable) -> tuple[str, str]:
    name, member = observable.name, "current"
    for prefix, called in _VDM_FEC.items():
        if name.startswith(prefix + "_") and name.endswith(_SIDES):
            word, side = name.removeprefix(prefix + "_").rsplit("_", 1)
            name, member = (called if side == "media" else f"host_{called}"), _VDM_WORDS[word]
    return name, member


def _floored(name: str, value: float, unit: str, source: str) -> Reading:
    if name == "prefec_ber" and not 0.0 < value < 0.5:
        return Reading(None, unit, Quality.STALE, source)
    if name in _POWERS and value <= MIN_POWER_DBM:
        return Reading(MIN_POWER_DBM, unit, Quality.BELOW_RANGE, source)
    return Reading(value, unit, Quality.OK, source)


def _contradiction(name: str, draft: _Draft, steady: bool) -> str:
    valid = {key: item for key, item in draft.members.items() if item.quality is Quality.OK and item.value is not None}
    low, high, average = valid.get("minimum"), valid.get("maximum"), valid.get("average")
    if low and high and average and not _value(low) <= _value(average) <= _value(high):
        return f"minimum {_value(low):g}, average {_value(average):g}, maximum {_value(high):g} are not in order"
    pairs = [(valid.get(member), second) for member, second in draft.others if second.quality is Quality.OK]
    # Otherwise the average includes times without a link.
    if steady and average is not None:
        current = [
            second for member, second in [("current", valid.get("current")), *draft.others] if member == "current"
        ]
        pairs += [(average, second) for second in current if second is not None and not _between(low, second, high)]
    for first, second in pairs:
        if first is not None and not _agree(name, first, second):
            return f"{first.source} reads {_value_text(first)}, {second.source} reads {_value_text(second)}"
    return ""


def _value_text(reading: Reading) -> str:
    return f"{_value(reading):g} {reading.unit}".rstrip()


def _between(low: Reading | None, middle: Reading, high: Reading | None) -> bool:
    slack = _SLACK_DB if middle.unit in _DECIBELS else 0.0
    return bool(low and high) and _value(low) - slack <= _value(middle) <= _value(high) + slack


def _agree(name: str, first: Reading, second: Reading) -> bool:
    a, b = _value(first), _value(second)
    if "ber" in name.split("_"):
        large, small = max(a, b), min(a, b)
        return large < _BER_FLOOR or large <= small * _BER_TOLERANCE
    return first.unit not in _DECIBELS or abs(a - b) <= _SLACK_DB


def _value(reading: Reading | None) -> float:
    return math.nan if reading is None or reading.value is None else reading.value


def _add_q(quantities: dict[str, LinkQuantity]) -> None:
    ber = quantities.get("prefec_ber")
    average = ber.average if ber else None
    if "q" in quantities or average is None or average.quality is not Quality.OK or average.value is None:
        return
    if 0.0 < average.value < 0.5:
        source = f"from {average.source}"
        quantities["q"] = LinkQuantity(average=Reading(q_db(average.value), "dB", Quality.OK, source))
