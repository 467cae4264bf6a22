"""``lumion plan`` and ``lumion slice``."""
