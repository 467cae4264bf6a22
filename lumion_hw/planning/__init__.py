"""Planning: spares for a service level, cost of recovery policies, and slices of a rack. No bench is needed.

The modules are private: import names from this package (docs/planning.md).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
