"""The calibration record: its entries, canonical JSON, and the checks of its validity."""
