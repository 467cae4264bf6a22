"""Decodes saved memories of CMIS modules without hardware and reports errors in them."""

from lumion_hw.drivers.transponders.cmis_decoder.decoder import decode_image

__all__ = ["decode_image"]
