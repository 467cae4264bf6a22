"""Drivers of mesh controllers."""
