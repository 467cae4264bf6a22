"""Conversion of fitted parameters into the calibration record, and the files next to the record.

Start reading in ``conversion.py`` (parameters to record and back). ``conditions.py`` calculates the range of light,
temperature and time for which a record holds, ``comparison.py`` compares two records, ``raw_data.py`` stores the
readings, and ``export.py`` writes tables for other programs.
"""
