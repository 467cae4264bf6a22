"""From fitted parameters to the calibration record and the files beside it."""
