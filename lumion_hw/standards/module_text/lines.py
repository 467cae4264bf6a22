"""Lines of a text dump, and errors that name them."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass

from lumion_hw.errors import ConfigError

SPLIT_HINT = "Save the dump of one module in a file of its own."
COPY_HINT = "Copy the output again, with complete lines, or save it in a file with '>'."
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
_QUOTE = re.compile(r"^(?:> ?)+")  # of forwarded mail
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_MAX_SHOWN = 60


@dataclass(frozen=True)
class DumpLine:
    """A line of a file.

    Attributes:
        number: Number in the file, from 1.
        text: Text without line end, mail quoting and colour codes.
        source: Name of the file.
    """

    number: int
    text: str
    source: str = ""

    def error(self, expected: str, found: str, hint: str = COPY_HINT) -> ConfigError:
        """Return the error that this line differs from what the form of the dump requires."""
        return ConfigError(
            f"{self.source or 'dump'}, line {self.number}: expected {expected}, found {found}", hint=hint
        )

    @property
    def shown(self) -> str:
        """The text, shortened for messages."""
        text = self.text.strip()
        return repr(text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "...")


def text_of(data: bytes) -> str | None:
    """Return the bytes of a file as text, or ``None`` for binary data.

    UTF-16 is what a Windows shell writes. Bytes above 7Fh may appear in the column of characters.
    """
    if data.startswith(_UTF16):
        return data.decode("utf-16", errors="replace")
    text = data.removeprefix(codecs.BOM_UTF8).decode("latin-1")
    return None if not text.strip() or _CONTROL.search(text) else text


def lines_of(text: str, source: str) -> Iterator[DumpLine]:
    """Yield the lines of a text that are not empty."""
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        clean = _COLOUR.sub("", _QUOTE.sub("", raw)).rstrip()
        if clean:
            yield DumpLine(number, clean, source)
