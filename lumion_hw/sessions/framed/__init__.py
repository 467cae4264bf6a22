"""Session with the LUMION mesh controller (``docs/protocol.md``)."""
