"""Search and tracking of the polarization that the mesh accepts (docs/polarization.md).

Import :class:`Aligner` and its results from here; the modules are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
