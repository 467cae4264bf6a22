"""Drivers of transponders and pluggable modules."""
