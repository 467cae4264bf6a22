"""What a calibration is worth, for people: summary, page, plots, and the comparison with an emulator's hidden truth.

Begin in ``summary.py``, which writes the report; ``sections.py`` are its parts, ``numbers.py``, ``uncertainty.py`` and
``readings.py`` their figures, ``plots.py`` their pictures, ``page.py`` HTML and Markdown. ``goals.py`` and
``hidden_truth.py`` judge calibrations of emulated benches.
"""
