"""Search and tracking of the polarization that the mesh accepts. Import :class:`Aligner` and its results from here.

The modules are private. Read them in this order:

- ``alignment`` moves a controller, reads a meter, and calls one of the next three modules for each step;
- ``search`` handles actuators whose settings are known, ``feedback`` controllers that hide them, and ``tracking`` light
  that drifts after the search;
- ``strategy`` decides where a search reads next, from fits of the readings by ``state_fit`` (squeezers), ``plate_fit``
  (rotating plates) or ``sinusoids`` (one actuator at a time);
- ``retarders`` contains the mathematics, and ``squeezer_drives`` converts drives to phases.

The model and its numbers are in docs/polarization.md; docs/decisions/0005 explains why the search infers the state
instead of climbing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
