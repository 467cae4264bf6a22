"""Links: bytes out, bytes in, by a deadline. Everything that knows sockets, serial ports or VISA lives here.

The modules inside are private: users import from here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
