"""Hardware-free model of a photonic mesh: topology, unit cell, scattering, routing, calibration record, programming.

The modules inside are private; import from here (docs/mesh.md, docs/programming.md).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
