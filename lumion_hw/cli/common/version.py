"""The option ``--version`` of every program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _print_version(ctx: click.Context, _option: click.Parameter, is_given: bool) -> None:
    if not is_given or ctx.resilient_parsing:
        return
    import importlib.metadata

    try:
        version = importlib.metadata.version("lumion-hw")
    except importlib.metadata.PackageNotFoundError:
        version = "(not installed)"
    click.echo(f"lumion-hw {version}")
    ctx.exit()


def version_option(function: _Command) -> _Command:
    """Add ``--version``, which prints the installed version and exits."""
    decorated: _Command = click.option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_version,
        help="Print the version and exit.",
    )(function)
    return decorated
