"""A bench that several people and programs use: its owner, the lease, PV Access.

:class:`BenchOwner` owns a bench and publishes :class:`ServedState`; :class:`PvaServer` serves it. Programs elsewhere
use :meth:`lumion_hw.Bench.attach`. The modules inside are private: users import from here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
