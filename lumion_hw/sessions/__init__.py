"""Sessions: one conversation per link, holding the lock, the deadlines and the way back after a missed reply.

For those who write a driver, or open a module without a bench file (docs/transponders.md). The modules inside are
private: users import from here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
