"""Reports about a calibration: summary, page and plots.

``summary.py`` writes the report; ``truth_errors.py`` and ``hidden_truth.py`` are for emulated benches.
"""
