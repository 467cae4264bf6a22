"""Measurements of a calibration, and access to the bench.

``probe.py`` is the interface to a bench; ``logbook.py`` adds counters and stores all readings. In the order of a run:
``port_survey.py`` (working sources and monitors), ``heater_sweeps.py`` with ``heater_fringe.py`` (phase against current
of heaters), ``design.py`` (random and chosen settings). ``bench_probe.py`` implements the probe for an open bench;
``fibre_levels.py`` measures losses with external meters.
"""
