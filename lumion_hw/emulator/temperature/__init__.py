"""Emulated temperature controllers."""
