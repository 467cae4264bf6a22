"""Versatile diagnostics: which observables a module lists, their samples, and the freeze that ends an interval."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.memory import FlagKey
from lumion_hw.errors import DeviceTimeoutError
from lumion_hw.standards.cmis.codec import vdm_value
from lumion_hw.standards.cmis.fields import HALF_BYTES, LIMITS
from lumion_hw.standards.cmis.vdm import (
    DESCRIPTOR_PAGE,
    GROUPS,
    INSTANCES,
    SAMPLE_PAGE,
    Descriptor,
    Observable,
    decode_descriptor,
)

FREEZE_S = 1.0
"""Time for a freeze or its release (facts, transponders 5)."""


@dataclass(frozen=True)
class Instance:
    """One instance that a module lists."""

    group: int
    number: int
    descriptor: Descriptor

    @property
    def byte(self) -> int:
        """Its byte on the descriptor and sample pages of its group."""
        return HALF_BYTES + 2 * self.number

    @property
    def source(self) -> str:
        """Address of its sample."""
        return f"{SAMPLE_PAGE + self.group:02X}h:{self.byte}"


@dataclass(frozen=True)
class VdmSample:
    """One sample: its instance, and its value in the observable's unit (the raw number of an unknown type)."""

    instance: Instance
    value: float


def listed(descriptors: bytes, group: int) -> tuple[Instance, ...]:
    """Return the instances on the 128 bytes of a descriptor page."""
    found = (
        Instance(group, number, decode_descriptor(descriptors[2 * number : 2 * number + 2]))
        for number in range(INSTANCES)
    )
    return tuple(item for item in found if item.descriptor.code)


def sample_value(instance: Instance, data: bytes) -> float:
    """Return the value of a sample's two bytes."""
    observable = instance.descriptor.observable
    return float(int.from_bytes(data, "big")) if observable is None else vdm_value(observable, data)


class Vdm:
    """The diagnostics of an open module. Descriptors are read once.

    Attributes:
        instances: What the module lists.
    """

    def __init__(self, module: ModuleContext) -> None:
        self._module = module
        self.instances: tuple[Instance, ...] = ()
        if module.advertised.supported("vdm_groups"):
            memory = module.memory
            with memory.pages.transaction():
                groups = range(min(memory.number("vdm_groups") + 1, GROUPS))
                pages = {group: memory.half(DESCRIPTOR_PAGE + group)[0] for group in groups}
            self.instances = tuple(item for group, page in pages.items() for item in listed(page, group))
        module.flags.names |= dict(self._flag_names())

    @property
    def has_statistics(self) -> bool:
        """Whether an instance is a statistic, so that a freeze has a meaning."""
        return any(item.descriptor.observable and item.descriptor.observable.statistic for item in self.instances)

    def find(self, name: str, lane: int = 1) -> Instance | None:
        """Return the instance of an observable on a lane."""
        for item in self.instances:
            observable = item.descriptor.observable
            if observable is not None and observable.name == name and item.descriptor.lane == lane:
                return item
        return None

    def samples(self, statistic: bool | None = None) -> tuple[VdmSample, ...]:
        """Read samples, in one transfer per group.

        Args:
            statistic: Only statistics, or only basic values; both by default.
        """
        wanted = [item for item in self.instances if statistic in (None, _is_statistic(item.descriptor.observable))]
        memory = self._module.memory
        found = []
        for group in sorted({item.group for item in wanted}):
            data = memory.pages.read_page(SAMPLE_PAGE + group, HALF_BYTES, HALF_BYTES, memory.bank)
            found += [
                VdmSample(item, sample_value(item, data[2 * item.number : 2 * item.number + 2]))
                for item in wanted
                if item.group == group
            ]
        return tuple(found)

    def current(self, name: str, lane: int = 1) -> float | None:
        """Read one basic value; ``None`` if the module does not list it."""
        item = self.find(name, lane)
        if item is None:
            return None
        memory = self._module.memory
        return sample_value(item, memory.pages.read_page(SAMPLE_PAGE + item.group, item.byte, 2, memory.bank))

    @contextmanager
    def frozen(self) -> Iterator[bool]:
        """Hold the statistics still inside the block; the release begins a new interval.

        Yields whether they are frozen. A module without statistics is not asked; one that never reports the freeze is
        read unfrozen, and a warning is kept.
        """
        module = self._module
        if not (self.has_statistics and module.quirks.freeze):
            yield False
            return
        memory = module.memory
        memory.write("vdm_freeze_request", True)
        try:
            yield self._await("vdm_freeze_done")
        finally:
            memory.write("vdm_freeze_request", False)
            self._await("vdm_unfreeze_done")

    def _await(self, field: str) -> bool:
        module = self._module
        try:
            module.wait(lambda: bool(module.memory.value(field)), FREEZE_S, lambda: f"{field} is not set")
        except DeviceTimeoutError as error:
            module.warnings.append(error.message)
            return False
        return True

    def _flag_names(self) -> Iterator[tuple[FlagKey, FlagKey]]:
        """Yield how the flags of instances are called by what they observe."""
        for item in self.instances:
            observable, lane = item.descriptor.observable, item.descriptor.lane
            name = observable.name if observable else f"vdm_type_{item.descriptor.code}"
            for limit in LIMITS:
                yield (f"vdm_{item.group}_{limit}", item.number), (f"{name}_{limit}", lane)


def _is_statistic(observable: Observable | None) -> bool:
    return observable is not None and observable.statistic
