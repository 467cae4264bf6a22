"""Sessions: one conversation per link, with a lock, deadlines and recovery after a missed reply.

For writing a driver, or for opening a module without a bench file (docs/transponders.md). Import from this package; its
modules are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
