"""Drivers of optical switches."""
