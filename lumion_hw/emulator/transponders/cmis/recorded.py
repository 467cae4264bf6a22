"""A module that is only its memory: an image of a real or emulated one, behind the same bus.

What was saved is read; what a host writes to a control stays there and has no effect. For decoders, and for hosts that
meet modules nobody has modelled: flat cables, old revisions, damaged dumps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lumion_hw.errors import ConfigError
from lumion_hw.standards.cmis import Page, byte_access
from lumion_hw.standards.cmis.fields import HALF_BYTES
from lumion_hw.standards.cmis.lower_memory import PAGE_SELECT_BYTE


class RecordedModule:
    """An image as an ``I2cDevice`` at 50h.

    Args:
        image: ``lower`` and ``pages`` (by two hex digits) in hex, as ``CmisModule.image`` and saved dumps have them.
            Halves that were cut short read as 0 from there on.
        name: Device name.

    Raises:
        ConfigError: The image has another form.
    """

    def __init__(self, image: Mapping[str, Any], *, name: str = "recorded") -> None:
        self.name = name
        try:
            halves: dict[Page, str] = {None: image["lower"]}
            halves |= {int(page, 16): text for page, text in image.get("pages", {}).items()}
            self._halves = {page: bytearray.fromhex(text) for page, text in halves.items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"this is no image of a module's memory: {error}",
                device=name,
                hint="It needs 'lower' and 'pages', in hex digits.",
            ) from error
        for page, half in self._halves.items():
            half.extend(bytes(max(HALF_BYTES - len(half), 0)))
            if len(half) > HALF_BYTES:
                where = "the lower memory" if page is None else f"page {page:02X}h"
                raise ConfigError(
                    f"{where} of the image has {len(half)} bytes", device=name, hint="It has 128 at most."
                )
        # Page 00h is what PageSelect falls back to, so it has to be there.
        self._halves.setdefault(0x00, bytearray(HALF_BYTES))
        self._halves[None][PAGE_SELECT_BYTE] = 0

    def _place(self, address: int) -> tuple[Page, int]:
        page = None if address < HALF_BYTES else self._halves[None][PAGE_SELECT_BYTE]
        return page, address % HALF_BYTES

    def read(self, offset: int, length: int) -> bytes:
        """Read ``length`` bytes; a read clears the flags it covers."""
        data = bytearray()
        first = offset // HALF_BYTES * HALF_BYTES
        for address in range(offset, offset + length):
            page, place = self._place(first + address % HALF_BYTES)
            data.append(self._halves[page][place])
            self._halves[page][place] &= ~byte_access(page).clear_on_read[place]
        return bytes(data)

    def write(self, offset: int, data: bytes) -> None:
        """Write the bits of controls; an unsupported page is not mapped."""
        first = offset // HALF_BYTES * HALF_BYTES
        for address, value in enumerate(data, offset):
            page, place = self._place(first + address % HALF_BYTES)
            access = byte_access(page)
            mask = access.writable[place] & ~access.reads_zero[place]
            self._halves[page][place] = self._halves[page][place] & ~mask | value & mask
        lower = self._halves[None]
        if lower[PAGE_SELECT_BYTE] not in self._halves:
            lower[PAGE_SELECT_BYTE] = 0
