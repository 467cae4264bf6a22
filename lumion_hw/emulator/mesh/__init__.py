"""Emulated mesh controllers."""
