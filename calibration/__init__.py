"""Calibration of a mesh from its ports: heater laws (phase against current), phases, couplers, losses, crosstalk.

The stages of a calibration, which :class:`calibration.run.procedure.Calibration` runs (docs/calibration.md, 5):

1. survey         working sources and monitors, and the noise of readings             measure/port_survey.py
2. sweeps         law of every heater, swept while all others stay constant           measure/heater_sweeps.py
3. random         a few hundred random settings, the data of all further stages       measure/design.py
4. search         rough passive and loop phases as a start point for the fit          fit/phase_search.py
5. global fit     all parameters from all readings, by maximum likelihood             fit/global_fit.py
6. diagnosis      failures, drift and additional effects, each followed by a new fit  fit/diagnosed_fit.py
7. planning       settings with the most information, until the goal is reached       run/planning.py
8. fibres         losses from the mesh into its fibres; further wavelengths           measure/fibre_levels.py
9. verification   held-out settings, compared with the prediction                     run/verification.py
10. record        parameters, covariance, faults and effort in one document           record/conversion.py

Packages, each of which imports only those before it: ``model`` (physics), ``measure``, ``diagnose``, ``fit``,
``record``, ``run`` (procedure), ``report``. The command line is ``lumion-calibrate``.

Scripts import from here, for example ``from calibration import BenchProbe, Calibration``. All other names are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
