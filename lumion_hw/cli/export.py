"""``lumion export``: convert a recording to documents of bluesky's event model."""

from __future__ import annotations

from pathlib import Path

import click

from lumion_hw.cli.common.opening import channels_option
from lumion_hw.cli.common.output import echo_json, echo_text, json_option
from lumion_hw.cli.common.outputs import force_option, out_option


@click.command()
@click.argument("recording", type=click.Path(dir_okay=False))
@channels_option("export")
@out_option("File of JSON lines to write.  [default: RECORDING with .jsonl]", "-o", "--out")
@force_option
@json_option
def export(recording: str, channels: tuple[str, ...], out: Path | None, force: bool, as_json: bool) -> None:
    """Convert a recording to documents of bluesky's event model: start, descriptor, events, stop.

    RECORDING is an HDF5 file written by `lumion log` or `lumion scan`, or the journal of an interrupted run. Each line
    of the output is one JSON object.
    """
    from lumion_hw.acquisition import read_recording, write_documents
    from lumion_hw.files.writing import overwrite_policy

    target = out or Path(recording).with_suffix(".jsonl")
    n_documents = write_documents(read_recording(recording), target, overwrite_policy(force), channels or ("*",))
    if as_json:
        echo_json({"file": str(target), "documents": n_documents})
    else:
        echo_text(f"{target}: {n_documents} documents")
