"""Reports about a calibration: summary, page, plots, and comparison with the true parameters of an emulator.

``summary.py`` writes the report. ``headline.py`` has the verdict and the key figures; ``sections.py`` the other parts,
from ``numbers.py``, ``uncertainty.py``, ``readings.py`` and ``plots.py``; ``page.py`` writes HTML and Markdown.
``truth_errors.py`` and ``hidden_truth.py`` are for emulated benches.
"""
