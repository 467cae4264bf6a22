"""Planning: spares for a service level, what policies of recovery cost, slices of a rack. Nothing here needs a bench.

The modules inside are private: users import from here (docs/planning.md).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
