"""Measurements of a calibration, and access to the bench.

``probe.py`` is the interface to a bench, ``bench_probe.py`` its implementation.
"""
