"""Driver of the LUMION mesh controller. Section numbers refer to ``docs/protocol.md``."""
