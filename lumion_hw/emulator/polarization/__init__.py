"""Emulated polarization controllers and polarimeters."""
