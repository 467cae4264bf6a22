"""What is printed from the schema: the C header, the C form of the locked vectors, the tables of the document.

Every function here returns text; :mod:`firmware_protocol.generate` writes or compares it.
"""
