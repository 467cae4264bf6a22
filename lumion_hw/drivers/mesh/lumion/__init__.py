"""The driver of the LUMION mesh controller."""
