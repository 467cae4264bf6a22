"""Emulated optical amplifiers."""
