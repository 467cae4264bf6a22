"""Emulated variable attenuators."""
