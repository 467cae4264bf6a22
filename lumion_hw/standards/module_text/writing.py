"""Text of a memory image in the forms that ``ethtool`` and ``sfputil`` print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lumion_hw.standards.cmis.fields import HALF_BYTES
from lumion_hw.standards.cmis.image import LOWER, Half, MemoryImage
from lumion_hw.standards.sff8472.image import SfpImage
from lumion_hw.standards.sff8472.registers import MEMORY_SIZE

_ROW = 16
_INDENT = " " * 8
_Cells = Mapping[int, int]


def text_of_image(image: MemoryImage | SfpImage, name: str = "module") -> str:
    """Return a memory image as text. Unknown bytes are written as ``XX``, rows without known bytes are left out.

    SFP modules and modules with lower memory and page 00h only get the form of ``ethtool -m IF hex on``, other modules
    the form of ``sfputil show eeprom-hexdump``.

    Args:
        image: Memory of the module.
        name: Name of the port.
    """
    if isinstance(image, SfpImage):
        a0, a2 = (
            _known(image.a0, 0, image.unknown.get("a0")),
            _known(image.a2, MEMORY_SIZE, image.unknown.get("a2", ())),
        )
        return "\n".join(_ethtool(a0 | a2)) + "\n"
    halves = {half: _known_half(image, half) for half in sorted(image.halves, key=_order)}
    if set(halves) <= {LOWER, (0, 0x00)} and not image.unreadable:
        cells = {offset: value for part in halves.values() for offset, value in part.items()}
        return "\n".join(_ethtool(cells)) + "\n"
    return "\n".join(_sfputil(image, halves, name)) + "\n"


def _order(half: Half) -> tuple[int, int, int]:
    bank, page = half
    return (0, 0, 0) if page is None else (1, page, bank)


def _known_half(image: MemoryImage, half: Half) -> dict[int, int]:
    return _known(image.halves[half], 0 if half == LOWER else HALF_BYTES, image.unknown.get(half))


def _known(data: bytes, start: int, unknown: object) -> dict[int, int]:
    missing = (
        {start + offset if start == MEMORY_SIZE else offset for offset in unknown}
        if isinstance(unknown, (frozenset, tuple))
        else set()
    )
    return {offset: value for offset, value in enumerate(data, start) if offset not in missing}


def _rows(cells: _Cells) -> Iterator[tuple[int, list[str]]]:
    for at in sorted({offset // _ROW * _ROW for offset in cells}):
        yield at, [f"{cells[offset]:02x}" if offset in cells else "XX" for offset in range(at, at + _ROW)]


def _ethtool(cells: _Cells) -> Iterator[str]:
    yield "Offset\t\tValues"
    yield "------\t\t------"
    for at, values in _rows(cells):
        yield f"0x{at:04x}:\t\t{' '.join(values)}"


def _sfputil(image: MemoryImage, halves: Mapping[Half, _Cells], name: str) -> Iterator[str]:
    yield f"EEPROM hexdump for port {name}"
    for half in sorted({*halves, *image.unreadable}, key=_order):
        bank, page = half
        title = "Lower page 0h" if page is None else f"Upper page {page:x}h" + (f" bank {bank}" if bank else "")
        yield f"{_INDENT}{title}"
        if half not in halves:
            yield f"{_INDENT}Error: Failed to read: {image.unreadable[half]}"
        for at, values in _rows(halves.get(half, {})):
            shown = "".join(chr(value) if 0x20 <= value < 0x7F else "." for value in _values(halves[half], at))
            yield f"{_INDENT}{at:08x} {' '.join(values[:8])}  {' '.join(values[8:])} |{shown}|"
        yield ""


def _values(cells: _Cells, at: int) -> Iterator[int]:
    return (cells.get(offset, 0) for offset in range(at, at + _ROW))
