"""The whole CMIS map: all fields, access rights of bits, and bytes that clear flags when read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from lumion_hw.standards.cmis.administrative_pages import PAGE_00H, PAGE_02H, PAGE_03H, PAGE_04H
from lumion_hw.standards.cmis.advertising_page import PAGE_01H
from lumion_hw.standards.cmis.cdb import PAGE_9FH
from lumion_hw.standards.cmis.coherent_pages import COHERENT, COHERENT_PAGES
from lumion_hw.standards.cmis.diagnostic_pages import PAGE_13H, PAGE_14H
from lumion_hw.standards.cmis.elsfp_pages import ELSFP, PAGE_1AH, PAGE_1BH
from lumion_hw.standards.cmis.fields import HALF_BYTES, Field, Page
from lumion_hw.standards.cmis.lane_pages import PAGE_10H, PAGE_11H, PAGE_12H, PAGE_19H
from lumion_hw.standards.cmis.lower_memory import LOWER_MEMORY
from lumion_hw.standards.cmis.network_path_pages import PAGE_16H, PAGE_17H
from lumion_hw.standards.cmis.vdm import VDM_PAGES
from lumion_hw.standards.registers import Access, NumberFormat

ALL_FIELDS: tuple[Field, ...] = (
    *LOWER_MEMORY,
    *PAGE_00H,
    *PAGE_01H,
    *PAGE_02H,
    *PAGE_03H,
    *PAGE_04H,
    *PAGE_10H,
    *PAGE_11H,
    *PAGE_12H,
    *PAGE_13H,
    *PAGE_14H,
    *PAGE_16H,
    *PAGE_17H,
    *PAGE_19H,
    *PAGE_1AH,
    *PAGE_1BH,
    *VDM_PAGES,
    *COHERENT_PAGES,
    *PAGE_9FH,
)
"""All fields in the order of the pages."""

FIELDS: Mapping[str, Field] = MappingProxyType({field.name: field for field in ALL_FIELDS})

PAGES: tuple[Page, ...] = tuple(dict.fromkeys(field.page for field in ALL_FIELDS))
"""Pages that have fields, in order; ``None`` is the lower memory."""

PAGE_CONTENTS: Mapping[Page, str] = MappingProxyType(
    {
        None: "identity, state, flags, monitors, applications, page select",
        0x00: "identity of vendor and module",
        0x01: "supported functions and their durations",
        0x02: "thresholds of the monitors",
        0x03: "memory for the user",
        0x04: "grids, ranges and powers of the laser",
        0x10: "lane and data path control",
        0x11: "lane and data path states, flags and monitors",
        0x12: "laser tuning and output power",
        0x13: "diagnostic control: loopbacks, pattern generators and checkers",
        0x14: "diagnostic results: bit error ratio, SNR, counters",
        0x16: "network paths: control, states, durations",
        0x17: "network paths: flags and masks",
        0x19: "active data paths by direction, after unidirectional reconfiguration",
        0x1A: "external laser source: advertisements, flags, controls",
        0x1B: "external laser source: set points and monitors",
        **{0x20 + group: f"VDM descriptors, group {group + 1}" for group in range(4)},
        **{0x24 + group: f"VDM samples, group {group + 1}" for group in range(4)},
        **{0x28 + group: f"VDM thresholds, group {group + 1}" for group in range(4)},
        0x2C: "VDM flags",
        0x2D: "VDM masks",
        0x2F: "VDM advertisement, freeze and its release",
        0x30: "degrade thresholds of the media-side FEC",
        0x33: "flags of the media lane",
        0x34: "FEC counters of the media lane",
        0x35: "link performance of the media lane",
        0x38: "degrade thresholds of the host-side FEC",
        0x3A: "FEC counters of the host side",
        0x3B: "flags of the host side",
        0x40: "C-CMIS revision",
        0x9F: "command data block: commands, firmware, password",
    }
)
"""Short description of each page."""

CONDITIONS: Mapping[str, str] = MappingProxyType(
    {
        COHERENT: "the module is a coherent one: a coherent media interface id, or a tunable technology together with "
        "PageSelect staying at 34h and 35h",
        ELSFP: "the module is an external laser source: identifier 22h",
    }
)
"""Descriptions of the conditions in ``Field.support``."""

_RESERVED_FLAGS: Mapping[Page, frozenset[int]] = MappingProxyType(
    {None: frozenset({12}), 0x14: frozenset({133}), 0x33: frozenset({129})}
)
"""Reserved bytes among flag bytes, which newer modules may use for flags."""
_WRITABLE = frozenset({Access.RW, Access.RWW, Access.WO, Access.WO_SC})
_NUMBERS = frozenset({NumberFormat.UINT, NumberFormat.INT, NumberFormat.UINT_LE})
_WRITE_ONLY = frozenset({Access.WO, Access.WO_SC})


@dataclass(frozen=True)
class ByteAccess:
    """Access rights of the bits in the 128 bytes of a page; each attribute has one mask per byte.

    Attributes:
        defined: Bits that belong to a field; the others are reserved.
        writable: Bits that a host can write.
        reads_zero: Bits that always read as 0.
        clear_on_read: Bits that are cleared when their byte is read.
    """

    defined: tuple[int, ...]
    writable: tuple[int, ...]
    reads_zero: tuple[int, ...]
    clear_on_read: tuple[int, ...]


@cache
def fields_of(page: Page) -> tuple[Field, ...]:
    """Return the fields of a page, or of the lower memory for ``None``."""
    return tuple(field for field in ALL_FIELDS if field.page == page)


@cache
def byte_access(page: Page) -> ByteAccess:
    """Return the access rights of each bit of a page. Index 0 is byte 0 of the lower memory or byte 128 of a page."""

    def masks(access: frozenset[Access]) -> tuple[int, ...]:
        result = [0] * HALF_BYTES
        for field in fields_of(page):
            if field.access in access:
                for location in field.locations():
                    result[location.byte % HALF_BYTES] |= location.mask
        return tuple(result)

    return ByteAccess(
        defined=masks(frozenset(Access)),
        writable=masks(_WRITABLE),
        reads_zero=masks(_WRITE_ONLY),
        clear_on_read=masks(frozenset({Access.COR})),
    )


@cache
def flag_bytes(page: Page) -> frozenset[int]:
    """Return the addresses (0 to 255) of the bytes that clear flags when read."""
    first = 0 if page is None else HALF_BYTES
    cleared_bytes = frozenset(first + offset for offset, mask in enumerate(byte_access(page).clear_on_read) if mask)
    return cleared_bytes | _RESERVED_FLAGS.get(page, frozenset())


@cache
def wide_number_bytes(page: Page) -> frozenset[int]:
    """Return the addresses (0 to 255) of the bytes of numbers of more than two bytes."""
    return frozenset(
        location.byte
        for field in fields_of(page)
        if field.length > 2 and field.kind in _NUMBERS
        for location in field.locations()
    )


def quiet_runs(page: Page, first: int, length: int) -> Iterator[range]:
    """Split a part of a page into ranges that can be read without clearing a flag."""
    # Reserved bytes among the flags count as flags, because a newer revision can have one there.
    flags = flag_bytes(page)
    start = first
    for byte in range(first, first + length):
        if byte in flags:
            if start < byte:
                yield range(start, byte)
            start = byte + 1
    if start < first + length:
        yield range(start, first + length)


def is_supported(field: Field, value_of: Callable[[str], int | bool | None]) -> bool | None:
    """Return whether a module has a field; ``None`` if this is unknown.

    Args:
        field: Field to check.
        value_of: Function that returns the value of an advertising field or condition by name; ``None`` if unknown.
    """
    # A flat memory has only page 00h, and shows it in place of every other page.
    if field.page not in (None, 0x00):
        flat = value_of("flat_memory")
        if flat is None or flat:
            return None if flat is None else False
    if not field.support:
        return True
    value = value_of(field.support)
    if not value:
        return None if value is None else False
    advertising = FIELDS.get(field.support)
    # The bit that advertises a field can itself be on a page that must be advertised.
    return True if advertising is None else is_supported(advertising, value_of)
