"""Heater currents for wanted states or unitaries, and the light they give, from a calibration record."""
