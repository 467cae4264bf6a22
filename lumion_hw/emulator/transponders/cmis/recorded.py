"""An emulated module that replays a recorded memory image.

Reads return the saved bytes. Writes to controls are stored and have no other effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lumion_hw.errors import ConfigError
from lumion_hw.standards.cmis import Page, byte_access
from lumion_hw.standards.cmis.fields import HALF_BYTES
from lumion_hw.standards.cmis.lower_memory import PAGE_SELECT_BYTE


class RecordedModule:
    """A recorded memory image as an ``I2cDevice`` at address 50h.

    Args:
        image: ``lower`` and ``pages`` (by two hex digits) in hex, as in ``CmisModule.image`` and saved dumps, else
            ``ConfigError``. Missing bytes at the end of a half read as 0.
    """

    def __init__(self, image: Mapping[str, Any], *, name: str = "recorded") -> None:
        self.name = name
        try:
            halves: dict[Page, str] = {None: image["lower"]}
            halves |= {int(page, 16): text for page, text in image.get("pages", {}).items()}
            self._halves = {page: bytearray.fromhex(text) for page, text in halves.items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"not an image of a module's memory: {error}",
                device=name,
                hint="Provide an object with 'lower' and 'pages' as hex digits.",
            ) from error
        for page, half in self._halves.items():
            half.extend(bytes(max(HALF_BYTES - len(half), 0)))
            if len(half) > HALF_BYTES:
                where = "the lower memory" if page is None else f"page {page:02X}h"
                raise ConfigError(
                    f"{where} of the image has {len(half)} bytes", device=name, hint="Give at most 128 bytes."
                )
        # PageSelect falls back to page 00h, so that page must exist.
        self._halves.setdefault(0x00, bytearray(HALF_BYTES))
        self._halves[None][PAGE_SELECT_BYTE] = 0

    def _location(self, address: int) -> tuple[Page, int]:
        page = None if address < HALF_BYTES else self._halves[None][PAGE_SELECT_BYTE]
        return page, address % HALF_BYTES

    def read(self, offset: int, length: int) -> bytes:
        """Read ``length`` bytes. A read clears the flags in these bytes."""
        data = bytearray()
        first = offset // HALF_BYTES * HALF_BYTES
        for address in range(offset, offset + length):
            page, index = self._location(first + address % HALF_BYTES)
            data.append(self._halves[page][index])
            self._halves[page][index] &= ~byte_access(page).clear_on_read[index]
        return bytes(data)

    def write(self, offset: int, data: bytes) -> None:
        """Write to the memory. Only control bits change, and unsupported pages cannot be selected."""
        first = offset // HALF_BYTES * HALF_BYTES
        for address, value in enumerate(data, offset):
            page, index = self._location(first + address % HALF_BYTES)
            access = byte_access(page)
            mask = access.writable[index] & ~access.reads_zero[index]
            self._halves[page][index] = self._halves[page][index] & ~mask | value & mask
        lower = self._halves[None]
        if lower[PAGE_SELECT_BYTE] not in self._halves:
            lower[PAGE_SELECT_BYTE] = 0
