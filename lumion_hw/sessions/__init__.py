"""Sessions: each exchanges requests and replies with one device, with locks, time-outs and recovery.

Import from this package; its modules are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
