"""A saved CMIS memory.

File formats: JSON (``lower`` and ``pages`` in hexadecimal), a memory file of 256 bytes or more as from Linux optoe, and
128 bytes of lower memory or of page 00h. Bytes missing in a file are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lumion_hw.errors import ConfigError
from lumion_hw.files.reading import parse_json
from lumion_hw.standards.cmis.fields import FIRST_BANKED_PAGE, HALF_BYTES, Page
from lumion_hw.standards.sff8636.codes import SFF8636_IDENTIFIERS

Half = tuple[int, Page]
"""Bank and page (``None`` for the lower memory) of 128 bytes of memory."""
LOWER: Half = (0, None)
_MAX_PAGE = 0xFF
_PAGE_KEY = re.compile(r"(?:([0-9]{1,2})[:/])?([0-9A-Fa-f]{1,2})h?")
_HINT = "A dump is JSON with 'lower' and 'pages' in hexadecimal, or a raw image of at least 128 bytes."


@dataclass(frozen=True)
class MemoryImage:
    """Known bytes of a module's memory.

    Attributes:
        halves: The 128 bytes of each known page and of the lower memory; unknown bytes are 0.
        unknown: Addresses (0 to 255) of the bytes that were not read, by page.
        source: Origin of the image, such as a file name.
        remarks: Problems found in the file.
        unreadable: Reason for each page that could not be read.
    """

    halves: Mapping[Half, bytes]
    unknown: Mapping[Half, frozenset[int]] = field(default_factory=dict)
    source: str = ""
    remarks: tuple[str, ...] = ()
    unreadable: Mapping[Half, str] = field(default_factory=dict)

    def half(self, page: Page, bank: int = 0) -> bytes | None:
        """Return the 128 bytes of a page, or ``None`` if the image does not contain the page."""
        return self.halves.get((bank, page))

    def has(self, page: Page, span: Iterable[int], bank: int = 0) -> bool:
        """Return whether all given bytes (0 to 255) of a page are known."""
        missing = self.unknown.get((bank, page))
        return (bank, page) in self.halves and (not missing or missing.isdisjoint(span))

    def to_document(self) -> dict[str, Any]:
        """Return the image as a JSON document for :func:`image_from_document`."""
        document: dict[str, Any] = {"source": self.source} if self.source else {}
        document["lower"] = self.halves.get(LOWER, bytes(HALF_BYTES)).hex()
        document["pages"] = {half_name(half): data.hex() for half, data in self.halves.items() if half != LOWER}
        if self.unknown:
            document["unread"] = {half_name(half): sorted(data) for half, data in self.unknown.items() if data}
        if self.unreadable:
            document["unreadable"] = {half_name(half): reason for half, reason in self.unreadable.items()}
        return document


def half_name(half: Half) -> str:
    """Return the name of a page in files: ``lower``, ``11`` for page 11h, or ``1:11`` for page 11h in bank 1."""
    bank, page = half
    if page is None:
        return "lower"
    return f"{bank}:{page:02X}" if bank else f"{page:02X}"


def parse_image(data: bytes, source: str = "") -> MemoryImage:
    """Return the image in the bytes of a file.

    Raises:
        ConfigError: The data have none of the known formats.
    """
    document = document_of(data, source)
    return image_from_linear(data, source) if document is None else image_from_document(document, source)


def document_of(data: bytes, source: str = "") -> object | None:
    """Return the JSON document in the bytes of a file, or ``None`` if they are not JSON.

    Raises:
        ConfigError: The data begin like JSON but cannot be parsed.
    """
    if not data[:64].lstrip().startswith(b"{"):
        return None
    document: object = parse_json(data, source or "dump", hint=_HINT)
    return document


def image_from_document(document: object, source: str = "") -> MemoryImage:
    """Return the image of a JSON document. Bytes missing at the end of a page are unknown.

    Raises:
        ConfigError: The document has a different structure, or its text is not hexadecimal.
    """
    if not isinstance(document, dict) or not isinstance(document.get("lower"), str):
        raise ConfigError(f"{source or 'dump'}: key 'lower' is missing", hint=_HINT)
    pages = document.get("pages", {})
    if not isinstance(pages, dict):
        raise ConfigError(f"{source or 'dump'}: 'pages' must be a JSON object of pages", hint=_HINT)
    texts: dict[Half, object] = {LOWER: document["lower"]}
    texts |= {_half(key, source): text for key, text in pages.items()}
    halves, unknown, remarks = {}, _unread(document.get("unread", {}), source), []
    for half, text in texts.items():
        data = _bytes(half, text, source)
        if len(data) != HALF_BYTES:
            remarks.append(f"{half_name(half)}: only {len(data)} of {HALF_BYTES} bytes")
        missing = _bytes_after(half, len(data))
        if missing:
            unknown[half] = unknown.get(half, frozenset()) | missing
        halves[half] = data[:HALF_BYTES].ljust(HALF_BYTES, b"\x00")
    name = document.get("source")
    failed = _unreadable(document.get("unreadable", {}), source)
    return MemoryImage(halves, unknown, name if isinstance(name, str) else source, tuple(remarks), failed)


def image_from_linear(data: bytes, source: str = "", missing: frozenset[int] = frozenset()) -> MemoryImage:
    """Return the image of a memory file, with byte ``b`` of page ``p`` in bank ``k`` at ``(256 k + p) 128 + b``.

    Args:
        data: Content of the file; 128 bytes can be page 00h alone.
        source: Name of the file.
        missing: Offsets of unknown bytes in ``data``.

    Raises:
        ConfigError: There are fewer than 128 bytes.
    """
    if len(data) < HALF_BYTES:
        raise ConfigError(f"{source or 'dump'}: only {len(data)} bytes of memory", hint=_HINT)
    if len(data) == HALF_BYTES and not missing and _is_page_00h(data):
        # Some programs read only this page. Its first byte repeats the first byte of the lower memory.
        lower = data[:1].ljust(HALF_BYTES, b"\x00")
        unknown_lower = frozenset(range(1, HALF_BYTES))
        remark = f"{half_name(LOWER)}: only 1 of {HALF_BYTES} bytes"
        return MemoryImage({LOWER: lower, (0, 0x00): data}, {LOWER: unknown_lower}, source, (remark,))
    halves: dict[Half, bytes] = {LOWER: data[:HALF_BYTES]}
    unknown = {LOWER: frozenset(offset for offset in missing if offset < HALF_BYTES)}
    remarks = []
    for number, start in enumerate(range(HALF_BYTES, len(data), HALF_BYTES)):
        half = (number // (_MAX_PAGE + 1), number % (_MAX_PAGE + 1))
        # Pages below 10h have no banks; a linear file repeats them or has fill bytes in their place.
        if half[0] and half[1] < FIRST_BANKED_PAGE:
            continue
        part = data[start : start + HALF_BYTES]
        # Page 00h is always kept, because nothing else can be read without it.
        if number and part in (bytes(len(part)), b"\xff" * len(part)):
            continue  # drivers show these bytes where there is no page
        if len(part) < HALF_BYTES:
            remarks.append(f"{half_name(half)}: only {len(part)} of {HALF_BYTES} bytes")
            unknown[half] = _bytes_after(half, len(part))
        gaps = frozenset(offset - start + HALF_BYTES for offset in missing if start <= offset < start + HALF_BYTES)
        unknown[half] = unknown.get(half, frozenset()) | gaps
        halves[half] = part.ljust(HALF_BYTES, b"\x00")
    return MemoryImage(halves, {half: gaps for half, gaps in unknown.items() if gaps}, source, tuple(remarks))


def _is_page_00h(data: bytes) -> bool:
    """Return whether 128 bytes are page 00h rather than the lower memory: the vendor's name and the checksums fit."""
    is_qsfp = data[0] in SFF8636_IDENTIFIERS
    name = data[20:36] if is_qsfp else data[1:17]  # SFF-8636 bytes 148 to 163; CMIS bytes 129 to 144
    sums = ((0, 63), (64, 95)) if is_qsfp else ((0, 94),)
    is_text = name.isascii() and name.decode("ascii", "replace").isprintable() and bool(name.strip())
    return is_text and all(sum(data[first:at]) % 256 == data[at] for first, at in sums)


def _half(key: object, source: str) -> Half:
    match = _PAGE_KEY.fullmatch(str(key))
    if match is None:
        raise ConfigError(
            f"{source or 'dump'}: {key!r} is not a page number", hint="Write page 11h as 11, or as 1:11 in bank 1."
        )
    return int(match[1] or 0), int(match[2], 16)


def _bytes(half: Half, text: object, source: str) -> bytes:
    try:
        return bytes.fromhex(text if isinstance(text, str) else "?")
    except ValueError as error:
        raise ConfigError(f"{source or 'dump'}: {half_name(half)} is not hexadecimal: {error}", hint=_HINT) from error


def _bytes_after(half: Half, n_known: int) -> frozenset[int]:
    first = 0 if half == LOWER else HALF_BYTES
    return frozenset(range(first + min(n_known, HALF_BYTES), first + HALF_BYTES))


def _unread(table: object, source: str) -> dict[Half, frozenset[int]]:
    if not isinstance(table, dict):
        raise ConfigError(f"{source or 'dump'}: 'unread' must be a JSON object of byte numbers by page", hint=_HINT)
    unknown = {}
    for key, numbers in table.items():
        if not isinstance(numbers, list) or not all(isinstance(number, int) for number in numbers):
            raise ConfigError(f"{source or 'dump'}: 'unread' of {key!r} must be a list of byte numbers", hint=_HINT)
        unknown[LOWER if key == "lower" else _half(key, source)] = frozenset(numbers)
    return unknown


def _unreadable(table: object, source: str) -> dict[Half, str]:
    if not isinstance(table, dict) or not all(isinstance(reason, str) for reason in table.values()):
        raise ConfigError(f"{source or 'dump'}: 'unreadable' must be a JSON object of reasons by page", hint=_HINT)
    return {LOWER if key == "lower" else _half(key, source): reason for key, reason in table.items()}
