"""Drivers of optical power meters."""
