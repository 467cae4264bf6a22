"""Fabric: servers connected by optical circuits; jobs, failure detection, spares, and recovery.

The modules are private: import names from this package.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
