"""``lumion plot``: draw a recording."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.opening import channels_option
from lumion_hw.cli.common.output import echo_json, echo_text, json_option
from lumion_hw.cli.common.outputs import force_option, out_option

if TYPE_CHECKING:
    from lumion_hw.acquisition import FringeFit
    from lumion_hw.files.writing import Overwrite


@click.command()
@click.argument("recording", type=click.Path(dir_okay=False))
@channels_option("draw")
@out_option("Figure to write: .png, .svg or .pdf.  [default: RECORDING with .png]")
@click.option(
    "--fit-fringe",
    is_flag=True,
    help="Fit the power per π (Pπ) of the swept heater to the channel that shows it best, and draw this fit.",
)
@force_option
@json_option
def plot(
    recording: str, channels: tuple[str, ...], out: Path | None, fit_fringe: bool, force: bool, as_json: bool
) -> None:
    """Draw a recording against time, or a scan against its swept settings, with one panel per unit.

    RECORDING is an HDF5 file written by `lumion log` or `lumion scan`, or the journal of an interrupted run.

    In a recording, a missing value leaves a gap in the line and a mark at the bottom of the panel. It is red if the
    reading failed, otherwise in the colour of the line (over range, under range or dark).
    """
    from lumion_hw.acquisition.fits import fit_clearest_fringe
    from lumion_hw.acquisition.plotting import require_plots, save_figure
    from lumion_hw.acquisition.scan_data import load_scan
    from lumion_hw.files.writing import check_target, overwrite_policy

    target = out or Path(f"{recording}.png" if not Path(recording).suffix else Path(recording).with_suffix(".png"))
    patterns, overwrite = channels or ("*",), overwrite_policy(force)
    check_target(target, "the picture", overwrite)
    if fit_fringe:
        require_plots()
        fit = fit_clearest_fringe(load_scan(recording), patterns)
        save_figure(fit.plot(), target, overwrite)
        document: dict[str, Any] = {"fit": _fit_document(fit)}
        text = f"{fit.y_label} over {fit.x_label}: {fit.summary()}\n{target}: figure"
    else:
        n_channels = _draw(recording, target, patterns, overwrite)
        document, text = {"channels": n_channels}, f"{target}: {n_channels} channel{'s' * (n_channels != 1)}"
    if as_json:
        echo_json({"file": str(target), **document})
    else:
        echo_text(text)


def _draw(recording: str, target: Path, patterns: Sequence[str], overwrite: Overwrite) -> int:
    """Draw a recording or a scan, and return the number of its channels in the picture."""
    from lumion_hw.acquisition.columns import select_names
    from lumion_hw.acquisition.plotting import plot as draw, save_figure
    from lumion_hw.acquisition.recording import read_recording
    from lumion_hw.acquisition.scan_data import load_scan

    if read_recording(recording, patterns).header.scan is None:
        return draw(recording, target, patterns, overwrite)
    data = load_scan(recording)
    save_figure(data.plot(patterns), target, overwrite)
    devices = {column.name: column.device for column in data.header.columns if column.name in data.value}
    return len(select_names(patterns, devices))


def _fit_document(fit: FringeFit) -> dict[str, Any]:
    values = {field.name: getattr(fit, field.name) for field in dataclasses.fields(fit) if field.type == "float"}
    return {"x": fit.x_label, "y": fit.y_label, **values}
