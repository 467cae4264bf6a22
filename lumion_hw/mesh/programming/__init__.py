"""Heater currents for wanted states or unitaries, and predictions of the light, from a calibration record."""
