"""Emulated tunable lasers."""
