"""Links: byte streams over sockets, serial ports or VISA.

Import from this package; its modules are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
