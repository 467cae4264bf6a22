"""Blocks of bytes in a text dump, and the memory image that they make up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lumion_hw.errors import ConfigError
from lumion_hw.standards.cmis.fields import HALF_BYTES
from lumion_hw.standards.cmis.image import LOWER, Half, MemoryImage, half_name, image_from_linear
from lumion_hw.standards.module_text.lines import SPLIT_HINT, DumpLine
from lumion_hw.standards.sff8472.codes import SFF8472_IDENTIFIERS
from lumion_hw.standards.sff8472.image import SfpImage, sfp_image_from_linear
from lumion_hw.standards.sff8472.registers import MEMORY_SIZE

Cells = dict[int, int | None]
"""Bytes by offset; ``None`` for bytes that the tool could not read."""
_PAGE_SELECT, _BANK_SELECT = 127, 126  # CMIS 5.2 clause 8.2.11; byte 127 also in SFF-8636 clause 6.2.10
_NO_IDENTIFIER = "Its byte 0 gives the kind of the module: add the lower memory (offset 0)."
_MAX_LINEAR = 1 << 20  # far above the largest linear memory: 4 banks of 256 pages


@dataclass(frozen=True)
class Space:
    """Meaning of the offsets in a block.

    Attributes:
        kind: ``linear`` (lower memory, then all pages; for SFP modules A0h, then A2h), ``map`` (256 bytes as on the
            bus; the upper half is the selected page), ``lower``, ``upper`` (upper page), ``page`` (upper page with
            offsets from 128 or from 0), ``a0``, ``a2``, or ``other`` (unused).
        page: Page of the upper half; ``None`` for the page that byte 127 selects.
        bank: Bank of the page.
    """

    kind: str
    page: int | None = None
    bank: int = 0


@dataclass
class Block:
    """Consecutive rows of a dump.

    Attributes:
        space: Meaning of the offsets.
        line: First line.
        owner: Port to which the module belongs; empty if unknown.
        cells: Bytes by offset.
        failure: Reason why the tool could not read the block; empty if it could.
    """

    space: Space
    line: DumpLine
    owner: str = ""
    cells: Cells = field(default_factory=dict)
    failure: str = ""

    @property
    def end(self) -> int:
        """Offset after the last byte."""
        return max(self.cells, default=-1) + 1


def assemble(blocks: Sequence[Block], source: str) -> MemoryImage | SfpImage:
    """Return the memory of the module in the blocks.

    Raises:
        ConfigError: The blocks belong to several modules, contradict each other, or do not contain byte 0.
    """
    filled = [block for block in blocks if block.cells and block.space.kind != "other"]
    _check_single_module(filled)
    identifiers = [
        (block, block.cells.get(0)) for block in filled if block.space.kind in ("linear", "lower", "map", "a0")
    ]
    known = [(block, value) for block, value in identifiers if value is not None and not _is_second_device(block)]
    if not known:
        raise ConfigError(f"{source or 'dump'}: byte 0 of the module is not in the dump", hint=_NO_IDENTIFIER)
    first, identifier = known[0]
    for block, value in known[1:]:
        if value != identifier:
            raise block.line.error(
                f"the same module as in line {first.line.number} (identifier {identifier:02X}h)",
                f"a module with identifier {value:02X}h",
                SPLIT_HINT,
            )
    is_sfp = identifier in SFF8472_IDENTIFIERS or any(block.space.kind == "a0" for block in filled)
    return _sfp(filled, source) if is_sfp else _paged([*filled, *(b for b in blocks if b.failure)], source)


def _is_second_device(block: Block) -> bool:
    # mlxlink names the memory A2h of an SFP module page 1 with offsets from 0.
    return block.space.kind == "map" and bool(block.space.page)


def _check_single_module(blocks: Sequence[Block]) -> None:
    owners = {block.owner: block for block in reversed(blocks) if block.owner}
    if len(owners) > 1:
        (one, first), (other, second) = sorted(owners.items(), key=lambda item: item[1].line.number)[:2]
        raise second.line.error(
            f"one module in the file ({one!r}, line {first.line.number})", f"a second one ({other!r})", SPLIT_HINT
        )
    linear = [block for block in blocks if block.space.kind == "linear"]
    if len(linear) > 1:
        raise linear[1].line.error(
            f"one dump in the file (it begins in line {linear[0].line.number})", "a second dump", SPLIT_HINT
        )


def _merge(target: dict[Half, Cells], half: Half, cells: Cells, line: DumpLine) -> None:
    """Add the bytes of a half. A half may be printed twice: its monitors change, its identity does not."""
    present = target.get(half, {})
    if half == (0, 0x00):
        both = [offset for offset in cells if present.get(offset) is not None and cells[offset] is not None]
        wrong = next((offset for offset in both if present[offset] != cells[offset]), None)
        if wrong is not None:
            raise line.error("the same page 00h as earlier in the file", f"a different byte {wrong}", SPLIT_HINT)
    target[half] = present | {
        offset: value for offset, value in cells.items() if value is not None or offset not in present
    }


# -- modules with pages


def _paged(blocks: Sequence[Block], source: str) -> MemoryImage:
    parts: dict[Half, Cells] = {}
    base = MemoryImage({}, source=source)
    failures: dict[Half, str] = {}
    for block in blocks:
        kind, page = block.space.kind, block.space.page
        if block.failure:
            failures[LOWER if kind == "lower" else (block.space.bank, page or 0)] = block.failure
        elif kind == "linear":
            base = _linear(block, source)
        elif kind in ("a0", "a2"):
            raise block.line.error("a module with pages", "a memory of an SFP module", SPLIT_HINT)
        else:
            _add_map(parts, block)
    halves, unknown, remarks = dict(base.halves), dict(base.unknown), list(base.remarks)
    for half, cells in parts.items():
        start = 0 if half == LOWER else HALF_BYTES
        halves[half], missing, absent = _filled(cells, start, HALF_BYTES)
        if missing:
            unknown[half] = missing
        if absent:
            remarks.append(f"{half_name(half)}: only {HALF_BYTES - absent} of {HALF_BYTES} bytes")
    failed = {half: reason for half, reason in failures.items() if half not in halves}
    return MemoryImage(halves, unknown, source, tuple(remarks), failed)


def _add_map(parts: dict[Half, Cells], block: Block) -> None:
    cells, kind = block.cells, block.space.kind
    # Some tools count the offsets of an upper page from 0.
    if kind == "page" and block.end <= HALF_BYTES:
        cells = {offset + HALF_BYTES: value for offset, value in cells.items()}
    if max(cells) >= MEMORY_SIZE or (kind == "lower" and max(cells) >= HALF_BYTES):
        limit = HALF_BYTES if kind == "lower" else MEMORY_SIZE
        raise block.line.error(f"offsets below {limit} in this section", f"offset {max(cells)}")
    lower = {offset: value for offset, value in cells.items() if offset < HALF_BYTES}
    upper = {offset: value for offset, value in cells.items() if offset >= HALF_BYTES}
    if lower and (kind in ("page", "upper") or block.space.page):
        raise block.line.error("offsets from 128 to 255 of an upper page", f"offset {min(lower)}")
    if lower:
        _merge(parts, LOWER, lower, block.line)
    if not upper:
        return
    page, bank = block.space.page, block.space.bank
    if page is None:
        page, bank = cells.get(_PAGE_SELECT), cells.get(_BANK_SELECT) or 0
    if page is None:
        message = "byte 127, which tells which page the upper half is"
        raise block.line.error(message, "no such byte", "Name the page in the file, or save only offsets 0 to 127.")
    _merge(parts, (bank if page >= 0x10 else 0, page), upper, block.line)


def _linear(block: Block, source: str) -> MemoryImage:
    if block.end > _MAX_LINEAR:
        raise block.line.error(f"offsets below {_MAX_LINEAR:X}h", f"offset {block.end - 1:X}h")
    size = -(-block.end // HALF_BYTES) * HALF_BYTES
    data, unknown, _ = _filled(block.cells, 0, size)
    image = image_from_linear(data, source, unknown)
    if size == HALF_BYTES and LOWER in image.unknown and not unknown:
        return image  # the 128 bytes are page 00h
    absent: dict[Half, int] = {}
    for number in range(size // HALF_BYTES):
        half = LOWER if number == 0 else ((number - 1) // 256, (number - 1) % 256)
        span = range(number * HALF_BYTES, (number + 1) * HALF_BYTES)
        absent[half] = sum(offset not in block.cells for offset in span)
    halves = {half: part for half, part in image.halves.items() if absent[half] < HALF_BYTES}
    remarks = tuple(
        f"{half_name(half)}: only {HALF_BYTES - absent[half]} of {HALF_BYTES} bytes" for half in halves if absent[half]
    )
    kept = {half: missing for half, missing in image.unknown.items() if half in halves}
    return replace(image, halves=halves, unknown=kept, remarks=remarks)


def _filled(cells: Mapping[int, int | None], start: int, size: int) -> tuple[bytes, frozenset[int], int]:
    """Return the bytes from ``start``, the offsets of unknown bytes, and the number of those not in the text at all."""
    span = range(start, start + size)
    missing = frozenset(offset for offset in span if cells.get(offset) is None)
    return bytes(cells.get(offset) or 0 for offset in span), missing, sum(offset not in cells for offset in span)


# -- SFP modules


def _sfp(blocks: Sequence[Block], source: str) -> SfpImage:
    devices: dict[str, Cells] = {"a0": {}, "a2": {}}
    for block in blocks:
        for key, offset, value in _sfp_cells(block):
            present = devices[key].get(offset)
            if key == "a0" and None not in (present, value) and present != value:
                raise block.line.error("the same memory A0h as earlier", f"a different byte {offset}", SPLIT_HINT)
            devices[key][offset] = present if value is None else value
    memories, unknown, remarks = {}, {}, []
    for key, cells in devices.items():
        size = -(-(max(cells, default=-1) + 1) // HALF_BYTES) * HALF_BYTES
        memories[key], missing, absent = _filled(cells, 0, size)
        if missing:
            unknown[key] = missing
        if absent:
            remarks.append(f"{key.upper()}h: only {size - absent} of {size} bytes")
    a2 = sfp_image_from_linear(memories["a0"].ljust(MEMORY_SIZE, b"\x00") + memories["a2"], source).a2
    unknown = {key: offsets for key, offsets in unknown.items() if key == "a0" or a2}
    return SfpImage(memories["a0"], a2, source, tuple(remarks), unknown=unknown)


def _sfp_cells(block: Block) -> list[tuple[str, int, int | None]]:
    kind, page = block.space.kind, block.space.page
    if kind in ("a0", "a2"):
        key, shift = kind, 0
    elif kind in ("linear", "lower"):
        key, shift = "a0", 0
    elif page in (None, 0):
        key, shift = "a0", HALF_BYTES if kind == "page" and block.end <= HALF_BYTES else 0
    elif page == 1:
        key, shift = "a2", 0
    else:
        raise block.line.error("memories A0h and A2h of an SFP module", f"page {page:02X}h", SPLIT_HINT)
    result = []
    for offset, value in block.cells.items():
        at = offset + shift
        if kind == "linear" and MEMORY_SIZE <= at < 2 * MEMORY_SIZE:
            result.append(("a2", at - MEMORY_SIZE, value))
        elif at < MEMORY_SIZE:
            result.append((key, at, value))
        elif kind != "linear":
            raise block.line.error(f"offsets below {MEMORY_SIZE}", f"offset {at}")
    return result
