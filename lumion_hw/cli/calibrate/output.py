"""Output of a result and of a failure at the end of ``lumion-calibrate`` commands."""

from __future__ import annotations

from typing import Any

from lumion_hw.cli.common.output import echo_json, error_document, note, paragraph, say
from lumion_hw.errors import LumionError


def conclude(document: dict[str, Any], text: str, failure: LumionError | None, as_json: bool) -> int:
    """Print a result, also if it fails a check, and return the exit code.

    With ``--json`` result and failure are one document, because stdout must contain exactly one.
    """
    if as_json:
        echo_json(document if failure is None else document | error_document(failure, failure.exit_code))
    else:
        say(text)
    if failure is None:
        return 0
    note(f"lumion-calibrate: {paragraph(failure)}")
    return failure.exit_code
