"""Kinds of devices that a bench file may contain."""
