"""Conversion of fitted parameters to the calibration record, and files next to the record."""
