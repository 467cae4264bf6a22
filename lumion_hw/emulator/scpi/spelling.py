"""The mixed case of the manuals: ``WAVelength`` means ``WAV`` or ``WAVELENGTH`` in any case, nothing between."""

from __future__ import annotations


def short_form(spelling: str) -> str:
    """Return the upper-case part of a documented spelling: ``WAVelength`` -> ``WAV``."""
    return "".join(character for character in spelling if not character.islower())


def forms(spelling: str) -> frozenset[str]:
    """Return the accepted forms, upper case. Vendors break the four-letter rule, so nothing is computed."""
    return frozenset((short_form(spelling), spelling.upper()))
