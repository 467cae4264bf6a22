"""Drivers of spectrum analysers."""
