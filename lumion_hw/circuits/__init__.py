"""Path set-up, aware of polarization: plan, program, align, prove by measured light, or roll back.

Begin at :class:`PathSetup`; ``plan`` decides before anything is changed, ``setup`` carries it out. ``service`` keeps
circuits between programs: ``state`` is their journal, ``lock`` says whose the bench is. The modules are
private: users import from here, and what aligns a polarization from :mod:`lumion_hw.polarization`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
