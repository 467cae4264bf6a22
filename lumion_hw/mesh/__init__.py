"""Model of a photonic mesh, without hardware: topology, unit cells, routing, calibration record and programming.

Import from here, not from the modules inside.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
