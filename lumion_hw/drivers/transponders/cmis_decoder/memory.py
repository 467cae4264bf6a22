"""Reads fields from a module's memory dump."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from lumion_hw.drivers.transponders.cmis.advertised import Advertised
from lumion_hw.drivers.transponders.decoded import Finding, Severity
from lumion_hw.standards.cmis import CHECKSUMS, FIELDS, Field, Page, Value, decode
from lumion_hw.standards.cmis.codec import checksum_matches, cut, multiplied
from lumion_hw.standards.cmis.fields import LANES
from lumion_hw.standards.cmis.image import MemoryImage
from lumion_hw.standards.registers import Checksum

_DESCRIPTOR = ("host_interface", "media_interface", "host_lane_count", "media_lane_count", "host_lane_options")
ALL_LANES = frozenset(range(1, LANES + 1))
"""Lane numbers of one bank."""


class Dump:
    """A memory image of a module, with the lanes and functions that the module advertises.

    Args:
        image: Memory of the module.
        bank: Group of eight lanes.
    """

    def __init__(self, image: MemoryImage, bank: int = 0) -> None:
        self.image = image
        self.bank = bank
        self.advertised = Advertised(image.half, lambda page, bank: (bank, page) in image.halves, self.has_field)
        # Asked for each element of an array, but the same for all of them.
        self._supported: dict[str, bool | None] = {}
        self._damaged: dict[str, bool] = {}

    def number_of(self, lane: int) -> int:
        """Return the number of a lane of this bank, counted over all banks."""
        return lane + LANES * self.bank

    def half(self, page: Page) -> bytes | None:
        """Return the 128 bytes of a page."""
        return self.image.half(page, self._bank(page))

    def value(self, name: str, index: int | None = None) -> Value | None:
        """Return the value of a field times its multiplier, or ``None`` if one of the two is unknown."""
        field = FIELDS[name]
        half = self.half(field.page)
        if half is None or not self.has_field(field, index):
            return None
        code = self.value(field.multiplier) if field.multiplier else None
        value = decode(field, cut(field, half, index), index)
        return multiplied(field, value, code if isinstance(code, int) else None)

    def number(self, name: str, index: int | None = None) -> float | None:
        """Return the value of a numeric field, or ``None`` if unknown."""
        value = self.value(name, index)
        return float(value) if isinstance(value, (int, float)) else None

    def count(self, name: str, index: int | None = None) -> int:
        """Return the value of an integer field, or 0 if unknown."""
        value = self.value(name, index)
        return int(value) if isinstance(value, (int, float)) else 0

    def has_field(self, field: Field, index: int | None = None) -> bool:
        """Return whether the dump contains all bytes of a field."""
        return self.image.has(field.page, field.span(index), self._bank(field.page))

    def raw_hex(self, field: Field, index: int | None = None) -> str:
        """Return the bytes of a field, in hexadecimal."""
        half = self.half(field.page)
        return "" if half is None else cut(field, half, index).hex()

    def supported(self, name: str) -> bool | None:
        """Return whether the module supports a field, according to its memory."""
        if name not in self._supported:
            self._supported[name] = self.advertised.supported(name)
        return self._supported[name]

    @cached_property
    def checksums(self) -> dict[Checksum, bool]:
        """Whether each page checksum in the dump is right."""
        result: dict[Checksum, bool] = {}
        for item in CHECKSUMS:
            half = self.half(item.space)
            if half is None:
                continue
            # Only tunable modules have page 04h; page 01h tells which are tunable.
            is_reliable = all(fits for other, fits in result.items() if other.space == 0x01)
            if item.space == 0x04 and not self.advertised.tunable and is_reliable:
                continue
            if self.image.has(item.space, range(item.first, item.byte + 1)):
                result[item] = checksum_matches(item, half)
        return result

    def is_damaged(self, field: Field) -> bool:
        """Return whether a field lies in memory with a wrong checksum."""
        if field.name not in self._damaged:
            wrong = (item for item, fits in self.checksums.items() if not fits and item.space == field.page)
            covered = ({*range(item.first, item.last + 1), item.byte} for item in wrong)
            self._damaged[field.name] = any(area.intersection(field.all_bytes()) for area in covered)
        return self._damaged[field.name]

    @cached_property
    def media_lanes(self) -> frozenset[int]:
        """Media lanes that the module has; all lanes if this is unknown."""
        usable = _usable((item.media_lanes, item.first_media_lanes) for item in self.advertised.applications)
        absent = {lane for lane in ALL_LANES if self.value("media_lane_unsupported", lane)}
        # Some modules set 00h:210 wrongly; measured light proves that a lane exists.
        return usable - (absent - self.emitting_lanes)

    @cached_property
    def host_lanes(self) -> frozenset[int]:
        """Host lanes that an application can use or uses now."""
        usable = _usable((item.host_lanes, item.first_host_lanes) for item in self.advertised.applications)
        return usable | {lane for lane in ALL_LANES if self.count("active_app_sel", lane)}

    @cached_property
    def has_applications(self) -> bool:
        """Whether all bytes that describe applications and their lanes are known, of the pages in the dump."""
        prefixes = ("application", "more_application") if self.half(0x01) else ("application",)
        names = [f"{prefix}_{part}" for prefix in prefixes for part in _DESCRIPTOR]
        if self.half(0x01):
            names.append("application_media_lane_options")
        fields = [FIELDS[name] for name in names]
        return all(
            self.has_field(item, index) for item in fields for index in (item.array.indices if item.array else (None,))
        )

    @cached_property
    def emitting_lanes(self) -> frozenset[int]:
        """Media lanes on which the module measures light."""
        powers = [name for name in ("tx_power", "rx_power") if self.supported(name)]
        return frozenset(lane for lane in ALL_LANES if any(self.number(name, lane) for name in powers))

    def has(self, name: str) -> bool:
        """Return whether a field is supported and the dump contains its page."""
        return bool(self.supported(name)) and self.half(FIELDS[name].page) is not None

    def _bank(self, page: Page) -> int:
        return self.bank if page is not None and page >= 0x10 else 0


def _usable(applications: Iterable[tuple[int, tuple[int, ...]]]) -> frozenset[int]:
    usable: set[int] = set()
    for count, starts in applications:
        if count and not starts:
            return ALL_LANES
        # An application uses consecutive lanes from each possible first lane.
        usable |= {lane for first in starts for lane in range(first, first + count)}
    return ALL_LANES & usable or ALL_LANES


def address(name: str, index: int | None = None) -> str:
    """Return the address of a field or element."""
    field = FIELDS[name]
    if index is None:
        return str(field)
    page = 0 if field.page is None else field.page
    return f"{page:02X}h:{field.span(index).start}"


def finding(
    severity: Severity, kind: str, message: str, name: str, index: int | None = None, *, unreliable: bool = True
) -> Finding:
    """Return a finding about a field. ``unreliable`` marks the value of the field as unreliable."""
    return Finding(severity, address(name, index), kind, message, ((name, index),) if unreliable else ())
