"""Session with the LUMION mesh controller; start reading at ``FramedSession`` in ``session``.

Section numbers in these modules refer to ``docs/protocol.md``.
"""
