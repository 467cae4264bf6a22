"""A saved memory of an SFP module, and its file formats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lumion_hw.errors import ConfigError
from lumion_hw.standards.sff8472.registers import MEMORY_SIZE

_KEYS = ("a0", "a2")
_MIN_BYTES = 96
_HINT = "A dump of an SFP is JSON with 'a0' and 'a2' in hexadecimal, or 256 bytes of A0h followed by those of A2h."


@dataclass(frozen=True)
class SfpImage:
    """Known bytes of an SFP module's memory.

    Attributes:
        a0: Bytes of device A0h (identity), from offset 0.
        a2: Bytes of device A2h (diagnostics), from offset 0; empty if the module has no such device.
        source: Origin of the image, such as a file name.
        remarks: Problems found in the file.
        unreadable: Reasons why ``a0`` or ``a2`` is not complete.
        unknown: Offsets of the bytes of ``a0`` and ``a2`` that were not read; their value in the image is 0.
    """

    a0: bytes
    a2: bytes = b""
    source: str = ""
    remarks: tuple[str, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def has(self, key: str, span: Iterable[int]) -> bool:
        """Return whether all given bytes of ``a0`` or ``a2`` are known."""
        size = len(self.a0 if key == "a0" else self.a2)
        missing = self.unknown.get(key, frozenset())
        return all(offset < size and offset not in missing for offset in span)

    def to_document(self) -> dict[str, Any]:
        """Return the image as a JSON document for :func:`sfp_image_from_document`."""
        document: dict[str, Any] = {"source": self.source} if self.source else {}
        document |= {"a0": self.a0.hex()} | ({"a2": self.a2.hex()} if self.a2 else {})
        if any(self.unknown.values()):
            document["unread"] = {key: sorted(offsets) for key, offsets in self.unknown.items() if offsets}
        return document | ({"unreadable": dict(self.unreadable)} if self.unreadable else {})


def sfp_image_from_document(document: Mapping[str, object], source: str = "") -> SfpImage:
    """Return the image of a JSON document.

    Raises ``ConfigError`` if a memory is not hexadecimal or is too short.
    """
    memories = []
    for key in _KEYS:
        text = document.get(key, "")
        try:
            memories.append(bytes.fromhex(text if isinstance(text, str) else "?"))
        except ValueError as error:
            raise ConfigError(f"{source or 'dump'}: {key!r} is not hexadecimal: {error}", hint=_HINT) from error
    failed = document.get("unreadable", {})
    if not isinstance(failed, dict) or not all(isinstance(reason, str) for reason in failed.values()):
        raise ConfigError(f"{source or 'dump'}: 'unreadable' must be a JSON object of reasons", hint=_HINT)
    name = document.get("source")
    image = _image(memories[0], memories[1], name if isinstance(name, str) else source)
    return replace(image, unreadable=failed, unknown=_unread(document.get("unread", {}), source))


def _unread(table: object, source: str) -> dict[str, frozenset[int]]:
    if not isinstance(table, dict) or not all(
        key in _KEYS and isinstance(offsets, list) and all(isinstance(offset, int) for offset in offsets)
        for key, offsets in table.items()
    ):
        raise ConfigError(f"{source or 'dump'}: 'unread' must be a JSON object of byte numbers by memory", hint=_HINT)
    return {key: frozenset(offsets) for key, offsets in table.items()}


def sfp_image_from_linear(data: bytes, source: str = "") -> SfpImage:
    """Return the image of a memory file: A0h, then A2h from byte 256 on. Raises ``ConfigError`` for a short file."""
    return _image(data[:MEMORY_SIZE], data[MEMORY_SIZE : 2 * MEMORY_SIZE], source)


def _image(a0: bytes, a2: bytes, source: str) -> SfpImage:
    if len(a0) < _MIN_BYTES:
        raise ConfigError(f"{source or 'dump'}: only {len(a0)} bytes of A0h", hint=_HINT)
    if not a2.strip(b"\xff") or not a2.strip(b"\x00"):
        a2 = b""  # drivers show these bytes where no device answers
    # Some tools store half of a device. Any other length means a truncated file.
    remarks = tuple(
        f"{key}: {len(memory)} of {MEMORY_SIZE} bytes"
        for key, memory in zip(("A0h", "A2h"), (a0, a2), strict=True)
        if len(memory) not in (0, MEMORY_SIZE // 2, MEMORY_SIZE)
    )
    return SfpImage(a0[:MEMORY_SIZE], a2[:MEMORY_SIZE], source, remarks)
