"""``lumion mesh``."""
