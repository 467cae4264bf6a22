"""Sharing one bench between several people and programs: owner process, lease and PV Access server.

Other programs connect with :meth:`lumion_hw.Bench.attach`. The modules of this package are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
