"""Links: byte streams with deadlines. All code that uses sockets, serial ports or VISA is here.

Import from this package; its modules are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
