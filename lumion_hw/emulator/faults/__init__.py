"""Scripted faults of an emulated bench and its devices."""
