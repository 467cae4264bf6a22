"""Options of ``lumion-calibrate`` for wavelengths."""

from __future__ import annotations

import click

from lumion_hw.cli.common.numbers import Number

_NM = Number("nm", 200.0, 20_000.0)


def _wavelengths(context: click.Context, parameter: click.Parameter, text: str) -> tuple[float, ...]:
    """Return the wavelengths in a comma-separated text."""
    return tuple(_NM.convert(part, parameter, context) for part in text.split(",") if part.strip())


wavelengths_option = click.option(
    "--wavelengths",
    default="",
    metavar="NM,NM,...",
    callback=_wavelengths,
    help=f"Further wavelengths for the record, {_NM.words}; requires tunable sources.",
)
wavelength_option = click.option(
    "--wavelength",
    metavar="NM",
    type=_NM,
    help="Wavelength for the verification, in nm; default: that of the record.",
)
