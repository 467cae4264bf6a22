"""The protocol between a host and a LUMION mesh controller, version 1 (``docs/protocol.md``), without I/O.

Section numbers refer to that document. Import from this package; its modules are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
