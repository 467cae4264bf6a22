"""What is wrong with elements of a mesh, or changed while it was measured.

Begin in ``element_faults.py``: every fault that can be named, in words and as data. ``breakdowns.py`` finds heaters and
monitors that died during a run and channels that are exchanged, ``drift_trajectory.py`` what temperature, power and
frequency did meanwhile. ``calibration/fit/diagnosed_fit.py`` decides which of them explains the readings.
"""
