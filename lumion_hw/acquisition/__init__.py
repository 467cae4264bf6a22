"""Acquisition: what can be logged on a bench, reading it at a steady rate, and keeping every acknowledged row."""
