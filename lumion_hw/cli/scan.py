"""``lumion scan``: settings of a bench swept against readings, every point safe."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.opening import devices_with
from lumion_hw.cli.common.output import echo_json, json_option, note, progress, say, table
from lumion_hw.cli.common.outputs import out_option
from lumion_hw.cli.common.parameter_type import ParameterType
from lumion_hw.cli.snapshot import lock_options, locked_bench
from lumion_hw.errors import BusyError, ConfigError, LumionError
from lumion_hw.files.writing import check_target

if TYPE_CHECKING:
    from lumion_hw.acquisition import ScanData, ScanProgress, SweptSetting
    from lumion_hw.acquisition.scanning import PreparedScan

_MOST_POINTS = 10_000_000
_WORDS = {"on": True, "off": False, "true": True, "false": False}


class SweptValues(ParameterType[tuple[str, list[Any]]]):
    """A setting and its values: ``NAME=START:STOP:N``, or ``NAME=A,B,C``."""

    name = "setting"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, list[Any]]:
        """Return name and values."""
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not (name.strip() and equals and text.strip()):
            self.fail(f"{str(value)[:60]!r} sweeps nothing; write NAME=START:STOP:N or NAME=A,B,C.", param, ctx)
        if ":" not in text:
            return name.strip(), [_word(part.strip()) for part in text.split(",")]
        parts = text.split(":")
        numbers = [_word(part) for part in parts]
        if len(parts) != 3 or not all(isinstance(number, float) and math.isfinite(number) for number in numbers):
            self.fail(f"{text[:60]!r} is no range; write START:STOP:N, such as 1530:1565:351.", param, ctx)
        start, stop, n = numbers
        if n != int(n) or not 1 <= n <= _MOST_POINTS:
            self.fail(f"{parts[2]!r} is no number of points; give 1 to {_MOST_POINTS}.", param, ctx)
        # The last one is the stop itself: adding up steps would miss it by a rounding, and a limit with it.
        return name.strip(), [start + (stop - start) * (i / (n - 1) if n > 1 else 0.0) for i in range(int(n))]


def _word(text: str) -> Any:
    """Return a number, a flag, or the word itself."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return float(text)
    except ValueError:
        return text


@click.command()
@click.argument("bench_file", metavar="BENCH")
@lock_options
@click.option(
    "--set",
    "swept",
    multiple=True,
    required=True,
    type=SweptValues(),
    metavar="NAME=START:STOP:N",
    help="What to sweep, the slowest first: a range with both ends, or NAME=A,B,C; one value is set and kept.",
)
@click.option(
    "--read", "readings", multiple=True, required=True, metavar="NAME", help="What to read; wildcards allowed."
)
@out_option("HDF5 file.", "-o", "--out", default="scan.h5")
@click.option("--record", metavar="RECORD", help="Calibration record in force, to be named in the file.")
@click.option("--snake", is_flag=True, help="Let every other pass of a faster setting go back.")
@click.option("--by-hand", is_flag=True, help="Let no device run the sweep by itself.")
@click.option(
    "--keep-meters", is_flag=True, help="Do not set meters to the wavelength that is swept; they keep their own."
)
@click.option("--leave", is_flag=True, help="Leave the settings at the last point.")
@click.option("--resume", is_flag=True, help="Go on with a scan that was interrupted.")
@click.option("--plot", "picture", is_flag=True, help="Draw it as well: OUT with .png.")
@click.option("--dry-run", is_flag=True, help="Check everything, say what would be done, and move nothing.")
@json_option
@click.pass_context
def scan(
    context: click.Context,
    /,
    bench_file: str,
    swept: tuple[tuple[str, list[Any]], ...],
    readings: tuple[str, ...],
    out: Path,
    record: str | None,
    picture: bool,
    dry_run: bool,
    as_json: bool,
    snake: bool,
    by_hand: bool,
    keep_meters: bool,
    leave: bool,
    resume: bool,
    **held: Any,
) -> None:
    """Sweep settings of BENCH against readings, into an HDF5 file.

    All values are checked before anything moves. Points go to a journal beside the file (OUT.journal) and are safe as
    soon as they are counted: interrupt it, pull the plug, and --resume goes on. Afterwards the settings are as before.
    BENCH is the path of a bench file, or the name of a built-in bench.
    """
    from lumion_hw.acquisition import scan as run_scan
    from lumion_hw.acquisition.scanning import prepare_scan
    from lumion_hw.storage.record_files import load_record

    names = _each_once(swept)
    drawn = _picture_of(out) if picture else None
    in_force = None if record is None else load_record(Path(record))
    with locked_bench(bench_file, devices_with(bench_file, [*names, *readings]), "lumion scan", as_json, held) as (
        bench,
        standing,
    ):
        prepared = prepare_scan(bench, dict(swept), readings, snake=snake, by_hand=by_hand, keep_meters=keep_meters)
        if dry_run:
            _show(prepared, as_json)
            return
        _check_standing(standing, prepared)
        with _telling(prepared.moves.plan.n_points) as tell:
            data = run_scan(
                bench,
                dict(swept),
                readings,
                out=out,
                bench_file=path_of(bench_file),
                record=in_force,
                progress=tell,
                snake=snake,
                by_hand=by_hand,
                keep_meters=keep_meters,
                leave=leave,
                resume=resume,
            )
    if drawn is not None:
        data.plot(target=drawn)
    _report(data, out, drawn, as_json)
    if data.n_failed:
        note(f"{data.n_failed} readings failed. They are NaN with state 4 in the file.")
        context.exit(LumionError.exit_code)


def _picture_of(out: Path) -> Path:
    """Return where the picture of a scan goes. Raises ``ConfigError`` if it could not be drawn or written there."""
    from lumion_hw.acquisition.plotting import require_plots

    drawn = out.with_suffix(".png")
    require_plots()
    check_target(drawn, "the picture")
    return drawn


def _each_once(swept: Sequence[tuple[str, list[Any]]]) -> list[str]:
    """Return the names of what is swept. Raises ``ConfigError`` for one that is given twice."""
    names = [name for name, _ in swept]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{doubled} is swept twice", hint="Name it once, with all of its values.")
    return names


def _check_standing(standing: Sequence[str], prepared: PreparedScan) -> None:
    """Refuse to drive the heaters of circuits that stand."""
    if standing and any(name.endswith(".heaters_ma") for name in prepared.moves.wholes):
        raise BusyError(
            f"other heater currents would take down what is connected: {', '.join(standing)}",
            hint="`lumion disconnect --all` first, or sweep something else.",
        )


@contextlib.contextmanager
def _telling(n_points: int) -> Iterator[Callable[[ScanProgress], None]]:
    """Show how far a scan is, and say afterwards why points were stepped, or what Ctrl-C leaves."""
    stepped: set[str] = set()
    try:
        with progress(n_points, "points") as bar:

            def tell(told: ScanProgress) -> None:
                bar.update(told.done - bar.pos)
                stepped.add(told.stepped)

            yield tell
    except KeyboardInterrupt as interrupt:  # which has no message of its own
        for text in getattr(interrupt, "__notes__", ()):
            note(text)
        raise
    for why in sorted(filter(None, stepped)):
        note(f"Set and read point by point: {why}.")


def path_of(bench_file: str) -> Path:
    """Return the path of a bench file, or of a built-in bench by its name."""
    from lumion_hw.bench.file.loader import builtin_names, builtin_path

    built_in = bench_file in builtin_names() and not Path(bench_file).exists()
    return Path(str(builtin_path(bench_file))) if built_in else Path(bench_file)


def _document(prepared: PreparedScan) -> dict[str, Any]:
    plan = prepared.moves.plan
    return {
        "points": plan.n_points,
        "swept": [
            {"name": each.name, "points": axis.n_points, "from": _end(each, 0), "to": _end(each, -1), "unit": each.unit}
            for axis in plan.axes
            for each in axis.settings
        ],
        "follow": list(plan.followers),
        "readings": [{"name": column.name, "unit": column.unit} for column in prepared.reader.columns],
        "run_by": "this program" if prepared.own is None else prepared.own.words,
        "stepped_because": prepared.stepped or None,
    }


def _end(setting: SweptSetting, at: int) -> Any:
    label = setting.labels()[at].item()
    return None if label != label else label  # noqa: PLR0124 - NaN stands for none, as of an automatic range


def _show(prepared: PreparedScan, as_json: bool) -> None:
    document = _document(prepared)
    if as_json:
        echo_json(document)
        return
    rows = [(each["name"], each["points"], each["from"], each["to"], each["unit"]) for each in document["swept"]]
    say(table(("setting", "points", "from", "to", "unit"), rows))
    if document["follow"]:
        say(f"{', '.join(document['follow'])} follow{'s' * (len(document['follow']) == 1)} the light")
    why = f": {prepared.stepped}" if prepared.stepped else ""
    say(f"{document['points']} points of {len(document['readings'])} readings, run by {document['run_by']}{why}")
    say("Nothing was moved.")


def _report(data: ScanData, out: Path, drawn: Path | None, as_json: bool) -> None:
    if as_json:
        document = {"file": str(out), "points": data.n_read, "readings": list(data.value)}
        document |= {"swept": [each.name for each in data.plan.settings], "failed_readings": data.n_failed}
        document |= {"by_instrument": int(data.by_instrument.sum())}
        echo_json(document | ({"picture": str(drawn)} if drawn else {}))
        return
    say(f"{out}: {data.n_read} points of {len(data.value)} readings")
    if drawn is not None:
        say(f"{drawn}: picture")
