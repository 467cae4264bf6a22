"""Decodes a file that holds the memory of a module, whichever standard it follows."""

from __future__ import annotations

from lumion_hw.drivers.transponders.cmis_decoder import decode_image
from lumion_hw.drivers.transponders.decoded import DecodedModule
from lumion_hw.drivers.transponders.sfp_decoder import decode_sfp
from lumion_hw.standards.cmis.image import LOWER, MemoryImage, document_of, image_from_document, image_from_linear
from lumion_hw.standards.sff8472.codes import SFF8472_IDENTIFIERS
from lumion_hw.standards.sff8472.image import sfp_image_from_document, sfp_image_from_linear


def decode_file(data: bytes, source: str = "") -> DecodedModule:
    """Decode the bytes of a file; byte 0 of the memory says what the rest means.

    CMIS memories come as JSON (``lower`` and ``pages``), as a linear image, or as 128 bytes of lower memory; those of
    SFP modules as JSON (``a0`` and ``a2``), or as the 256 bytes of A0h, with those of A2h behind them.

    Raises:
        ConfigError: It is no dump, or of a module that is managed neither by CMIS nor by SFF-8472.
    """
    document = document_of(data, source)
    if document is None:
        if data[:1] and data[0] in SFF8472_IDENTIFIERS:
            return decode_sfp(sfp_image_from_linear(data, source))
        return decode_image(image_from_linear(data, source))
    if isinstance(document, dict) and "a0" in document:
        return decode_sfp(sfp_image_from_document(document, source))
    image = image_from_document(document, source)
    if image.has(None, [0]) and image.halves[LOWER][0] in SFF8472_IDENTIFIERS:
        return decode_sfp(sfp_image_from_linear(_known(image), image.source))
    return decode_image(image)


def _known(image: MemoryImage) -> bytes:
    """Return A0h from a document that calls its halves ``lower`` and page 00."""
    return image.halves[LOWER] + (image.half(0x00) or b"")
