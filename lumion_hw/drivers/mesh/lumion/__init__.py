"""The driver of the LUMION mesh controller. Sections named in its modules are those of ``docs/protocol.md``."""
