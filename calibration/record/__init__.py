"""From fitted parameters to the calibration record and the files beside it.

Begin in ``conversion.py``: parameters to record and back. ``conditions.py`` says for which light, temperature and time
a record holds, ``comparison.py`` how two records differ, ``raw_data.py`` keeps the readings, ``export.py`` writes
tables for other programs.
"""
