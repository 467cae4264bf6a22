"""Detection of broken elements, and of changes during a calibration run.

``element_faults.py`` defines the faults and their messages. ``breakdowns.py`` finds heaters and monitors that failed
during a run, and exchanged channels. ``drift_trajectory.py`` finds the drift of temperature, power and frequency.
"""
