"""What a user looks at first: whether each lane of a module transmits and receives, and how well."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from lumion_hw.drivers.transponders.decoded import DecodedField, DecodedModule
from lumion_hw.drivers.transponders.lane_difference import KIND
from lumion_hw.interfaces import Quality, Reading

Flag = tuple[str, int | None]
"""Name of a flag without the ending ``_flag``, and its lane; ``None`` for a flag of the module."""
_DARK_DBM = -40.0  # 0.1 µW is the smallest power that a module can report; many report it without light
_MODULE_MONITORS = ("temperature", "supply")
_LANE_MONITORS = ("tx_power", "rx_power", "tx_bias")
# Names in the register maps of all standards.
_LOS = ("rx_los", "rx_los_flag")
_LOL = ("rx_lol_flag",)
_FAULT = ("tx_fault", "tx_failure_flag")
_OFF = ("tx_disable", "tx_disable_state", "soft_tx_disable")
_LINK = {"ber_current_media": "BER before error correction", "osnr": "OSNR", "esnr": "electrical SNR"}
_EVENTS = frozenset({"module_state_changed", "data_path_state_changed", "rx_output_changed", "tuning_complete"})
_EMITTING = frozenset({"activated", "tx_turn_on", "tx_turn_off"})  # states of data paths (CMIS 5.2 clause 6.3.3)
_SHOWN = frozenset({"rx_los", "rx_lol", "tx_failure"})  # flags that the text of a lane contains
_WITHOUT_RX_LIGHT = frozenset(
    {f"rx {power}power low {kind}" for power in ("", "total ", "signal ") for kind in ("alarm", "warning")}
    | {"coherent rx demodulator lol", "coherent rx cd compensation lol", "coherent rx lof", "coherent rx lom"}
)
_WITHOUT_TX_LIGHT = frozenset(
    f"tx {quantity} low {kind}" for quantity in ("power", "bias") for kind in ("alarm", "warning")
)
_COUNTED = (Quality.OK, Quality.CHECKSUM_WRONG)
_MAX_FLAGS = 8
_MAX_LANES = 16  # more lanes are shown in groups, so that a module fits in 25 lines
_POWER_FLAG = re.compile(r"([rt]x)(?: total)? power (?:low|high) (?:alarm|warning)")
_NUMBER = re.compile(r"-?\d+\.\d+")


@dataclass(frozen=True)
class LaneReadings:
    """Readings of one lane; ``None`` for quantities that the module does not measure or the dump does not contain.

    Attributes:
        lane: Number of the media lane, from 1.
        tx_power: Launched power in dBm.
        rx_power: Received power in dBm.
        tx_bias: Laser bias in mA.
        is_on: Whether the transmitter is switched on.
        has_fault: Whether the transmitter reports a fault.
        has_signal: Whether the receiver has a signal (no LOS).
        is_locked: Whether the receiver is locked (no LOL).
        limits: Lowest and highest power in dBm without a warning of the module, by monitor.
    """

    lane: int
    tx_power: Reading | None = None
    rx_power: Reading | None = None
    tx_bias: Reading | None = None
    is_on: bool | None = None
    has_fault: bool | None = None
    has_signal: bool | None = None
    is_locked: bool | None = None
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def transmits(self) -> bool | None:
        """Whether the lane emits light; ``None`` if unknown."""
        return self.is_on if self.tx_power is None else not _is_dark(self.tx_power)

    @property
    def receives(self) -> bool | None:
        """Whether the lane receives a signal; ``None`` if unknown."""
        if self.rx_power is not None and _is_dark(self.rx_power):
            return False
        if self.has_signal is None and self.rx_power is not None:
            return True
        return self.has_signal

    @property
    def is_unlit(self) -> bool:
        """Whether no light arrives. A receiver can lose its signal in spite of light."""
        return self.receives is False and (self.rx_power is None or _is_dark(self.rx_power))

    def __str__(self) -> str:
        return f"lane {self.lane}: {self.state}"

    @property
    def state(self) -> str:
        """What the lane does, as text."""
        bias = "" if self.tx_bias is None else f", bias {_text(self.tx_bias, 'z.1f')}"
        return f"{self._transmission()}, {self._reception()}{bias}"

    def _transmission(self) -> str:
        fault = " (fault)" if self.has_fault else ""
        if self.transmits is False:
            return f"transmits nothing ({'switched off' if self.is_on is False else 'dark'}){fault}"
        if self.tx_power is not None:
            return f"transmits {_text(self.tx_power, 'z.1f')}{self._judgement('tx_power', self.tx_power)}{fault}"
        return f"{'transmits (power not measured)' if self.transmits else 'transmitter unknown'}{fault}"

    def _reception(self) -> str:
        signs = [sign for sign, is_good in (("LOS", self.has_signal), ("LOL", self.is_locked)) if is_good is False]
        flags = f" ({', '.join(signs)})" if signs else ""
        if self.rx_power is not None and not _is_dark(self.rx_power):
            return f"receives {_text(self.rx_power, 'z.1f')}{self._judgement('rx_power', self.rx_power)}{flags}"
        if self.receives is False:
            return f"receives nothing{flags}"
        return f"receives a signal (power not measured){flags}" if self.receives else f"receiver unknown{flags}"

    def is_normal(self, monitor: str) -> bool:
        """Return whether a power, ``tx_power`` or ``rx_power``, is known to be within its limits."""
        power = self.tx_power if monitor == "tx_power" else self.rx_power
        is_measured = power is not None and power.quality is Quality.OK and not _is_dark(power)
        return power is not None and is_measured and monitor in self.limits and not self._judgement(monitor, power)

    def _judgement(self, monitor: str, power: Reading) -> str:
        if monitor not in self.limits or power.value is None:
            return ""
        lowest, highest = self.limits[monitor]
        return " (too low)" if power.value < lowest else " (too high)" if power.value > highest else ""


@dataclass(frozen=True)
class ModuleReadings:
    """Readings of a module.

    Attributes:
        cable: Kind and length of a copper cable; empty for other modules.
        state: State of the module and its data paths; empty if unknown.
        monitors: Temperature and supply, by name.
        lanes: Readings of each lane that the module has.
        link: Quality of the received signal, by name.
        flags: Flags that are set, or were set since the last reading.
        past: Flags that were set, but whose cause is gone.
        warnings: Lanes of one fibre with too different powers.
        limits: Lowest and highest power in dBm without a warning of the module, by monitor.
        is_complete: Whether the dump has all monitors that the module has.
        missing: Which pages of the module are not in the dump, as text; empty without such pages.
        has_flags: Whether the flags of lanes were read.
        is_blank: Whether supply, bias and powers are all 0 in a dump, so that clear status bits mean nothing.
    """

    cable: str = ""
    state: str = ""
    monitors: Mapping[str, Reading] = field(default_factory=dict)
    lanes: tuple[LaneReadings, ...] = ()
    link: Mapping[str, Reading] = field(default_factory=dict)
    flags: tuple[Flag, ...] = ()
    past: tuple[Flag, ...] = ()
    warnings: tuple[str, ...] = ()
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    is_complete: bool = True
    missing: str = ""
    has_flags: bool = True
    is_blank: bool = False

    def of_lane(self, lane: int) -> ModuleReadings:
        """Return the readings of one lane, and those of the whole module."""
        return replace(
            self,
            lanes=tuple(item for item in self.lanes if item.lane == lane),
            flags=tuple(flag for flag in self.flags if flag[1] in (None, lane)),
            past=tuple(flag for flag in self.past if flag[1] in (None, lane)),
        )

    def lines(self) -> Iterator[str]:
        """Yield the readings as lines of text. Flags with the same cause are shown as one flag."""
        if self.cable:
            yield self.cable
        monitors = [f"{name} {_text(reading, '.4g')}" for name, reading in self.monitors.items()]
        parts = ([self.state] if self.state else []) + monitors
        if parts:
            yield "module: " + ", ".join(parts)
        yield from map(str, self.lanes) if len(self.lanes) <= _MAX_LANES else _grouped(self.lanes)
        if self.is_blank and not self.lanes:
            yield "lanes: unknown, because supply, bias and powers are all 0 in the dump"
        elif self.missing and monitors and not self.lanes:
            yield f"lanes: unknown, because {self.missing}"
        yield from (f"warning: {text}" for text in self.warnings)
        if not (monitors or self.lanes or self.is_blank):
            yield "no readings: the module has no monitors" + (
                "" if self.is_complete else ", or they are not in the dump"
            )
        if self.link:
            yield "link: " + ", ".join(f"{name} {_text(reading, '.3g')}" for name, reading in self.link.items())
        verbs = {"tx_power": "transmits", "rx_power": "receives"}
        limits = [f"{verbs[name]} {low:.1f} to {high:.1f} dBm" for name, (low, high) in self.limits.items()]
        if limits and self.lanes:
            yield f"limits of the module: {', '.join(limits)}"
        past = [*self.past, *(flag for flag in self.flags if self._is_over(flag))]
        present = [flag for flag in self.flags if flag not in past]
        for title, texts in (
            ("flags", _flag_texts(dict.fromkeys(self._causes(present)), _EVENTS | _SHOWN)),
            ("earlier flags", _flag_texts(dict.fromkeys(self._causes(past)), _EVENTS)),
        ):
            if texts:
                omitted = f" and {len(texts) - _MAX_FLAGS} more" if len(texts) > _MAX_FLAGS else ""
                yield f"{title}: {', '.join(texts[:_MAX_FLAGS])}{omitted}"
        if self.lanes and not self.has_flags:
            yield "flags: not in the dump, because reading clears them"

    def _is_over(self, flag: Flag) -> bool:
        """Return whether a flag of a power is set, but the power is within its limits."""
        match = _POWER_FLAG.fullmatch(_flag_name(flag[0]))
        lanes = [lane for lane in self.lanes if flag[1] in (None, lane.lane)]
        return match is not None and bool(lanes) and all(lane.is_normal(f"{match[1]}_power") for lane in lanes)

    def _causes(self, flags: Collection[Flag]) -> Iterator[Flag]:
        """Yield flags, with the missing light in place of its consequences, and without warnings below alarms."""
        alarms = {(_flag_name(name), lane) for name, lane in flags}
        for name, lane in flags:
            lanes = [item for item in self.lanes if lane in (None, item.lane)]
            flag = _flag_name(name)
            if flag.endswith(" warning") and (flag.removesuffix("warning") + "alarm", lane) in alarms:
                continue
            if lanes and flag in _WITHOUT_RX_LIGHT and all(item.is_unlit for item in lanes):
                yield "no light received", lane
            elif lanes and flag in _WITHOUT_TX_LIGHT and all(item.transmits is False for item in lanes):
                yield "no light sent", lane
            else:
                yield name, lane


def module_readings(
    module: DecodedModule, flags: Collection[Flag] | None = None, past: Collection[Flag] = ()
) -> ModuleReadings:
    """Return the readings in a decoded memory of a module of any standard.

    Args:
        module: The decoded memory.
        flags: Flags that are set, read from the module, because a dump does not read flags; ``None`` if not read.
        past: Flags that were set, but whose cause is gone.
    """
    # Flat memories have the fields of the module state and monitors, but may leave them 0.
    is_blank = flags is None and not module.flat and _is_blank(module)
    table = {
        (item.name, item.index): item
        for item in module.fields
        if item.quality is not Quality.NOT_SUPPORTED and (item.value or not (module.flat or is_blank))
    }
    set_flags = tuple(dict.fromkeys([*_set_flags(module), *(flags or ())]))
    limits = dict(_limits(table))
    missing = [finding.message for finding in module.findings if finding.kind == "missing_page"]
    lanes = tuple(
        replace(_lane(table, set_flags, lane, flags is not None), limits=limits) for lane in _lanes(table, set_flags)
    )
    return ModuleReadings(
        cable=module.cable,
        state=_state(table),
        monitors={name: _reading(table[name, None]) for name in _MODULE_MONITORS if (name, None) in table},
        lanes=lanes,
        link=_link(module) if any(lane.receives is not False for lane in lanes) else {},
        flags=set_flags,
        past=tuple(past),
        warnings=tuple(finding.message for finding in module.findings if finding.kind == KIND),
        limits=limits,
        is_complete=not (module.damage or missing),
        missing="; ".join(missing),
        has_flags=flags is not None or module.standard == "SFF-8472" or _has_lane_flags(module),
        is_blank=is_blank,
    )


def _is_blank(module: DecodedModule) -> bool:
    """Return whether a dump has supply, bias and powers, and all of them are 0."""
    raw = dict.fromkeys(("supply", *_LANE_MONITORS), "")
    for item in module.fields:
        if item.name in raw:
            raw[item.name] += item.raw
    # A module that has a state is awake, even if it measures nothing.
    has_state = any(item.name == "module_state" and item.value for item in module.fields)
    return not has_state and all(text and not text.strip("0") for text in raw.values())


def _has_lane_flags(module: DecodedModule) -> bool:
    return any(item.index is not None and item.name in (*_LOS, *_LOL, *_FAULT) for item in module.fields)


def _limits(table: Mapping[Flag, DecodedField]) -> Iterator[tuple[str, tuple[float, float]]]:
    for monitor in ("tx_power", "rx_power"):
        if not any(name == monitor for name, _ in table):
            continue
        items = [
            next((table[key, None] for key in (name, f"{name}_threshold") if (key, None) in table), None)
            for name in (f"{monitor}_low_warning", f"{monitor}_high_warning")
        ]
        low, high = (None if item is None or item.quality is not Quality.OK else _reading(item).value for item in items)
        if low is not None and high is not None and low < high:
            yield monitor, (low, high)


def _lanes(table: Mapping[Flag, DecodedField], flags: Collection[Flag]) -> list[int]:
    indices = {index for name, index in table if name in (*_LANE_MONITORS, *_LOS, *_FAULT, *_OFF)}
    measured = {index for name, index in table if name in _LANE_MONITORS}
    flagged = {name.removesuffix("_flag") for name in (*_LOS, *_LOL, *_FAULT)}
    indices |= {lane for name, lane in flags if name in flagged and lane is not None}
    # Flags have a bit for every possible lane, monitors only for lanes of the module.
    return sorted({1 if index is None else index for index in measured or indices})


def _lane(table: Mapping[Flag, DecodedField], flags: Collection[Flag], lane: int, are_flags_read: bool) -> LaneReadings:
    def find(names: Collection[str]) -> DecodedField | None:
        return next((table[name, index] for name in names for index in (lane, None) if (name, index) in table), None)

    def is_set(names: Collection[str]) -> bool | None:
        """Return whether any of the flags is set; ``None`` if the module has not reported this."""
        if any((name.removesuffix("_flag"), lane) in flags for name in names):
            return True
        values = [item.value for name in names if (item := find([name])) is not None and item.value is not None]
        if values:
            return any(values)
        # Without an initialised data path, a module sets no flags of lanes.
        is_known = (
            are_flags_read
            and _has_path(table, _EMITTING | {"initialized"})
            and any(_is_true(table, f"{name}_supported") for name in names)
        )
        return False if is_known else None

    readings = {name: None if (item := find([name])) is None else _reading(item) for name in _LANE_MONITORS}
    lost, unlocked, off = is_set(_LOS), is_set(_LOL), is_set(_OFF)
    if lost is not None and _is_inverted(table):
        lost = not lost
    # A cable may have no other sign of its signal than valid outputs to the host.
    outputs = [item.value for (name, _), item in table.items() if name == "rx_output_valid" and item.value is not None]
    if lost is None and readings["rx_power"] is None and outputs and all(outputs):
        lost = False
    if not _has_path(table, _EMITTING):
        off = True
    return LaneReadings(
        lane=lane,
        tx_power=readings["tx_power"],
        rx_power=readings["rx_power"],
        tx_bias=readings["tx_bias"],
        is_on=None if off is None else not off,
        has_fault=is_set(_FAULT),
        has_signal=None if lost is None else not lost,
        is_locked=None if unlocked is None else not unlocked,
    )


def _is_true(table: Mapping[Flag, DecodedField], name: str) -> bool:
    item = table.get((name, None))
    return item is not None and item.value is True


def _has_path(table: Mapping[Flag, DecodedField], states: Collection[str]) -> bool:
    """Return whether a data path is in one of these states; true for modules without data paths."""
    actual = {item.description for (name, _), item in table.items() if name == "data_path_state" and item.description}
    return not actual or not actual.isdisjoint(states)


def _is_inverted(table: Mapping[Flag, DecodedField]) -> bool:
    # SFF-8472, A0h:65.2 without 65.1: the module signals detection instead of loss.
    inverted, normal = table.get(("los_inverted", None)), table.get(("los_implemented", None))
    return inverted is not None and inverted.value is True and (normal is None or normal.value is False)


def _is_dark(power: Reading) -> bool:
    return power.quality is Quality.BELOW_RANGE or (power.value is not None and power.value <= _DARK_DBM)


def _reading(item: DecodedField) -> Reading:
    value = float(item.value) if isinstance(item.value, (int, float)) else None
    quality, unit = item.quality, item.unit
    if unit == "mW":
        unit = "dBm"
        if value is not None:
            value = 10.0 * math.log10(value) if value > 0.0 else None
            quality = Quality.BELOW_RANGE if value is None and quality in _COUNTED else quality
    return Reading(value, unit, quality, item.address)


def _state(table: Mapping[Flag, DecodedField]) -> str:
    module = table.get(("module_state", None))
    paths = [item.description for (name, _), item in table.items() if name == "data_path_state" and item.description]
    parts = [] if module is None or not module.description else [module.description]
    if paths:
        parts.append("data paths " + ", ".join(dict.fromkeys(paths)))
    not_ready = table.get(("data_not_ready", None))
    if not_ready is not None and not_ready.value is True:
        parts.append("monitors not ready")
    return ", ".join(parts)


def _link(module: DecodedModule) -> dict[str, Reading]:
    # Receivers without lock report 0.
    return {
        _LINK[item.name]: Reading(item.value, item.unit, Quality.OK, item.source)
        for item in reversed(module.samples)
        if item.name in _LINK and item.value
    }


def _set_flags(module: DecodedModule) -> Iterator[Flag]:
    for item in module.fields:
        stem = item.name.removesuffix("_flag")
        is_flag = stem != item.name or item.name.startswith(("alarm_", "warning_"))
        if is_flag and item.value is True and item.quality in _COUNTED:
            yield stem, item.index


def _flag_texts(flags: Collection[Flag], omitted: Collection[str]) -> list[str]:
    lanes: dict[str, list[int]] = {}
    for name, lane in flags:
        if name not in omitted:
            lanes.setdefault(name, []).extend([] if lane is None else [lane])
    return [_flag_name(name) + (f" ({_lanes_text(numbers)})" if numbers else "") for name, numbers in lanes.items()]


def _flag_name(name: str) -> str:
    kind, _, rest = name.partition("_")
    # SFF-8472 has one word for all alarms and one for all warnings.
    return (f"{rest}_{kind}" if kind in ("alarm", "warning") else name).replace("_", " ")


def _grouped(lanes: Collection[LaneReadings]) -> Iterator[str]:
    """Yield one line for all lanes in the same state, with the lowest and the highest reading."""
    groups: dict[str, list[LaneReadings]] = {}
    for lane in lanes:
        groups.setdefault(_NUMBER.sub("#", lane.state), []).append(lane)
    for state, members in groups.items():
        columns = zip(*(_NUMBER.findall(lane.state) for lane in members), strict=True)
        ranges = (sorted(set(column), key=float) for column in columns)
        texts = [" to ".join(dict.fromkeys((values[0], values[-1]))) for values in ranges]
        text = "".join(map(str.__add__, state.split("#"), [*texts, ""]))
        yield f"{_lanes_text([lane.lane for lane in members])}: {text}"


def _lanes_text(lanes: Collection[int]) -> str:
    """Return lane numbers as text, such as ``lanes 1 to 4, 7``."""
    runs: list[list[int]] = []
    for lane in sorted(lanes):
        if runs and lane == runs[-1][-1] + 1:
            runs[-1].append(lane)
        else:
            runs.append([lane])
    texts = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"lane{'s' if len(lanes) > 1 else ''} {', '.join(texts)}"


def _text(reading: Reading, number_format: str) -> str:
    if reading.value is None:
        return "unknown" if reading.quality is Quality.STALE else reading.quality.value.replace("_", " ")
    unit = {"degC": "°C"}.get(reading.unit, reading.unit)
    doubt = "" if reading.quality is Quality.OK else f" ({reading.quality.value.replace('_', ' ')})"
    return f"{format(reading.value, number_format)} {unit}".rstrip() + doubt
