"""The firmware images of an emulated module: two banks and a factory image, in memory that keeps them without power.

After CMIS 5.2 clauses 7.3 and 9.7. A bank's image is invalid from the moment its erasing begins until it has been
checked as a whole; what is committed changes in one step. So there is a good
image to start from whenever power is lost.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

HEADER_BYTES = 64
"""Bytes at the start of an image file that go into the start command (``StartCmdPayloadSize``)."""
ERASED = 0xFF
"""Value of an erased byte."""
BANKS = "AB"
_MAGIC = b"LMNFW\x01"
_HEADER = struct.Struct(">6sBBHII")  # magic, major, minor, build, size of the file, CRC-32 of what follows the header
LARGEST = 1 << 22
"""Largest image a bank can hold, in bytes."""


def firmware_image(major: int, minor: int, build: int, size: int = 4096) -> bytes:
    """Return a file that an emulated module accepts as its firmware.

    Args:
        major: Version.
        minor: Version.
        build: Version.
        size: Length of the file in bytes, more than the header's 64.

    Raises:
        ValueError: ``size`` is too small or too large, or a version does not fit.
    """
    if not HEADER_BYTES < size <= LARGEST:
        raise ValueError(f"an image has {HEADER_BYTES + 1} to {LARGEST} bytes, not {size}")
    seed = zlib.crc32(bytes([major, minor])) ^ build
    body = bytes((seed >> (place % 24)) + 31 * place & 0xFF for place in range(size - HEADER_BYTES))
    try:
        header = _HEADER.pack(_MAGIC, major, minor, build, size, zlib.crc32(body))
    except struct.error as error:
        raise ValueError(f"version {major}.{minor}.{build} does not fit: {error}") from error
    return header.ljust(HEADER_BYTES, b"\x00") + body


@dataclass
class Image:
    """One stored image.

    Attributes:
        version: Major, minor, build.
        valid: It is whole and may run.
    """

    version: tuple[int, int, int] = (0, 0, 0)
    valid: bool = False


@dataclass
class Download:
    """An image under way to a bank.

    Attributes:
        bank: The bank.
        version: What the header says.
        crc: What the header says.
        data: The body so far, erased where nothing has been written.
        end: First byte behind the last one written.
    """

    bank: str
    version: tuple[int, int, int]
    crc: int
    data: bytearray
    end: int = 0

    @property
    def intact(self) -> bool:
        """Whether the body is what the header announces."""
        return zlib.crc32(self.data) == self.crc


@dataclass
class FirmwareStore:
    """What a module keeps of firmware. All but the download and the bank asked for outlives a loss of power.

    Attributes:
        images: Image of each bank.
        factory: Version of the image that is always there.
        committed: Bank that runs after a reset.
        running: Bank that runs now; ``F`` for the factory image.
        download: What is under way.
        asked: Bank that the next reset shall run, once.
    """

    images: dict[str, Image]
    factory: tuple[int, int, int]
    committed: str = "A"
    running: str = "A"
    download: Download | None = field(default=None)
    asked: str | None = None

    @property
    def inactive(self) -> str:
        """The bank that does not run; B under the factory image."""
        return "A" if self.running == "B" else "B"

    def version_of(self, bank: str) -> tuple[int, int, int]:
        """Return the version of a bank, zeros without a valid image."""
        if bank not in self.images:
            return self.factory
        image = self.images[bank]
        return image.version if image.valid else (0, 0, 0)

    def boot(self) -> None:
        """Start: the bank asked for, else the committed one, else the other, else the factory image."""
        self.download = None
        order = (self.asked, self.committed, *BANKS)
        self.asked = None
        self.running = next((bank for bank in order if bank and self.images[bank].valid), "F")

    def fits(self, header: bytes, size: int) -> bool:
        """Tell whether a header is that of an image for this module, and of this size."""
        if len(header) < HEADER_BYTES:
            return False
        magic, _, _, _, length, _ = _HEADER.unpack_from(header)
        return bool(magic == _MAGIC and length == size)

    def erase(self, bank: str) -> None:
        """Begin to erase a bank: its image is gone."""
        self.images[bank] = Image()

    def begin(self, header: bytes, size: int) -> bool:
        """Take a new image for the inactive bank; returns whether the header is that of one for this module."""
        if not self.fits(header, size):
            return False
        _, major, minor, build, _, crc = _HEADER.unpack_from(header)
        self.erase(self.inactive)
        body = bytearray([ERASED]) * (size - HEADER_BYTES)
        self.download = Download(self.inactive, (major, minor, build), crc, body)
        return True

    def complete(self) -> bool:
        """Check the image that was written and keep it; returns whether it is whole."""
        download, self.download = self.download, None
        if download is None or not download.intact:
            return False
        self.images[download.bank] = Image(download.version, valid=True)
        return True
