"""Sharing one bench between several people and programs: the owner process, the lease and the PV Access server.

:class:`BenchOwner` owns a bench and publishes :class:`ServedState`; :class:`PvaServer` serves it. Other programs
connect with :meth:`lumion_hw.Bench.attach`. The modules inside are private: users import from here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
