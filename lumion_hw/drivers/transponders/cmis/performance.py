"""Link performance of one interval, from pages 34h and 35h, VDM samples and page 14h, checked against each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.diagnostics import Diagnostics, Instance, Vdm, VdmSample
from lumion_hw.drivers.transponders.cmis.monitors import lane_readings
from lumion_hw.interfaces import LinkQuantity, Performance, Quality, Reading
from lumion_hw.standards.cmis import FIELDS, codes, decode
from lumion_hw.standards.cmis.codec import MIN_POWER_DBM, q_db
from lumion_hw.standards.cmis.coherent_pages import FEC_COUNTERS, LINK_QUANTITIES
from lumion_hw.standards.cmis.fields import HALF_BYTES
from lumion_hw.standards.cmis.vdm import MODULE_RESOURCE, Observable

FEC_PAGE = 0x34
"""Media FEC counters."""
LINK_PAGE = 0x35
"""Link performance."""
TOLERANCE_DB = 0.5
"""Two sources of a quantity in dB may differ by their resolution and this (docs/transponders.md, "Times")."""
_SLACK_DB = TOLERANCE_DB + 0.1  # and the coarsest resolution of these registers
_DECIBELS = ("dB", "dBm")
_BER_TOLERANCE = 2.0  # what about 0.5 dB of SNR make of a bit error ratio near the FEC limit
_BER_FLOOR = 1e-9
_VDM_WORDS = {"min": "minimum", "max": "maximum", "avg": "average", "current": "current"}
_VDM_FEC = {"ber": "prefec_ber", "errored_frames": "ferc", "sewmax": "sewmax"}
_FEC_UNITS = {"prefec_ber": "", "uncorrectable_frames": "frames", "ferc": ""}
_SIDES = ("media", "host")
_OF_TRANSMITTER = ("laser_", "tec_", "modulator_", "host_", "esnr_host", "pam4_ltp_host", "ferc_total_host", "supply_")
_POWERS = frozenset({"tx_power", "rx_total_power", "rx_signal_power"})


@dataclass
class _Draft:
    """A quantity while its sources come in: readings by member, and rivals of a member from other places."""

    members: dict[str, Reading] = field(default_factory=dict)
    rivals: list[tuple[str, Reading]] = field(default_factory=list)

    def add(self, member: str, reading: Reading) -> None:
        """Take a reading; a member that is there already stays, and the new one is kept for comparison."""
        if member in self.members:
            self.rivals.append((member, reading))
        else:
            self.members[member] = reading

    def finish(self, worth: Quality | None) -> LinkQuantity:
        """Return the quantity; ``worth`` replaces the quality of all its readings."""
        members = {name: _worth(reading, worth) for name, reading in self.members.items()}
        return LinkQuantity(**members, others=tuple(_worth(reading, worth) for _, reading in self.rivals))


def _worth(reading: Reading, worth: Quality | None) -> Reading:
    return reading if worth is None else Reading(reading.value, reading.unit, worth, reading.source)


class PerformanceReader:
    """Reads link performance and counts the intervals.

    Args:
        module: The module.
        vdm: Its diagnostics.
        diagnostics: Its pages 13h and 14h.
        lane: Media lane.
    """

    def __init__(self, module: ModuleContext, vdm: Vdm, diagnostics: Diagnostics, lane: int) -> None:
        self._lane = lane
        self._module = module
        self._vdm = vdm
        self._diagnostics = diagnostics
        self._interval = 0
        self._fresh_before: frozenset[str] = frozenset()
        self._started_s: float | None = None

    def units(self) -> dict[str, str]:
        """Return the names of all quantities that the module measures, with their units."""
        units = dict(_FEC_UNITS) if self._module.advertised.coherent else {}
        if self._module.advertised.coherent:
            units |= {item.name: item.unit for item in LINK_QUANTITIES}
        for item in self._vdm.instances:
            observable = item.descriptor.observable
            if observable is not None:
                units.setdefault(_quantity_of(item, observable)[0], observable.unit)
        return units | ({"q": "dB"} if "prefec_ber" in units else {})

    def read(self, lit: bool, locked: bool) -> Performance:
        """End an interval: freeze, read the statistics, release, read the current values.

        Args:
            lit: The data path is active; otherwise all values are stale.
            locked: The receiver follows a signal; otherwise all values of the receiver are stale.
        """
        module = self._module
        module.needs(module.advertised.coherent or bool(self._vdm.instances), "link performance")
        drafts: dict[str, _Draft] = {}
        remarks: list[str] = []
        # In low power nothing is measured, and a freeze may never be answered.
        in_low_power = module.memory.number("module_state") != codes.ModuleState.READY
        with module.memory.pages.transaction():
            if in_low_power:
                self._statistics(drafts, remarks)
            else:
                with self._vdm.frozen():
                    self._statistics(drafts, remarks)
            ended_s = module.clock.now()
            _take_samples(drafts, self._vdm.samples(statistic=False))
        self._other_pages(drafts)
        self._interval += 1
        started_s, self._started_s = self._started_s, ended_s
        # Registers keep their last values when the signal is gone, so
        # what is worth something follows from state and lock.
        fresh = frozenset(name for name in drafts if lit and (locked or not _of_receiver(name)))
        quantities = {
            name: _finish(name, draft, name in fresh, name in self._fresh_before, remarks)
            for name, draft in drafts.items()
        }
        self._fresh_before = fresh
        _add_q(quantities)
        return Performance(module.clock.now(), self._interval, started_s, ended_s, quantities, tuple(remarks))

    def _statistics(self, drafts: dict[str, _Draft], remarks: list[str]) -> None:
        """Read what a freeze holds still: pages 34h and 35h of a coherent module, and the statistic samples."""
        module = self._module
        if module.advertised.coherent:
            first, last = FEC_COUNTERS[0][1], FEC_COUNTERS[-1][1] + FEC_COUNTERS[-1][2]
            counters = module.memory.pages.read_page(FEC_PAGE, first, last - first)
            _take_fec(drafts, read_counters(counters), remarks)
            _take_link(drafts, module.memory.pages.read_page(LINK_PAGE, HALF_BYTES, HALF_BYTES))
        _take_samples(drafts, self._vdm.samples(statistic=True))

    def _other_pages(self, drafts: dict[str, _Draft]) -> None:
        """Compare with page 14h and the lane monitors where the module offers them.

        Page 14h has a bit error ratio to compare with only while a pattern is being checked.
        """
        checked = self._diagnostics.checks_received_bits(self._lane)
        rivals = {
            "prefec_ber": self._diagnostics.result("media_ber", self._lane) if checked else None,
            "esnr": self._diagnostics.result("media_snr", self._lane),
        }
        lanes = lane_readings(self._module, self._lane)
        rivals |= {"tx_power": lanes["tx_power"], "rx_total_power": lanes["rx_power"]}
        for name, reading in rivals.items():
            if reading is not None and name in drafts and reading.quality is Quality.OK:
                drafts[name].rivals.append(("current", reading))


def _of_receiver(name: str) -> bool:
    """Tell whether a quantity needs a signal at the receiver; powers do not, they say that there is none."""
    return not (name in _POWERS or name.startswith(_OF_TRANSMITTER))


def _finish(name: str, draft: _Draft, fresh: bool, steady: bool, remarks: list[str]) -> LinkQuantity:
    if not fresh:
        return draft.finish(Quality.STALE)
    problem = _contradiction(name, draft, steady)
    if problem:
        remarks.append(f"{name}: {problem}")
    return draft.finish(Quality.INCONSISTENT if problem else None)


def read_counters(data: bytes) -> dict[str, int]:
    """Return the counters of page 34h, by name, from its bytes from 128 on."""
    return {
        name: int.from_bytes(data[byte - HALF_BYTES : byte - HALF_BYTES + length], "big")
        for name, byte, length in FEC_COUNTERS
    }


def bit_error_ratios(counters: Mapping[str, int]) -> tuple[float, float, float, bool] | None:
    """Return average, minimum and maximum of the pre-FEC bit error ratio, and whether they fit together.

    Firmware can truncate the sub-interval counter: then it is computed from the frames, and the triple is marked.
    ``None`` if no bits were counted: the ratio is stale then, never 0.
    """
    bits, per_sub = counters["bits"], counters["bits_sub_interval"]
    if not bits:
        return None
    average = counters["corrected_bits"] / bits
    low, high = counters["corrected_bits_min"], counters["corrected_bits_max"]
    # 1e-9 for the division alone: the counters are integers.
    fits = per_sub > 0 and low / per_sub <= average * (1 + 1e-9) and average <= high / per_sub * (1 + 1e-9)
    if not fits:
        frames = counters["frames"]
        # Both counters run over the same sub-interval, so their ratio to the interval is the same.
        per_sub = bits * counters["frames_sub_interval"] // frames if frames else 0
    if not per_sub:
        return average, average, average, False
    return average, low / per_sub, high / per_sub, fits


def _take_fec(drafts: dict[str, _Draft], counters: Mapping[str, int], remarks: list[str]) -> None:
    ratios = bit_error_ratios(counters)
    ber = drafts.setdefault("prefec_ber", _Draft())
    if ratios is None:
        ber.add("average", Reading(None, "", Quality.STALE, "34h:144/128"))
        return
    average, low, high, fits = ratios
    quality = Quality.OK if fits else Quality.INCONSISTENT
    if not fits:
        remarks.append("prefec_ber: the counters of 34h:136-167 do not lie around the average")
    ber.add("average", Reading(average, "", Quality.OK, "34h:144/128"))
    ber.add("minimum", Reading(low, "", quality, "34h:152/136"))
    ber.add("maximum", Reading(high, "", quality, "34h:160/136"))
    frames = counters["frames"]
    uncorrectable = drafts.setdefault("uncorrectable_frames", _Draft())
    uncorrectable.add("average", Reading(float(counters["uncorrectable_frames"]), "frames", Quality.OK, "34h:176"))
    if frames:
        ferc = drafts.setdefault("ferc", _Draft())
        ferc.add("average", Reading(counters["uncorrectable_frames"] / frames, "", Quality.OK, "34h:176/168"))


def _take_link(drafts: dict[str, _Draft], page: bytes) -> None:
    for quantity in LINK_QUANTITIES:
        draft = drafts.setdefault(quantity.name, _Draft())
        for word, member in (("avg", "average"), ("min", "minimum"), ("max", "maximum")):
            item = FIELDS[f"pm_{quantity.name}_{word}"]
            value = decode(item, page[item.byte - HALF_BYTES : item.byte - HALF_BYTES + item.length])
            number = float(value) if isinstance(value, (int, float)) else 0.0
            draft.add(member, _floored(quantity.name, number, quantity.unit, str(item)))


def _take_samples(drafts: dict[str, _Draft], samples: tuple[VdmSample, ...]) -> None:
    """Take VDM samples; those of unknown types are left out."""
    for sample in samples:
        observable = sample.instance.descriptor.observable
        if observable is not None:
            name, member = _quantity_of(sample.instance, observable)
            reading = _floored(name, sample.value, observable.unit, sample.instance.source)
            drafts.setdefault(name, _Draft()).add(member, reading)


def _quantity_of(instance: Instance, observable: Observable) -> tuple[str, str]:
    """Return the quantity to which an instance belongs and the member that it is.

    Lane 1 and the module as a whole come under the quantity's name, other lanes and the host side under their own.
    """
    name, member = observable.name, "current"
    for prefix, called in _VDM_FEC.items():
        if name.startswith(prefix + "_") and name.endswith(_SIDES):
            word, side = name.removeprefix(prefix + "_").rsplit("_", 1)
            name, member = (called if side == "media" else f"host_{called}"), _VDM_WORDS[word]
    lane = instance.descriptor.lane
    return (name if lane in (1, MODULE_RESOURCE) else f"{name}.{lane}"), member


def _floored(name: str, value: float, unit: str, source: str) -> Reading:
    """Return a reading; a power at the floor is marked, and a bit error ratio of 0 means that none is counted."""
    if name == "prefec_ber" and not 0.0 < value < 0.5:
        return Reading(None, unit, Quality.STALE, source)
    if name in _POWERS and value <= MIN_POWER_DBM:
        return Reading(MIN_POWER_DBM, unit, Quality.BELOW_RANGE, source)
    return Reading(value, unit, Quality.OK, source)


def _contradiction(name: str, draft: _Draft, steady: bool) -> str:
    """Return what does not fit together among the sources of a quantity, or an empty string.

    Like is compared with like; a value of now with the average of the interval only if the link was up all that time.
    """
    good = {key: item for key, item in draft.members.items() if item.quality is Quality.OK and item.value is not None}
    low, high, average = good.get("minimum"), good.get("maximum"), good.get("average")
    if low and high and average and not _value(low) <= _value(average) <= _value(high):
        return f"minimum {_value(low):g}, average {_value(average):g}, maximum {_value(high):g} are not in order"
    pairs = [(good.get(member), rival) for member, rival in draft.rivals if rival.quality is Quality.OK]
    # Over an interval in which the link came up the average holds other times than the value of now.
    if steady and average is not None:
        now = [rival for member, rival in [("current", good.get("current")), *draft.rivals] if member == "current"]
        pairs += [(average, rival) for rival in now if rival is not None and not _between(low, rival, high)]
    for one, other in pairs:
        if one is not None and not _agree(name, one, other):
            return f"{one.source} says {_words(one)}, {other.source} {_words(other)}"
    return ""


def _words(reading: Reading) -> str:
    return f"{_value(reading):g} {reading.unit}".rstrip()


def _between(low: Reading | None, middle: Reading, high: Reading | None) -> bool:
    """Tell whether a value lies in the range of the interval, as far as that is known."""
    slack = _SLACK_DB if middle.unit in _DECIBELS else 0.0
    return bool(low and high) and _value(low) - slack <= _value(middle) <= _value(high) + slack


def _agree(name: str, one: Reading, other: Reading) -> bool:
    """Tell whether two sources agree; only levels in dB and bit error ratios have a rule."""
    a, b = _value(one), _value(other)
    if "ber" in name.split("_"):
        large, small = max(a, b), min(a, b)
        return large < _BER_FLOOR or large <= small * _BER_TOLERANCE
    return one.unit not in _DECIBELS or abs(a - b) <= _SLACK_DB


def _value(reading: Reading | None) -> float:
    return math.nan if reading is None or reading.value is None else reading.value


def _add_q(quantities: dict[str, LinkQuantity]) -> None:
    """Add Q from the bit error ratio where the module does not give it."""
    ber = quantities.get("prefec_ber")
    average = ber.average if ber else None
    if "q" in quantities or average is None or average.quality is not Quality.OK or average.value is None:
        return
    if 0.0 < average.value < 0.5:
        source = f"from {average.source}"
        quantities["q"] = LinkQuantity(average=Reading(q_db(average.value), "dB", Quality.OK, source))
