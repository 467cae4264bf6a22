"""Instrument drivers, one file per instrument family, written from public documents and independent of the emulator.

A bench opens drivers by kind. To open an instrument without a bench file, or to write a driver, import from this
package; its modules are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
