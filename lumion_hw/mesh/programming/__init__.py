"""Heater currents for desired states or unitaries, and predictions of the light, from a calibration record."""
