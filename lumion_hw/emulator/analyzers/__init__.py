"""Emulated spectrum analysers."""
