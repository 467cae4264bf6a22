"""Decodes saved memories of CMIS modules, without hardware, and says what the module got wrong."""

from lumion_hw.drivers.transponders.cmis_decoder.decoder import (
    DecodedField,
    DecodedModule,
    DecodedSample,
    decode_file,
    decode_image,
)
from lumion_hw.drivers.transponders.cmis_decoder.memory import Finding, Severity

__all__ = ["DecodedField", "DecodedModule", "DecodedSample", "Finding", "Severity", "decode_file", "decode_image"]
