"""Options of commands that write files: ``--out``, ``--plot`` and ``--force``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from lumion_hw.cli.common.parameter_type import ParameterType

_Command = TypeVar("_Command", bound=Callable[..., Any])


class NamedFile(ParameterType[Path]):
    """Parameter type: the path of a file to write."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Convert a command-line argument to the path of a file to write."""
        path = Path(value)
        if str(value) == "-":
            self.fail("'-' (standard output) is not supported; give a file name.", param, ctx)
        if not path.name or "\0" in str(value):
            self.fail(f"{str(value)!r} is not a file name.", param, ctx)
        return path


def out_option(help_text: str, *names: str, default: str | None = None) -> Callable[[_Command], _Command]:
    """Return an option for a file to write, named ``--out`` unless other names are given."""
    has_default = default is not None
    return click.option(
        *(names or ("--out",)), type=NamedFile(), default=default, show_default=has_default, help=help_text
    )


def plot_option(content: str) -> Callable[[_Command], _Command]:
    """Return the option ``--plot`` for a figure of ``content`` to write."""
    return out_option(f"Figure of {content} to write: .png, .svg or .pdf.", "--plot")


def force_option(function: _Command) -> _Command:
    """Add ``--force`` to a command that writes files, as the parameter ``force``."""
    text = "Overwrite a file even if this program did not write it."
    decorated: _Command = click.option("--force", is_flag=True, help=text)(function)
    return decorated
