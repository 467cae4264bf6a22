"""Conversion of fitted parameters to the calibration record, and files next to the record.

``conversion.py`` converts parameters to a record and back. ``conditions.py`` calculates where a record is valid,
``comparison.py`` compares two records, ``raw_data.py`` stores the readings, ``export.py`` writes tables for other
programs.
"""
