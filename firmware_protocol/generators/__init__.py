"""Files generated from the schema: the C header, the locked test vectors in C, and the tables of the document.

Every function here returns text; :mod:`firmware_protocol.generate` writes or compares it.
"""
