"""The calibration record: contents, JSON form and validity."""
