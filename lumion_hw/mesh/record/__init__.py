"""The calibration record: its entries, its canonical JSON form, and the checks of its validity."""
