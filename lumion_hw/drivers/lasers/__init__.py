"""Drivers of tunable lasers."""
