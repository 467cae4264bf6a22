"""Decodes files that contain the memory of a module of any standard."""

from __future__ import annotations

from lumion_hw.drivers.transponders.cmis_decoder import decode_image
from lumion_hw.drivers.transponders.decoded import DecodedModule, check_answer
from lumion_hw.drivers.transponders.qsfp_decoder import decode_qsfp
from lumion_hw.drivers.transponders.sfp_decoder import decode_sfp
from lumion_hw.standards.cmis.image import LOWER, MemoryImage, document_of, image_from_document, image_from_linear
from lumion_hw.standards.module_text import image_from_text
from lumion_hw.standards.sff8472.codes import SFF8472_IDENTIFIERS
from lumion_hw.standards.sff8472.image import SfpImage, sfp_image_from_document, sfp_image_from_linear
from lumion_hw.standards.sff8636.codes import SFF8636_IDENTIFIERS


def decode_file(data: bytes, source: str = "") -> DecodedModule:
    """Decode the bytes of a file with the memory of a module.

    CMIS and SFF-8636 memories can be JSON (``lower`` and ``pages``), a linear image, or the 128 bytes of the lower
    memory or of page 00h. SFP memories can be JSON (``a0`` and ``a2``), or the 256 bytes of A0h with or without the
    bytes of A2h. All can be text in one of the forms of :data:`lumion_hw.standards.module_text.FORMS`.

    Raises:
        ConfigError: The file is not a dump, or the module follows none of CMIS, SFF-8472 and SFF-8636.
    """
    # Before text is recognised: FFh is a letter in some encodings.
    check_answer(data, "the file", source)
    document = document_of(data, source)
    text = image_from_text(data, source) if document is None else None
    if text is not None:
        return decode_memory(text)
    if document is None:
        if data[:1] and data[0] in SFF8472_IDENTIFIERS:
            return decode_sfp(sfp_image_from_linear(data, source))
        return decode_memory(image_from_linear(data, source))
    if isinstance(document, dict) and "a0" in document:
        sfp = sfp_image_from_document(document, source)
        check_answer(sfp.a0, "A0h", sfp.source)
        return decode_sfp(sfp)
    image = image_from_document(document, source)
    if image.has(None, [0]) and image.halves[LOWER][0] in SFF8472_IDENTIFIERS:
        # This document contains the memory A0h as ``lower`` and page 00.
        a0 = image.halves[LOWER] + (image.half(0x00) or b"")
        return decode_sfp(sfp_image_from_linear(a0, image.source))
    return decode_memory(image)


def decode_memory(image: MemoryImage | SfpImage) -> DecodedModule:
    """Decode the memory of a module. Raises ``ConfigError`` if it follows none of the known standards."""
    if isinstance(image, SfpImage):
        return decode_sfp(image)
    is_qsfp = image.has(None, [0]) and image.halves[LOWER][0] in SFF8636_IDENTIFIERS
    return decode_qsfp(image) if is_qsfp else decode_image(image)
