"""Measurements of a calibration, and access to the bench.

Start reading in ``probe.py`` (the interface to a bench) and ``logbook.py`` (the same interface with counters and
storage of all readings). The measurements in the order of a run are ``port_survey.py`` (working sources and monitors),
``heater_sweeps.py`` with ``heater_fringe.py`` (heater laws), and ``design.py`` (random and chosen settings).
``bench_probe.py`` implements the probe for an open bench; ``fibre_levels.py`` measures losses with external meters.
"""
