"""Reads the complete memory of an open module, and compares two memory images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.diagnostics import Vdm
from lumion_hw.errors import LinkError
from lumion_hw.standards.cmis import FIELDS, PAGES, Access, Page, Value, decode, fields_of
from lumion_hw.standards.cmis.cdb import CDB_PAGE
from lumion_hw.standards.cmis.codec import cut, multiplied
from lumion_hw.standards.cmis.fields import FIRST_BANKED_PAGE
from lumion_hw.standards.cmis.image import Half, MemoryImage
from lumion_hw.standards.cmis.vdm import CONTROL_PAGE, DESCRIPTOR_PAGE, FLAG_PAGE, GROUPS, MASK_PAGE

_IGNORED = frozenset({"bank_select", "page_select"})


@dataclass(frozen=True)
class Difference:
    """A field with different values in two memory images; ``None`` if an image does not contain the field."""

    field: str
    index: int | None
    address: str
    before: Value | None
    after: Value | None


def dump(module: ModuleContext, vdm: Vdm) -> MemoryImage:
    """Read all pages that the module advertises, without flags. The image lists unreadable pages."""
    halves: dict[Half, bytes] = {}
    unknown: dict[Half, frozenset[int]] = {}
    unreadable: dict[Half, str] = {}
    memory = module.memory
    for page, offset in _halves(module, vdm):
        half = memory.bank_of(page, offset), page
        content = memory.half_if_readable(page, offset)
        if isinstance(content, LinkError):
            unreadable[half] = content.message
        elif content is not None:
            halves[half], omitted = content
            if omitted:
                unknown[half] = omitted
    identity = module.identity
    source = f"{identity.vendor} {identity.part_number} {identity.serial}"
    return MemoryImage(halves, unknown, source, unreadable=unreadable)


def _halves(module: ModuleContext, vdm: Vdm) -> Iterator[tuple[Page, int]]:
    """Yield the pages to read, each with its bank counted from that of lanes 1 to 8."""
    for page in _pages(module, vdm):
        for offset in range(module.memory.n_banks if page is not None and page >= FIRST_BANKED_PAGE else 1):
            yield page, offset


def _pages(module: ModuleContext, vdm: Vdm) -> Iterator[Page]:
    for page in PAGES:
        fields = fields_of(page)
        if all(module.advertised.supported(field.name) is False for field in fields):
            continue
        if (
            page is not None
            and DESCRIPTOR_PAGE <= page < FLAG_PAGE
            and (page - DESCRIPTOR_PAGE) % GROUPS not in vdm.groups
        ):
            continue
        if page in (FLAG_PAGE, MASK_PAGE, CONTROL_PAGE) and not vdm.groups:
            continue
        if page == CDB_PAGE:
            continue  # it contains the last command, which may be a password
        yield page


def differences(before: MemoryImage, after: MemoryImage) -> tuple[Difference, ...]:
    """Return the fields that differ between two images, without flags and unknown bytes."""
    return tuple(
        item
        for bank, page in sorted({*before.halves, *after.halves}, key=lambda half: (half[0], half[1] or -1))
        for item in _of_page(before, after, bank, page)
    )


def _of_page(before: MemoryImage, after: MemoryImage, bank: int, page: Page) -> Iterator[Difference]:
    for field in fields_of(page):
        if field.access is Access.COR or field.name in _IGNORED:
            continue
        for index in field.array.indices if field.array else (None,):
            values = [_value(image, field.name, bank, page, index) for image in (before, after)]
            if values[0] != values[1]:
                span = field.span(index)
                address = f"{0 if page is None else page:02X}h:{span.start}"
                yield Difference(field.name, index, address, values[0], values[1])


def _value(image: MemoryImage, name: str, bank: int, page: Page, index: int | None) -> Value | None:
    field = next(item for item in fields_of(page) if item.name == name)
    half = image.half(page, bank)
    if half is None or not image.has(page, field.span(index), bank):
        return None
    code = _value(image, field.multiplier, 0, FIELDS[field.multiplier].page, None) if field.multiplier else None
    return multiplied(field, decode(field, cut(field, half, index), index), code if isinstance(code, int) else None)
