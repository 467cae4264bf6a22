"""Drivers: one file per instrument family, all of them from public documents, none of them aware of an emulator.

A bench opens them by their kind; who opens an instrument without a bench file, or writes a driver, imports from here.
The modules inside are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
