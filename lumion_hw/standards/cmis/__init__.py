"""The CMIS register map as data, and the codec of its numbers. No I/O; shared by driver, emulator, decoder and docs.

Start at :data:`FIELDS`. ``field.span(index)`` gives the bytes to read, :func:`decode` their meaning, :func:`encode` the
bytes to write. :func:`byte_access` gives the access rights of each bit, :func:`quiet_runs` the bytes that can be read
without clearing flags. The map follows OIF CMIS 5.x and C-CMIS as far as public implementations agree
(``Field.certainty``). The modules inside are private: import from here.
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
