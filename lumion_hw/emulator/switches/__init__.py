"""Emulated optical switches."""
