"""The CMIS register map and the codec of its numbers.

:data:`FIELDS` lists the fields. ``field.span(index)`` gives the bytes of a field, :func:`decode` its value, and
:func:`encode` the bytes to write. The map follows OIF CMIS 5.x and C-CMIS as far as public implementations agree
(``Field.certainty``). Import from this package; its modules are private.
"""

from lumion_hw.standards.cmis.administrative_pages import CHECKSUMS
from lumion_hw.standards.cmis.codec import decode_from
from lumion_hw.standards.cmis.fields import Certainty, Field, Location, Page
from lumion_hw.standards.cmis.image import MemoryImage, parse_image
from lumion_hw.standards.cmis.index import (
    ALL_FIELDS,
    CONDITIONS,
    FIELDS,
    PAGES,
    ByteAccess,
    byte_access,
    fields_of,
    flag_bytes,
    is_supported,
    quiet_runs,
)
from lumion_hw.standards.registers import Access, Array, Checksum, NumberFormat, Value, decode, encode, raw

__all__ = [
    "ALL_FIELDS",
    "CHECKSUMS",
    "CONDITIONS",
    "FIELDS",
    "PAGES",
    "Access",
    "Array",
    "ByteAccess",
    "Certainty",
    "Checksum",
    "Field",
    "Location",
    "MemoryImage",
    "NumberFormat",
    "Page",
    "Value",
    "byte_access",
    "decode",
    "decode_from",
    "encode",
    "fields_of",
    "flag_bytes",
    "is_supported",
    "parse_image",
    "quiet_runs",
    "raw",
]
