"""Output of the commands: tables or JSON on stdout, everything else on stderr."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lumion_hw.errors import LumionError, exit_code
from lumion_hw.files.escaping import lines, one_line
from lumion_hw.files.json_text import json_text

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

_Command = TypeVar("_Command", bound=Callable[..., Any])


def json_option(function: _Command) -> _Command:
    """Add ``--json`` to a command, as the parameter ``as_json``."""
    text = "Print one JSON document on stdout, and nothing else."
    decorated: _Command = click.option("--json", "as_json", is_flag=True, help=text)(function)
    return decorated


def echo_json(document: Mapping[str, Any], *, single_line: bool = False) -> None:
    """Print a JSON document on stdout, as a single line if it is part of a series of documents.

    NaN and infinity are printed as ``null``.
    """
    click.echo(json_text(document, indent=None if single_line else 2, default=_as_json_value))


def _as_json_value(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    to_list = getattr(value, "tolist", None)
    return to_list() if callable(to_list) else str(value)


def echo_text(text: str) -> None:
    """Print text on stdout, with control characters escaped."""
    click.echo(lines(text))


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table as text; ``None`` is shown as ``-``."""
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
    present = [cell for cell in column if cell is not None]
    return bool(present) and all(isinstance(cell, int | float) for cell in present)


def echo_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table with a title; print nothing if it has no rows."""
    if rows:
        echo_text(f"{title}\n{table(headers, rows)}\n")


def note(text: str) -> None:
    """Print a remark on stderr, with control characters escaped."""
    click.echo(lines(text), err=True)


def progress(
    length: int, label: str, width: int = 36, *, show_eta: bool = True
) -> AbstractContextManager[ProgressBar[int]]:
    """Return a progress bar on stderr, which is visible only on a terminal; ``update(n)`` advances it.

    ``width`` is that of the bar in characters, without label and percentage; ``show_eta`` adds the remaining time.
    """
    hidden = not sys.stderr.isatty()
    return click.progressbar(length=length, label=label, file=sys.stderr, hidden=hidden, width=width, show_eta=show_eta)


def paragraph(error: BaseException) -> str:
    """Return the text of an error as one paragraph, or for an exception group one line per exception."""
    if isinstance(error, BaseExceptionGroup):
        members = "\n".join(f"- {paragraph(member)}" for member in error.exceptions)
        return f"{error.message}:\n{members}"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, LumionError):
        return " ".join([str(error), *getattr(error, "__notes__", ())])
    return f"internal error, please report it: {type(error).__name__}: {error}"


def error_document(error: BaseException, code: int) -> dict[str, Any]:
    """Return the JSON document of an error."""
    document: dict[str, Any] = {"type": type(error).__name__, "message": paragraph(error), "exit_code": code}
    if isinstance(error, LumionError):
        details = {"device": error.device, "address": error.address, "hint": error.hint}
        document |= {key: value for key, value in details.items() if value is not None}
    if isinstance(error, BaseExceptionGroup):
        members = [error_document(member, exit_code(member))["error"] for member in error.exceptions]
        document["members"] = members
    return {"error": document}


def report_failure(error: BaseException, code: int, as_json: bool) -> int:
    """Print an error on stderr, and with ``as_json`` also as a JSON document on stdout; return the exit code."""
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
    if isinstance(error, BaseExceptionGroup):
        return all(_is_expected(member) for member in error.exceptions)
    return isinstance(error, LumionError | click.ClickException | click.Abort | KeyboardInterrupt)
