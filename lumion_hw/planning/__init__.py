"""Planning of an accelerator fleet: spares for a service level, cost of recovery policies, slices of a rack.

The modules are private: import names from this package (docs/planning.md).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
