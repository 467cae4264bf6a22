"""Loopbacks and test patterns (pages 13h, 14h) and VDM samples (pages 20h to 2Fh)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lumion_hw.drivers.transponders.cmis.advertised import LOOPBACKS
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.memory import CmisMemory, FlagKey, by_bank, in_bank
from lumion_hw.errors import ConfigError, DeviceError, DeviceTimeoutError
from lumion_hw.interfaces import Quality, Reading
from lumion_hw.standards.cmis import FIELDS, Field
from lumion_hw.standards.cmis.codec import vdm_value
from lumion_hw.standards.cmis.codes import DiagnosticsSelector, Pattern
from lumion_hw.standards.cmis.fields import HALF_BYTES, LANES, LIMITS
from lumion_hw.standards.cmis.vdm import (
    CONTROL_PAGE,
    DESCRIPTOR_PAGE,
    FLAG_PAGE,
    GROUPS,
    INSTANCES,
    MODULE_RESOURCE,
    SAMPLE_PAGE,
    Descriptor,
    Observable,
    decode_descriptor,
)

RESULTS_S = 0.2
"""Time until page 14h shows the selected results, in s (docs/transponders.md, "Times")."""
_SELECTORS = {
    "host_ber": ("ber_results_supported", DiagnosticsSelector.BER),
    "media_ber": ("ber_results_supported", DiagnosticsSelector.BER),
    "host_snr": ("host_snr_supported", DiagnosticsSelector.SNR),
    "media_snr": ("media_snr_supported", DiagnosticsSelector.SNR),
}


_COUNTERS = {
    "host": (DiagnosticsSelector.HOST_COUNTERS_1_4, DiagnosticsSelector.HOST_COUNTERS_5_8),
    "media": (DiagnosticsSelector.MEDIA_COUNTERS_1_4, DiagnosticsSelector.MEDIA_COUNTERS_5_8),
}
_COUNTED_TOGETHER = 4
_CONTROL_PAGE = 0x13
RESULT_PAGE = 0x14
"""Page of the diagnostics results and flags."""


@dataclass(frozen=True)
class PatternCount:
    """Counters of a test pattern checker (page 14h, selectors 02h to 05h).

    Attributes:
        bits: Number of checked bits.
        errors: Number of wrong bits.
    """

    bits: int
    errors: int


class Diagnostics:
    """Loopbacks, test patterns and statistics of an open module.

    Attributes:
        loopbacks: Names of the supported loopbacks.
        lanes: Lanes in the banks with diagnostics pages; all lanes of most modules.
    """

    def __init__(self, module: ModuleContext) -> None:
        self._module = module
        self._offers = bool(module.advertised.supported("diagnostics_selector"))
        supported: dict[str, bool] = {}
        self._results: dict[str, bool] = {}
        n_banks = 1
        if self._offers:
            supported, self._results = module.readable("page 13h", self._offered, (supported, self._results))
            n_banks = self._count_banks()
        self.loopbacks = tuple(name for name in LOOPBACKS if supported.get(name))
        self.lanes = tuple(range(1, LANES * n_banks + 1))
        module.flags.n_banks[RESULT_PAGE] = n_banks

    def _offered(self) -> tuple[dict[str, bool], dict[str, bool]]:
        memory = self._module.memory
        with memory.pages.transaction():
            supported = {name: bool(memory.value(f"{name}_loopback_supported")) for name in LOOPBACKS}
            return supported, {name: bool(memory.value(bit)) for name, (bit, _) in _SELECTORS.items()}

    def _count_banks(self) -> int:
        # A module may have the pages of lanes in a bank without those of diagnostics.
        memory = self._module.memory
        further = range(1, memory.n_banks)
        pages = (_CONTROL_PAGE, RESULT_PAGE)
        missing = (
            offset
            for offset in further
            if not all(memory.pages.has_page(page, memory.bank_of(page, offset)) for page in pages)
        )
        return next(missing, memory.n_banks)

    def set_loopback(self, kind: str, on: bool, lanes: Collection[int] | None = None) -> None:
        """Switch a loopback of the module on or off.

        Args:
            kind: One of ``LOOPBACKS``.
            on: ``True`` closes the loopback, ``False`` opens it.
            lanes: Lanes; all by default. Some modules support loopbacks only for all lanes of a bank.

        Raises:
            NotSupportedError: The module does not support this loopback.
            ConfigError: The module does not have a lane.
        """
        module = self._module
        module.needs(kind in self.loopbacks, f"a {kind.replace('_', ' ')} loopback")
        lanes = self._checked(lanes)
        side = kind.partition("_")[0]
        whole = all(len(set(local)) == LANES for local in by_bank(lanes).values())
        per_lane = whole or bool(module.memory.value(f"per_lane_{side}_loopback"))
        module.needs(per_lane, f"a {side} loopback of single lanes")
        module.guard()
        if on and not module.memory.value("host_and_media_loopback"):
            other_side = [name for name, closed in self.closed_loopbacks().items() if closed and side not in name]
            module.needs(not other_side, f"a {side} loopback together with the {' and '.join(other_side)} loopback")
        module.memory.set_lanes(f"{kind}_loopback", lanes, on)

    def _checked(self, lanes: Collection[int] | None) -> Collection[int]:
        """Return the requested lanes; by default all. Raises ``ConfigError`` for lanes without diagnostics."""
        missing = sorted(set(lanes or ()) - set(self.lanes))
        if missing:
            raise self._module.error(
                ConfigError,
                f"there is no lane {missing[0]} for loopbacks and test patterns",
                f"The module has them on lanes 1 to {self.lanes[-1]}.",
            )
        return self.lanes if lanes is None else lanes

    def _banks(self) -> range:
        """Return the banks with diagnostics pages, counted from that of lanes 1 to 8."""
        return range(len(self.lanes) // LANES)

    def closed_loopbacks(self) -> dict[str, tuple[int, ...]]:
        """Return the lanes on which each supported loopback is closed. Empty if the module supports none."""
        memory = self._module.memory
        with memory.pages.transaction():
            states = {
                kind: [on for offset in self._banks() for on in memory.of_bank(offset).values(f"{kind}_loopback")]
                for kind in self.loopbacks
            }
        return {
            kind: tuple(lane for lane, on in zip(self.lanes, bits, strict=True) if on) for kind, bits in states.items()
        }

    def patterns(self, end: str) -> tuple[Pattern, ...]:
        """Return the supported patterns.

        ``end`` is ``host_generator``, ``media_generator``, ``host_checker`` or ``media_checker``.
        """
        module = self._module
        module.needs(self._offers, "test patterns")
        if f"{end}_patterns" not in FIELDS:
            raise module.error(
                ConfigError,
                f"{end!r} is not a pattern generator or checker",
                "Use host_generator, media_generator, host_checker or media_checker.",
            )
        bits = module.memory.number(f"{end}_patterns")
        return tuple(pattern for pattern in Pattern if bits >> pattern & 1)

    def start_pattern(self, end: str, pattern: Pattern, lanes: Collection[int] | None = None) -> None:
        """Start a test pattern generator or checker on lanes, by default on all.

        Raises:
            NotSupportedError: The module does not support this pattern.
            ConfigError: The module does not have a lane.
        """
        module = self._module
        module.needs(pattern in self.patterns(end), f"{pattern.name} at the {end.replace('_', ' ')}")
        lanes = self._checked(lanes)
        module.guard()
        with module.memory.pages.transaction():
            for lane in lanes:
                module.memory.write(f"{end}_pattern", int(pattern), lane)
            module.memory.set_lanes(f"{end}_enable", lanes, True)

    def stop_pattern(self, end: str, lanes: Collection[int] | None = None) -> None:
        """Stop a test pattern generator or checker. Raises the errors of :meth:`start_pattern`."""
        self.patterns(end)
        lanes = self._checked(lanes)
        self._module.guard()
        self._module.memory.set_lanes(f"{end}_enable", lanes, False)

    def checks_received_bits(self, lane: int) -> bool:
        """Return whether the media checker of a lane counts errors before the FEC decoder corrects them."""
        checks = bool(self._results.get("media_ber")) and self._checks("media", lane)
        return checks and not self._module.memory.value("media_checker_fec_side", lane)

    def _checks(self, side: str, lane: int) -> bool:
        return bool(self._module.memory.value(f"{side}_checker_enable", lane))

    def result(self, name: str, lane: int) -> Reading | None:
        """Return a result of page 14h, such as ``media_ber``, or ``None`` if the module does not support it.

        Without a running pattern checker, bit error ratios are stale (CMIS 5.x, page 14h).
        """
        if not self._results.get(name):
            return None
        side, _, quantity = name.partition("_")
        field = FIELDS[name]
        offset, local = in_bank(field, lane)
        source = f"14h:{field.span(local).start}" + (f" of bank {offset}" if offset else "")
        if quantity == "ber" and not self._checks(side, lane):
            return Reading(None, field.unit, Quality.STALE, source)
        memory = self._module.memory.of_bank(offset)
        with memory.pages.transaction():
            self._select(memory, _SELECTORS[name][1])
            value = memory.value(name, local)
        return Reading(float(value) if isinstance(value, (int, float)) else 0.0, field.unit, Quality.OK, source)

    def _select(self, memory: CmisMemory, selector: DiagnosticsSelector) -> None:
        """Select the results on page 14h of one bank."""
        # Written only if it differs, because each write delays the results by up to 0.2 s.
        if memory.number("diagnostics_selector") != selector:
            memory.write("diagnostics_selector", int(selector))
            self._module.clock.sleep(RESULTS_S)

    def counts(self, side: str, lanes: Collection[int]) -> dict[int, PatternCount]:
        """Return the counts of a pattern checker since an arbitrary start; only differences of two calls are useful.

        Args:
            side: ``host`` or ``media``.
            lanes: Lanes to read. Each group of four takes up to 0.2 s, because the module must select the results.

        Raises:
            NotSupportedError: The module does not count bits (13h:130.1).
            ConfigError: The module does not have a lane.
            DeviceError: A checker is off.
        """
        module = self._module
        lanes = self._checked(lanes)
        module.needs(self._offers and module.memory.value("bit_counting_supported"), "counting bits of a test pattern")
        self._need_checkers(side, lanes)
        counts: dict[int, PatternCount] = {}
        for offset in self._banks():
            for first, selector in zip((1, 5), _COUNTERS[side], strict=True):
                start = LANES * offset + first
                group = [lane for lane in lanes if start <= lane < start + _COUNTED_TOGETHER]
                if group:
                    counts |= self._read_counts(group, start, module.memory.of_bank(offset), selector)
        # A module that was reset or replaced in the meantime shows zeros, which look like a result.
        self._need_checkers(side, lanes)
        return counts

    def _need_checkers(self, side: str, lanes: Collection[int]) -> None:
        off = [lane for lane in lanes if not self._checks(side, lane)]
        if off:
            raise self._module.error(
                DeviceError,
                f"the {side} pattern checker of lane {', '.join(map(str, off))} is off",
                "Start it. If it was on, the module was reset or unplugged, or another program stopped it.",
            )

    def _read_counts(
        self, lanes: Collection[int], first: int, memory: CmisMemory, selector: DiagnosticsSelector
    ) -> dict[int, PatternCount]:
        errors, bits = FIELDS["error_count"], FIELDS["bit_count"]
        start, end = errors.all_bytes().start, bits.all_bytes().stop
        with memory.pages.transaction():
            self._select(memory, selector)
            # In one transfer, so that bits and errors belong together.
            data = memory.pages.read_page(RESULT_PAGE, start, end - start, memory.bank)

        def count(field: Field, lane: int) -> int:
            span = field.span(lane - first + 1)
            return int.from_bytes(data[span.start - start : span.stop - start], "little")

        # The lowest bit of the bit count is a flag: the pattern was lost.
        return {lane: PatternCount(count(bits, lane) & ~1, count(errors, lane)) for lane in lanes}


FREEZE_S = 1.0
"""Time to freeze or unfreeze statistics, in s (docs/transponders.md, "Times")."""


@dataclass(frozen=True)
class Instance:
    """One quantity that the module monitors (VDM instance).

    Attributes:
        offset: Bank, counted from that of lanes 1 to 8.
    """

    group: int
    number: int
    descriptor: Descriptor
    offset: int = 0

    @property
    def lane(self) -> int | None:
        """Lane, counted over all banks; ``None`` for a quantity of the whole module."""
        lane = self.descriptor.lane
        return None if lane == MODULE_RESOURCE else lane + LANES * self.offset

    @property
    def byte(self) -> int:
        """Address of the first byte on its page."""
        return HALF_BYTES + 2 * self.number

    @property
    def source(self) -> str:
        """Memory address, for messages."""
        address = f"{SAMPLE_PAGE + self.group:02X}h:{self.byte}"
        return f"{address} of bank {self.offset}" if self.offset else address


@dataclass(frozen=True)
class VdmSample:
    """Value of a VDM instance, in the unit of the quantity; a raw number for unknown types."""

    instance: Instance
    value: float


def listed_instances(descriptors: bytes, group: int, offset: int = 0) -> tuple[Instance, ...]:
    """Return the VDM instances in the 128 bytes of a descriptor page.

    Quantities of the whole module are omitted in further banks, because they repeat those of the first.
    """
    instances = (
        Instance(group, number, decode_descriptor(descriptors[2 * number : 2 * number + 2]), offset)
        for number in range(INSTANCES)
    )
    return tuple(item for item in instances if item.descriptor.code and not (offset and item.lane is None))


def sample_value(instance: Instance, data: bytes) -> float:
    """Return the value in the two bytes of a VDM sample."""
    observable = instance.descriptor.observable
    return float(int.from_bytes(data, "big")) if observable is None else vdm_value(observable, data)


class Vdm:
    """Versatile diagnostics monitoring (VDM) of an open module.

    Attributes:
        instances: Quantities that the module monitors in the bank of lanes 1 to 8.
        further: Quantities of lanes in further banks.
        groups: VDM groups that list quantities, or whose descriptor page cannot be read.
    """

    def __init__(self, module: ModuleContext) -> None:
        self._module = module
        by_group: dict[int, tuple[Instance, ...] | None] = {}
        if module.advertised.supported("vdm_groups"):
            memory = module.memory
            with memory.pages.transaction():
                # The register contains the number of groups minus one.
                last = module.readable(f"page {CONTROL_PAGE:02X}h", lambda: memory.number("vdm_groups"), None)
                groups = range(0 if last is None else min(last + 1, GROUPS))
                by_group = {group: self._listed(group) for group in groups}
            if last is None:
                by_group = dict.fromkeys(range(GROUPS))
        self.instances = tuple(item for items in by_group.values() for item in items or ())
        self.groups = frozenset(group for group, items in by_group.items() if items != ())
        self.further = tuple(self._of_further_banks())
        module.flags.n_banks[FLAG_PAGE] = 1 + max((item.offset for item in self.further), default=0)
        module.flags.names |= dict(self._flag_names())

    def _listed(self, group: int, offset: int = 0) -> tuple[Instance, ...] | None:
        page, memory = DESCRIPTOR_PAGE + group, self._module.memory
        name = f"page {page:02X}h of bank {offset}" if offset else f"page {page:02X}h"
        return self._module.readable(name, lambda: listed_instances(memory.half(page, offset)[0], group, offset), None)

    def _of_further_banks(self) -> Iterator[Instance]:
        memory = self._module.memory
        for offset in range(1, memory.n_banks if self.instances else 1):
            # A module may have the pages of lanes in a bank without those of VDM.
            if not memory.pages.has_page(FLAG_PAGE, memory.bank_of(FLAG_PAGE, offset)):
                return
            for group in sorted(self.groups):
                if memory.pages.has_page(DESCRIPTOR_PAGE + group, memory.bank_of(DESCRIPTOR_PAGE, offset)):
                    yield from self._listed(group, offset) or ()

    @property
    def has_statistics(self) -> bool:
        """Whether the module has VDM statistics, which can be frozen."""
        return bool(self._statistics())

    def _statistics(self) -> list[Instance]:
        return [item for item in (*self.instances, *self.further) if _is_statistic(item.descriptor.observable)]

    def find(self, name: str, lane: int = 1) -> Instance | None:
        """Return the VDM instance of a quantity on a lane, or ``None`` if there is none."""
        in_bank = [(item, item.lane) for item in self.further] if lane > LANES else []
        for item, item_lane in (*in_bank, *((item, item.descriptor.lane) for item in self.instances)):
            observable = item.descriptor.observable
            if observable is not None and observable.name == name and item_lane == lane:
                return item
        return None

    def samples(self, statistic: bool | None = None, *, all_banks: bool = False) -> tuple[VdmSample, ...]:
        """Read the VDM samples.

        Args:
            statistic: ``True`` for statistics only, ``False`` for basic values only; default both.
            all_banks: Whether to read those of lanes above 8 too.
        """
        listed = (*self.instances, *self.further) if all_banks else self.instances
        selected = [item for item in listed if statistic in (None, _is_statistic(item.descriptor.observable))]
        memory = self._module.memory
        result = []
        for offset, group in sorted({(item.offset, item.group) for item in selected}):
            page = SAMPLE_PAGE + group
            data = memory.pages.read_page(page, HALF_BYTES, HALF_BYTES, memory.bank_of(page, offset))
            result += [
                VdmSample(item, sample_value(item, data[2 * item.number : 2 * item.number + 2]))
                for item in selected
                if (item.offset, item.group) == (offset, group)
            ]
        return tuple(result)

    def current(self, name: str, lane: int = 1) -> float | None:
        """Read the present value of a quantity, or ``None`` if the module does not monitor it."""
        item = self.find(name, lane)
        if item is None:
            return None
        memory, page = self._module.memory, SAMPLE_PAGE + item.group
        return sample_value(item, memory.pages.read_page(page, item.byte, 2, memory.bank_of(page, item.offset)))

    @contextmanager
    def frozen(self) -> Iterator[bool]:
        """Freeze the VDM statistics in a ``with`` block. The end of the block starts a new interval.

        Yields ``False``, with a warning, if the module does not confirm the freeze.
        """
        module = self._module
        # Modules without statistics may never set FreezeDone.
        if not (self.has_statistics and module.quirks.freeze):
            yield False
            return
        # Each bank has its own statistics.
        banks = [module.memory.of_bank(offset) for offset in sorted({item.offset for item in self._statistics()})]
        try:
            for bank in banks:
                bank.write("vdm_freeze_request", True)
            confirmed = [self._await(bank, "vdm_freeze_done") for bank in banks]
            # Unfreezing starts a new interval, so all values must be read before (CMIS, VDM freeze).
            yield all(confirmed)
        finally:
            for bank in banks:
                bank.write("vdm_freeze_request", False)
            for bank in banks:
                self._await(bank, "vdm_unfreeze_done")

    def _await(self, bank: CmisMemory, field: str) -> bool:
        module = self._module
        try:
            module.wait(lambda: bool(bank.value(field)), FREEZE_S, lambda: f"{field} is not set")
        except DeviceTimeoutError as error:
            module.warnings.append(error.message)
            return False
        return True

    def _flag_names(self) -> Iterator[tuple[FlagKey, FlagKey]]:
        for item in (*self.instances, *self.further):
            observable = item.descriptor.observable
            name = observable.name if observable else f"vdm_type_{item.descriptor.code}"
            number = item.number + INSTANCES * item.offset
            for limit in LIMITS:
                yield (f"vdm_{item.group}_{limit}", number), (f"{name}_{limit}", item.lane)


def _is_statistic(observable: Observable | None) -> bool:
    return observable is not None and observable.statistic
