"""Detection of broken elements and of changes during a calibration run.

Start reading in ``element_faults.py``: it defines every fault with its message. ``breakdowns.py`` finds heaters and
monitors that failed during a run and exchanged channels. ``drift_trajectory.py`` finds the drift of temperature, power
and frequency. ``calibration/fit/diagnosed_fit.py`` decides which of these causes explains the readings.
"""
