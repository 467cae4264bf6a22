"""How a mesh is measured: from light at its ports alone to heater laws, phases, couplers, losses and crosstalk.

The flow of a calibration, which :class:`calibration.run.procedure.Calibration` runs (docs/calibration.md, 5):

1. survey         which sources and monitors are alive, and how noisy readings are        measure/survey.py
2. sweeps         every heater once, on whatever background: its law                      measure/heater_sweeps.py
3. random         a few hundred random settings, the raw material of all that follows     measure/design.py, Walk
4. search         all passive and loop phases at once, roughly: a start for the fit       fit/phase_search.py
5. global fit     all parameters from all readings, by maximum likelihood                 fit/global_fit.py
6. diagnosis      what broke, drifted, or is physics of its own, and all fitted again     fit/diagnosed_fit.py
7. measuring on   settings that tell most per second, until the goal is reached           run/planning.py
8. fibres         losses from the mesh into its fibres, further wavelengths if asked for  measure/fibre_levels.py
9. verification   light on settings that no fit has seen, compared with the prediction    run/verification.py
10. record        parameters, covariance, faults and costs in one document                record/conversion.py

Rooms, each importing only those before it: ``model`` (the physics), ``measure``, ``diagnose``, ``fit``, ``record``,
``run`` (the procedure), ``report``. The procedure never sees the emulator's hidden truth; it drives a controller and
reads monitors through the same interfaces as any lab script. ``lumion-calibrate`` is its command line.

Scripts import what they need from here: ``from calibration import BenchProbe, Calibration``.
Everything else is private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
