"""``lumion plot``: a recording as a picture."""

from __future__ import annotations

from pathlib import Path

import click

from lumion_hw.cli.common.opening import channels_option
from lumion_hw.cli.common.output import echo_json, json_option, say
from lumion_hw.cli.common.outputs import force_option, out_option


@click.command()
@click.argument("recording", type=click.Path(dir_okay=False))
@channels_option("draw")
@out_option("Picture to write: .png, .svg or .pdf.  [default: PNG beside it]")
@force_option
@json_option
def plot(recording: str, channels: tuple[str, ...], out: Path | None, force: bool, as_json: bool) -> None:
    """Draw a recording: one panel per unit, time along it.

    RECORDING is an HDF5 file of `lumion log` or `lumion scan`, or the journal of a run that did not end.

    Where there is no number the line has a gap, and a mark at the foot of the panel: red if reading failed, in the
    line's colour if the value was over or under the range, or dark.
    """
    from lumion_hw.acquisition.plotting import plot as draw
    from lumion_hw.files.writing import over

    target = out or Path(f"{recording}.png" if not Path(recording).suffix else Path(recording).with_suffix(".png"))
    drawn = draw(Path(recording), target, channels or ("*",), over(force))
    if as_json:
        echo_json({"file": str(target), "channels": drawn})
    else:
        say(f"{target}: {drawn} channels")
