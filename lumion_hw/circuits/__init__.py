"""Circuit set-up: plan, program, align polarization, check by measured light, or roll back.

Start with :class:`PathSetup`. :class:`CircuitService` keeps circuits connected between programs. The modules are
private: import names from this package, and polarization search from :mod:`lumion_hw.polarization`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
