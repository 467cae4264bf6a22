"""Register map of QSFP+ and QSFP28 modules (SFF-8636).

A saved memory is a :class:`lumion_hw.standards.cmis.image.MemoryImage`: the lower memory and the upper pages, in the
same file forms as a saved CMIS memory.
"""
