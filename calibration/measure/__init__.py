"""What a calibration measures, and how it reaches a bench.

Begin in ``probe.py`` (what is asked of a bench), then ``logbook.py`` (the same, counted and kept). ``survey.py``,
``heater_sweeps.py`` with ``heater_fringe.py``, and ``design.py`` are the measurements in the order of a run: what is
alive, heater laws, random and chosen settings. ``bench_probe.py`` is the probe of an open bench, ``fibre_levels.py``
the comparison with external meters at the end.
"""
