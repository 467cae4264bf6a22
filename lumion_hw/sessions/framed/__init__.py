"""The conversation with the LUMION mesh controller; begin at ``FramedSession`` in ``session``.

Sections named in these modules are those of ``docs/protocol.md``.
"""
