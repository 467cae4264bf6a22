"""Finding and holding the polarization that the mesh takes. Users import :class:`Aligner` and its results from here.

Read the modules, which are private, top-down:

- ``alignment`` moves a controller, reads a meter, and asks one of the next three for each step;
- ``search`` for actuators whose settings are known, ``feedback`` for a box that hides them, ``tracking`` for light that
  drifts after it was found;
- ``strategy`` decides where a search reads next, on what ``state_fit`` (squeezers), ``plate_fit`` (plates that turn) or
  ``sinusoids`` (one actuator at a time) make of the readings;
- ``retarders`` is the mathematics below, ``squeezer_drives`` turns drives into phases.

The model and its numbers are in docs/polarization.md, why it infers instead of climbing in docs/decisions/0005.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
