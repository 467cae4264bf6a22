"""Emulated pluggable modules, and the I2C bridge in front of them."""
