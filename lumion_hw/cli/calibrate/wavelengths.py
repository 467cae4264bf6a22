"""Options of ``lumion-calibrate`` about wavelengths."""

from __future__ import annotations

import click

from lumion_hw.cli.common.numbers import Number

_NM = Number("nm", 200.0, 20_000.0)


def _wavelengths(context: click.Context, parameter: click.Parameter, text: str) -> tuple[float, ...]:
    """Return the wavelengths of a text with commas between them."""
    return tuple(_NM.convert(part, parameter, context) for part in text.split(",") if part.strip())


wavelengths_option = click.option(
    "--wavelengths",
    default="",
    metavar="NM,NM,...",
    callback=_wavelengths,
    help=f"Further wavelengths the record is to hold for, {_NM.words}; needs lasers or tunable modules.",
)
wavelength_option = click.option(
    "--wavelength",
    metavar="NM",
    type=_NM,
    help="Wavelength to verify at, in the range of the record; by default the record's own.",
)
