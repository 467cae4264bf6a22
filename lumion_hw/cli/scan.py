"""``lumion scan``: sweep settings of a bench and record readings at each point."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.opening import devices_with
from lumion_hw.cli.common.output import echo_json, echo_text, json_option, note, progress, table
from lumion_hw.cli.common.outputs import out_option
from lumion_hw.cli.common.parameter_type import ParameterType
from lumion_hw.cli.snapshot import lock_options, locked_bench
from lumion_hw.errors import BusyError, ConfigError, LumionError
from lumion_hw.files.writing import check_target

if TYPE_CHECKING:
    from lumion_hw.acquisition import ScanData, ScanProgress, SweptSetting
    from lumion_hw.acquisition.scanning import PreparedScan
    from lumion_hw.bench.bench import Bench
    from lumion_hw.cli.common.scan_view import TerminalView
    from lumion_hw.interfaces.wiring import InlineDevice, InputPath, OutputPath

_MAX_POINTS = 10_000_000
_OF_LIGHT = (".monitor.", ".power.")
_FLAGS = {"on": True, "off": False, "true": True, "false": False}


class SweptValues(ParameterType[tuple[str, list[Any]]]):
    """Parameter type: a setting and its values, as ``NAME=START:STOP:N`` or ``NAME=A,B,C``."""

    name = "setting"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, list[Any]]:
        """Convert a command-line argument to the name of a setting and its values."""
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not (name.strip() and equals and text.strip()):
            self.fail(f"{str(value)[:60]!r} has no values; give NAME=START:STOP:N or NAME=A,B,C.", param, ctx)
        if ":" not in text:
            return name.strip(), [_parse_value(part.strip()) for part in text.split(",")]
        parts = text.split(":")
        numbers = [_parse_value(part) for part in parts]
        if len(parts) != 3 or not all(isinstance(number, float) and math.isfinite(number) for number in numbers):
            self.fail(f"{text[:60]!r} is not a range; give START:STOP:N, such as 1530:1565:351.", param, ctx)
        start, stop, n = numbers
        if n != int(n) or not 1 <= n <= _MAX_POINTS:
            self.fail(f"{parts[2]!r} is not a number of points; give 1 to {_MAX_POINTS}.", param, ctx)
        # The last value is exactly STOP: a sum of steps could exceed a limit by a rounding error.
        return name.strip(), [start + (stop - start) * (i / (n - 1) if n > 1 else 0.0) for i in range(int(n))]


def _parse_value(text: str) -> Any:
    if text.lower() in _FLAGS:
        return _FLAGS[text.lower()]
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
    help="Setting to sweep, with N values from START to STOP inclusive; or NAME=A,B,C. Can be repeated to sweep a "
    "grid; the first setting changes most slowly.",
)
@click.option(
    "--read", "readings", multiple=True, required=True, metavar="NAME", help="Channel to read; wildcards allowed."
)
@out_option("HDF5 file to write.", "-o", "--out", default="scan.h5")
@click.option("--record", metavar="RECORD", help="Calibration record whose ID is written into the HDF5 file.")
@click.option(
    "--snake", is_flag=True, help="Sweep inner settings (all but the first --set) back and forth, not always forwards."
)
@click.option(
    "--by-hand",
    is_flag=True,
    help="Set every point from the host, even if an instrument could run the sweep on its own.",
)
@click.option("--keep-meters", is_flag=True, help="Keep the wavelength settings of the power meters during the sweep.")
@click.option("--leave", is_flag=True, help="Leave the settings at the last point instead of restoring them.")
@click.option("--resume", is_flag=True, help="Continue an interrupted scan.")
@click.option(
    "--plot", "picture", is_flag=True, help="Also draw the scan, to a figure named like OUT but ending in .png."
)
@click.option(
    "--watch", is_flag=True, help="Draw the scan as text in the terminal while it runs, instead of the progress bar."
)
@click.option("--dry-run", is_flag=True, help="Check everything and show the plan, but change nothing.")
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
    watch: bool,
    dry_run: bool,
    as_json: bool,
    snake: bool,
    by_hand: bool,
    keep_meters: bool,
    leave: bool,
    resume: bool,
    **lock_arguments: Any,
) -> None:
    """Sweep settings of BENCH, record readings at each point, and write an HDF5 file.

    All values are checked before anything changes. During the scan, the points are in a journal (OUT.journal); an
    interrupted scan continues with --resume. At the end the settings are restored. BENCH is the path of a bench file or
    the name of a built-in bench.
    """
    from lumion_hw.acquisition import scan as run_scan
    from lumion_hw.acquisition.scanning import prepare_scan
    from lumion_hw.storage.record_files import load_record

    names = _check_no_duplicates(swept)
    view = _terminal_view() if watch else None
    figure = _figure_path(out) if picture else None
    in_force = None if record is None else load_record(Path(record))
    devices = _devices_in_light(bench_file, names, readings)
    how = {"snake": snake, "by_hand": by_hand, "keep_meters": keep_meters}
    with locked_bench(bench_file, devices, "lumion scan", as_json, lock_arguments) as (bench, active_circuits):
        prepared = prepare_scan(bench, dict(swept), readings, **how)
        _note_missing_light(prepared)
        if dry_run:
            _show_plan(prepared, as_json)
            return
        _check_circuits_unaffected(active_circuits, prepared)
        with _progress_shown(prepared.moves.plan.n_points, view) as on_point:
            data = run_scan(
                bench,
                dict(swept),
                readings,
                out=out,
                bench_file=path_of(bench_file),
                record=in_force,
                live=view or False,
                progress=on_point,
                leave=leave,
                resume=resume,
                **how,
            )
    _report(data, out, figure, as_json)
    if data.n_failed:
        context.exit(LumionError.exit_code)


def _note_darkness(data: ScanData) -> None:
    """Print a warning if readings of light were zero or below the range at every point."""
    import numpy as np

    light = [values for name, values in data.value.items() if any(part in name for part in _OF_LIGHT)]
    dark = sum(not np.nan_to_num(values).any() for values in light)
    if dark:
        note(f"{dark} of {len(light)} readings of light were zero at every point. Check that the light is on.")


def _terminal_view() -> TerminalView:
    """Return the view of ``--watch``. Raises ``ConfigError`` if stderr is not a terminal."""
    from lumion_hw.cli.common.scan_view import TerminalView

    if not sys.stderr.isatty():
        raise ConfigError(
            "--watch draws the scan in the terminal, but stderr is not a terminal",
            hint="Leave --watch out; --plot draws the scan to a file when it is complete.",
        )
    return TerminalView()


def _figure_path(out: Path) -> Path:
    """Return the path of the figure. Raises ``ConfigError`` if matplotlib is missing or the path is not writable."""
    from lumion_hw.acquisition.plotting import require_plots

    figure = out.with_suffix(".png")
    require_plots()
    check_target(figure, "the figure")
    return figure


def _check_no_duplicates(swept: Sequence[tuple[str, list[Any]]]) -> list[str]:
    """Return the names of the swept settings. Raises ``ConfigError`` if a setting is listed twice."""
    names = [name for name, _ in swept]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{doubled} is listed twice", hint="Give one --set with all its values.")
    return names


def _note_missing_light(prepared: PreparedScan) -> None:
    _note_dark_sources(prepared)
    _note_blocked_light(prepared)


def _note_dark_sources(prepared: PreparedScan) -> None:
    """Print a warning for each light source that the scan changes while it is off."""
    from lumion_hw.acquisition.settings import Settings

    bench = prepared.bench
    for device in dict.fromkeys(name.partition(".")[0] for name in prepared.swept):
        if device not in bench.lasers and device not in bench.transponders:
            continue
        switches = {name: setting for name, setting in Settings(bench, [device]).items() if name.endswith(".enabled")}
        for name, switch in switches.items():
            if name not in prepared.swept and switch.read() is False:
                note(f"{device} is off, so it sends no light during the scan; --set {name}=on switches it on.")


def _devices_in_light(bench_file: str, names: Sequence[str], readings: Sequence[str]) -> list[str]:
    """Return the names of the devices to open: those of a scan, and those that its light passes."""
    from lumion_hw.bench.bench import load

    devices = devices_with(bench_file, [*names, *readings]) or []
    model = load(bench_file)
    wiring = model.to_wiring()
    sources = devices_with(bench_file, names) or []
    entries = [path for path in wiring.inputs if path.source in sources]
    exits = [path for path in wiring.outputs if any(tap.meter in devices for tap in path.all_taps)]
    paths: list[InputPath | OutputPath] = [*entries, *exits]
    passed = {part.device for path in paths for part in path.through}
    return [name for name in model.devices if name in devices or name in passed]


def _note_blocked_light(prepared: PreparedScan) -> None:
    """Print a warning if a device that the scan does not set blocks the light of a swept source, or of a meter."""
    from lumion_hw.bench.fibre_devices import wiring_with_device_losses

    bench = prepared.bench
    wiring = wiring_with_device_losses(bench)
    settable = {setting.device for setting in prepared.moves.settings}
    sources = settable & {*bench.lasers, *bench.transponders}
    read = {column.name for column in prepared.reader.columns}
    paths: dict[str, list[InputPath | OutputPath]] = {}
    for entry in wiring.inputs:
        if entry.source in sources:
            paths.setdefault(f"the light of {entry.source}", []).append(entry)
    for output in wiring.outputs:
        for name in {f"{tap.meter}.power.{tap.channel}" for tap in output.all_taps} & read:
            paths.setdefault(f"the light to {name}", []).append(output)
    for light, alternatives in paths.items():
        blocking = [_blocking_part(path) for path in alternatives]
        part = blocking[0]
        # Light that passes on another path is not missing.
        if part is not None and all(blocking) and part.device not in settable:
            note(f"{part.device} blocks {light}; --set {_opening(bench, part)} lets it pass.")


def _blocking_part(path: InputPath | OutputPath) -> InlineDevice | None:
    from lumion_hw.interfaces.wiring import BLOCKED_DB

    losses = zip(path.through, path.inline_losses_db, strict=False)
    return next((part for part, loss_db in losses if loss_db >= 0.5 * BLOCKED_DB), None)


def _opening(bench: Bench, part: InlineDevice) -> str:
    """Return the setting, with its value, that lets light pass a device."""
    if part.exit_port is not None:
        return f"{part.device}.output.{part.channel}={part.exit_port}"
    switch = f"passing.{part.channel}" if part.device in bench.attenuators else "enabled"
    return f"{part.device}.{switch}=on"


def _check_circuits_unaffected(active_circuits: Sequence[str], prepared: PreparedScan) -> None:
    if active_circuits and any(name.endswith(".heaters_ma") for name in prepared.moves.vector_settings):
        raise BusyError(
            f"sweeping heater currents would interrupt the connected circuits {', '.join(active_circuits)}",
            hint="Run `lumion disconnect --all` first, or sweep other settings.",
        )


@contextlib.contextmanager
def _progress_shown(n_points: int, view: TerminalView | None) -> Iterator[Callable[[ScanProgress], None]]:
    """Yield the function to call with the progress of a scan: it updates ``view``, or without one a progress bar."""
    reasons: set[str] = set()
    try:
        with progress(n_points, "points") if view is None else contextlib.nullcontext() as bar:

            def on_point(step: ScanProgress) -> None:
                if bar is not None:
                    bar.update(step.done - bar.pos)
                if view is not None:
                    view.on_progress(step)
                reasons.add(step.stepped)

            yield on_point
    except KeyboardInterrupt as interrupt:  # its own message is empty
        for text in getattr(interrupt, "__notes__", ()):
            note(text)
        raise
    for reason in sorted(filter(None, reasons)):
        note(f"The host set the points one by one: {reason}.")


def path_of(bench_file: str) -> Path:
    """Return the path of a bench file; also accepts the name of a built-in bench."""
    from lumion_hw.bench.file.loader import builtin_names, builtin_path

    built_in = bench_file in builtin_names() and not Path(bench_file).exists()
    return Path(str(builtin_path(bench_file))) if built_in else Path(bench_file)


def _document(prepared: PreparedScan) -> dict[str, Any]:
    plan = prepared.moves.plan
    return {
        "points": plan.n_points,
        "swept": [
            {"name": s.name, "points": axis.n_points, "from": _label(s, 0), "to": _label(s, -1), "unit": s.unit}
            for axis in plan.axes
            for s in axis.settings
        ],
        "follow": list(plan.followers),
        "readings": [{"name": column.name, "unit": column.unit} for column in prepared.reader.columns],
        "run_by": "this program" if prepared.own is None else prepared.own.description,
        "stepped_because": prepared.stepped or None,
    }


def _label(setting: SweptSetting, index: int) -> Any:
    label = setting.labels()[index].item()
    return None if label != label else label  # noqa: PLR0124 - NaN means None, such as an automatic range


def _show_plan(prepared: PreparedScan, as_json: bool) -> None:
    document = _document(prepared)
    if as_json:
        echo_json(document)
        return
    rows = [(row["name"], row["points"], row["from"], row["to"], row["unit"]) for row in document["swept"]]
    echo_text(table(("setting", "points", "from", "to", "unit"), rows))
    if document["follow"]:
        echo_text(f"Set to the swept wavelength at each point: {', '.join(document['follow'])}")
    counts = _counts(document["points"], len(document["readings"]))
    by_host = f"set one by one{f' ({prepared.stepped})' if prepared.stepped else ''}"
    echo_text(f"{counts}, {by_host if prepared.own is None else f'run by {prepared.own.description}'}")
    echo_text("Nothing was changed.")


def _counts(n_points: int, n_readings: int) -> str:
    return f"{n_points} point{'s' * (n_points != 1)} of {n_readings} reading{'s' * (n_readings != 1)}"


def _report(data: ScanData, out: Path, figure: Path | None, as_json: bool) -> None:
    """Draw the figure, if any, and print the result."""
    if figure is not None:
        data.plot(target=figure)
    if as_json:
        document = {"file": str(out), "points": data.n_read, "readings": list(data.value)}
        document |= {"swept": [setting.name for setting in data.plan.settings], "failed_readings": data.n_failed}
        document |= {"by_instrument": int(data.by_instrument.sum())}
        echo_json(document | ({"picture": str(figure)} if figure else {}))
    else:
        echo_text(f"{out}: {_counts(data.n_read, len(data.value))}")
        if figure is not None:
            echo_text(f"{figure}: figure")
    _note_darkness(data)
    if data.n_failed:
        note(f"{data.n_failed} readings failed; the file contains NaN with state 4 (failed) for them.")
