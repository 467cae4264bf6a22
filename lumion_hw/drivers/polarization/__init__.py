"""Drivers of polarization controllers."""
