"""The conversation with the LUMION mesh controller; begin at ``FramedSession`` in ``session``."""
