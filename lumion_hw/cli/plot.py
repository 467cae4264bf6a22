"""``lumion plot``: draw a recording."""

from __future__ import annotations

from pathlib import Path

import click

from lumion_hw.cli.common.opening import channels_option
from lumion_hw.cli.common.output import echo_json, echo_text, json_option
from lumion_hw.cli.common.outputs import force_option, out_option


@click.command()
@click.argument("recording", type=click.Path(dir_okay=False))
@channels_option("draw")
@out_option("Figure to write: .png, .svg or .pdf.  [default: RECORDING with .png]")
@force_option
@json_option
def plot(recording: str, channels: tuple[str, ...], out: Path | None, force: bool, as_json: bool) -> None:
    """Draw a recording against time, or a scan against its swept settings, with one panel per unit.

    RECORDING is an HDF5 file written by `lumion log` or `lumion scan`, or the journal of an interrupted run.

    In a recording, a missing value leaves a gap in the line and a mark at the bottom of the panel. It is red if the
    reading failed, otherwise in the colour of the line (over range, under range or dark).
    """
    from lumion_hw.acquisition.columns import select_names
    from lumion_hw.acquisition.plotting import plot as draw, save_figure
    from lumion_hw.acquisition.recording import read_recording
    from lumion_hw.acquisition.scan_data import load_scan
    from lumion_hw.files.writing import check_target, overwrite_policy

    target = out or Path(f"{recording}.png" if not Path(recording).suffix else Path(recording).with_suffix(".png"))
    patterns, overwrite = channels or ("*",), overwrite_policy(force)
    check_target(target, "the picture", overwrite)
    if read_recording(recording, patterns).header.scan is None:
        n_channels = draw(recording, target, patterns, overwrite)
    else:
        data = load_scan(recording)
        save_figure(data.plot(patterns), target, overwrite)
        devices = {column.name: column.device for column in data.header.columns if column.name in data.value}
        n_channels = len(select_names(patterns, devices))
    if as_json:
        echo_json({"file": str(target), "channels": n_channels})
    else:
        echo_text(f"{target}: {n_channels} channel{'s' * (n_channels != 1)}")
