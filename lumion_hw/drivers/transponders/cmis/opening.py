"""Reads identity and advertised capabilities of a module after opening its link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lumion_hw.clock import Clock
from lumion_hw.drivers.transponders.cmis.advertised import Advertised
from lumion_hw.drivers.transponders.cmis.context import ModuleContext, quirks_of
from lumion_hw.drivers.transponders.cmis.memory import CmisMemory
from lumion_hw.errors import IdentityError, LinkError
from lumion_hw.sessions.module.pages import ModulePages, no_answer, page_name
from lumion_hw.standards.cmis import CHECKSUMS, Page, codes, flag_bytes
from lumion_hw.standards.cmis.codec import checksum_matches
from lumion_hw.standards.cmis.interface_ids import CMIS_IDENTIFIERS
from lumion_hw.standards.registers import blank_value
from lumion_hw.standards.sff8636.codes import SFF8636_IDENTIFIERS

START_UP_S = 2.0
"""Time for a newly inserted module until it responds, in s (docs/transponders.md, "Times")."""
_LASER_PAGE = 0x04
_STATIC_PAGES = (0x01, 0x02, _LASER_PAGE)


def open_module(
    pages: ModulePages,
    clock: Clock,
    device: str,
    bank: int | None,
    expected: Mapping[str, str | None],
    quirks: Mapping[str, Any],
) -> ModuleContext:
    """Read identity and advertised capabilities of a module and check the identity.

    Raises:
        LinkError: The module cannot be read.
        IdentityError: A different module is inserted, or the module does not follow CMIS.
    """
    memory = CmisMemory(pages, device, bank or 0)
    with pages.transaction(), pages.retry_for(START_UP_S):
        halves: dict[Page, bytes] = {None: memory.half(None)[0]}
        _check_answer(memory, halves[None])
        _check_kind(memory, halves[None][0])
        halves[0x00] = memory.half(0x00)[0]
        # Lower memory and page 00h tell whether further pages exist; a module with flat memory would return page 00h
        # for each page.
        advertised = Advertised(halves.get, pages.has_page, one_bank=bank is not None)
        results = {} if advertised.flat else {page: memory.half_if_readable(page) for page in _STATIC_PAGES}
    halves |= {page: half[0] for page, half in results.items() if isinstance(half, tuple)}
    advertised = Advertised(halves.get, pages.has_page, one_bank=bank is not None)
    with pages.transaction():
        memory.n_banks = advertised.n_banks
    identity = advertised.identity()
    mismatches = {
        name: value for name, value in expected.items() if value is not None and getattr(identity, name) != value
    }
    if mismatches:
        raise IdentityError(
            f"expected a module with {', '.join(f'{name} {value}' for name, value in mismatches.items())}; found "
            f"{identity.vendor} {identity.part_number} with serial {identity.serial}",
            device=device,
            address=memory.address,
            hint="Check the bench file and which module is inserted.",
        )
    module = ModuleContext(memory, clock, advertised, identity, quirks_of(identity, advertised.revision, dict(quirks)))
    module.warnings += [
        f"{page_name(page)} cannot be read, and its content is unknown: {half.message}"
        for page, half in results.items()
        if isinstance(half, LinkError)
    ]
    # Only a warning, because some working modules have wrong checksums.
    module.warnings += [
        f"the checksum {item.name} is wrong: some content of this page may be wrong"
        for item in CHECKSUMS
        if (half := halves.get(item.space)) is not None
        and (item.space != _LASER_PAGE or advertised.tunable)
        and not checksum_matches(item, half)
    ]
    return module


def _check_answer(memory: CmisMemory, lower: bytes) -> None:
    # Flag bytes are not read, and so are 0 here.
    value = blank_value(bytes(byte for at, byte in enumerate(lower) if at not in flag_bytes(None)))
    if value is not None:
        raise no_answer(value, memory.device, memory.address)


def _check_kind(memory: CmisMemory, identifier: int) -> None:
    if identifier not in CMIS_IDENTIFIERS:
        name = codes.describe("identifier", identifier)
        raise memory.error(
            IdentityError,
            f"expected a CMIS module; found identifier 0x{identifier:02X}, {name}",
            hint=_kind_hint(identifier),
        )


def _kind_hint(identifier: int) -> str:
    if identifier in SFF8636_IDENTIFIERS:
        return "The module follows SFF-8636: use kind qsfp-8636."
    return "Use kind sfp-8472 for SFP and SFP+ modules."
