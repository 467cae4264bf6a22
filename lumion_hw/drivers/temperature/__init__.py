"""Drivers of temperature controllers."""
