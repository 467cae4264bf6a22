"""The photonic mesh as mathematics: topology, unit cell, scattering, routing, calibration record and its inverse.

The modules inside are private: users import from here (docs/mesh.md, docs/programming.md).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
