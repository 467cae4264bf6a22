"""Output of ``lumion-calibrate``: the result, and an error if the result is not acceptable."""

from __future__ import annotations

from typing import Any

from lumion_hw.cli.common.output import echo_json, echo_text, error_document, note, paragraph
from lumion_hw.errors import LumionError


def report_result(document: dict[str, Any], text: str, failure: LumionError | None, as_json: bool) -> int:
    """Print the result of a command, and an error if the result is not acceptable; return the exit code.

    With ``--json``, result and error are one document.
    """
    if as_json:
        echo_json(document if failure is None else document | error_document(failure, failure.exit_code))
    else:
        echo_text(text)
    if failure is None:
        return 0
    note(f"lumion-calibrate: {paragraph(failure)}")
    return failure.exit_code
