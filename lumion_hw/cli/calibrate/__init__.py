"""The ``lumion-calibrate`` command."""
