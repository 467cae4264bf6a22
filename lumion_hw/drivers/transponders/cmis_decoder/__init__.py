"""Decodes saved memories of CMIS modules, without hardware, and says what the module got wrong."""

from lumion_hw.drivers.transponders.cmis_decoder.decoder import decode_image

__all__ = ["decode_image"]
