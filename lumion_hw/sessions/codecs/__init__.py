"""Bytes of the instruments' own protocols, as pure functions: what a session writes, and what it makes of a reply."""
