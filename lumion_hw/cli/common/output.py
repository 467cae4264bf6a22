"""What commands print: tables and one JSON document on stdout, everything else on stderr."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lumion_hw.errors import LumionError, exit_code
from lumion_hw.files.json_text import json_text
from lumion_hw.files.shown import lines, one_line

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

_Command = TypeVar("_Command", bound=Callable[..., Any])


def json_option(function: _Command) -> _Command:
    """Add ``--json`` to a command, as the parameter ``as_json``."""
    text = "Print one JSON document on stdout and nothing else there."
    decorated: _Command = click.option("--json", "as_json", is_flag=True, help=text)(function)
    return decorated


def echo_json(document: Mapping[str, Any], *, in_one_line: bool = False) -> None:
    """Print one JSON document on stdout, in one line where many follow each other.

    NaN and infinity, which JSON does not have, are printed as ``null``.
    """
    click.echo(json_text(document, indent=None if in_one_line else 2, default=_plain))


def _plain(value: object) -> object:
    """Return arrays, dataclasses, tuples of them and paths as what JSON knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    to_list = getattr(value, "tolist", None)
    return to_list() if callable(to_list) else str(value)


def say(text: str) -> None:
    """Print lines on stdout. What would take effect on a terminal, such as an escape from a file, is shown instead."""
    click.echo(lines(text))


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table as text: columns aligned, numbers to the right, ``-`` for ``None``, nothing with effect."""
    cells = [["-" if cell is None else one_line(cell) for cell in row] for row in rows]
    columns = list(zip(headers, *cells, strict=True))
    widths = [max(len(cell) for cell in column) for column in columns]
    right = [_is_numeric([row[i] for row in rows]) for i in range(len(headers))]
    rendered = []
    for line in ([*headers], ["-" * width for width in widths], *cells):
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        )
        rendered.append("  ".join(padded).rstrip())
    return "\n".join(rendered)


def _is_numeric(column: Sequence[object]) -> bool:
    """Return whether a column holds numbers, and nothing else but gaps."""
    present = [cell for cell in column if cell is not None]
    return bool(present) and all(isinstance(cell, int | float) for cell in present)


def echo_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table with its title, and an empty line after it; nothing if it has no rows."""
    if rows:
        say(f"{title}\n{table(headers, rows)}\n")


def note(text: str) -> None:
    """Print progress or a remark on stderr, as :func:`say` does."""
    click.echo(lines(text), err=True)


def progress(length: int, label: str) -> AbstractContextManager[ProgressBar[int]]:
    """Return a progress bar on stderr, advanced with ``update(n)``; nothing is drawn unless stderr is a terminal."""
    return click.progressbar(length=length, label=label, file=sys.stderr, hidden=not sys.stderr.isatty())


def paragraph(error: BaseException) -> str:
    """Return a failure in words: one paragraph, and one line per member of a group."""
    if isinstance(error, BaseExceptionGroup):
        members = "\n".join(f"- {paragraph(member)}" for member in error.exceptions)
        return f"{error.message}:\n{members}"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, LumionError):
        return str(error)
    return f"internal error, please report it: {type(error).__name__}: {error}"


def error_document(error: BaseException, code: int) -> dict[str, Any]:
    """Return a failure as the JSON document that ``--json`` prints instead of a result."""
    document: dict[str, Any] = {"type": type(error).__name__, "message": paragraph(error), "exit_code": code}
    if isinstance(error, LumionError):
        details = {"device": error.device, "address": error.address, "hint": error.hint}
        document |= {key: value for key, value in details.items() if value is not None}
    if isinstance(error, BaseExceptionGroup):
        members = [error_document(member, exit_code(member))["error"] for member in error.exceptions]
        document["members"] = members
    return {"error": document}


def report_failure(error: BaseException, code: int, as_json: bool) -> int:
    """Print a failure on stderr, and as a document on stdout if asked, and return the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        note(paragraph(error))
        return code
    if isinstance(error, click.UsageError) and error.ctx is not None:
        note(error.ctx.get_usage())
    if not _is_expected(error):
        import traceback

        note("".join(traceback.format_exception(error)).rstrip())
    note(f"lumion: {paragraph(error)}")
    if as_json:
        echo_json(error_document(error, code))
    return code


def _is_expected(error: BaseException) -> bool:
    """Return whether a failure speaks for itself; anything else is a bug and shows where it happened."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_expected(member) for member in error.exceptions)
    return isinstance(error, LumionError | click.ClickException | click.Abort | KeyboardInterrupt)
