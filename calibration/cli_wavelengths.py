"""Options of ``lumion-calibrate`` about wavelengths."""

from __future__ import annotations

import click

_SANE_NM = (200.0, 20000.0)


def _wavelengths(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[float, ...]:
    """Return the wavelengths of a text with commas between them."""
    try:
        found = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no list of wavelengths in nm such as 1545,1550,1555.") from error
    if not all(_SANE_NM[0] < nm < _SANE_NM[1] for nm in found):
        raise click.BadParameter(f"{text!r}: wavelengths are given in nm, such as 1550.")
    return found


wavelengths_option = click.option(
    "--wavelengths",
    default="",
    metavar="NM,NM,...",
    callback=_wavelengths,
    help="Further wavelengths the record is to hold for, with all between; needs lasers or tunable modules.",
)
wavelength_option = click.option(
    "--wavelength",
    metavar="NM",
    type=click.FloatRange(*_SANE_NM),
    help="Wavelength to verify at, in the range of the record; by default the record's own.",
)
