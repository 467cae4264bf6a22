"""What a calibration measures, and how it reaches a bench."""
