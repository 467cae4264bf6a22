"""Emulated optical power meters."""
