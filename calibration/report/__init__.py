"""Reports about a calibration: summary, page and plots, and comparison with the hidden truth of an emulator.

Start reading in ``summary.py``, which writes the report. ``headline.py`` has the verdict and the key figures;
``sections.py`` builds all other parts from the figures of ``numbers.py``, ``uncertainty.py`` and ``readings.py`` and
the pictures of ``plots.py``; ``page.py`` writes HTML and Markdown. ``truth_errors.py`` and ``hidden_truth.py`` judge
calibrations of emulated benches.
"""
