"""Drivers of optical amplifiers."""
