"""Calibration procedure: stages, journal, verification and renewal; ``procedure.py`` is one run."""
