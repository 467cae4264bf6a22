"""Drivers of variable attenuators."""
