"""Circuit set-up: plan, program, align polarization, prove by measured light, or roll back.

Begin with :class:`PathSetup`: ``plan`` decides before anything is changed, ``setup`` carries the plan out, ``lighting``
handles the light. ``service`` keeps circuits connected between programs; ``state`` is their journal, and ``lock``
records which program drives the bench. The modules are private: import names from this package, and polarization search
from :mod:`lumion_hw.polarization`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
