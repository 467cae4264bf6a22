"""``--version`` of every program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _print_version(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if not asked or ctx.resilient_parsing:
        return
    import importlib.metadata

    try:
        version = importlib.metadata.version("lumion-hw")
    except importlib.metadata.PackageNotFoundError:
        version = "(not installed)"
    click.echo(f"lumion-hw {version}")
    ctx.exit()


def version_option(function: _Command) -> _Command:
    """Add ``--version``, which says what is installed and does nothing else."""
    decorated: _Command = click.option(
        "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Version."
    )(function)
    return decorated
