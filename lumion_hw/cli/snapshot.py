"""``lumion snapshot`` and ``lumion restore``: the settings of every device in a file, and back on the bench."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.numbers import Number
from lumion_hw.cli.common.opening import bench_options, channels_option, devices_with, open_bench
from lumion_hw.cli.common.output import echo_json, json_option, note, say, table
from lumion_hw.cli.common.outputs import force_option, out_option
from lumion_hw.errors import BusyError, ConfigError, LinkError, LumionError

if TYPE_CHECKING:
    from lumion_hw.acquisition import Restoration, SettingChange, SettingValue
    from lumion_hw.bench.bench import Bench

_SHOWN_VALUES = 4


def lock_options(function: Any) -> Any:
    """Add the options of commands that open a mesh controller and leave its heaters on."""
    for option in (
        click.option("--take-over", metavar="USER@HOST", help="Replace the program that holds the bench, by its name."),
        click.option("--state", metavar="DIR", help="Where it is kept what is connected.  [default: of this user]"),
        click.option(
            "--leave-on",
            "leave_on_s",
            type=Number("s", 0.0, 3600.0),
            default=3600.0,
            show_default=True,
            help="Longest time the controller keeps its heaters on by itself after this command, in s.",
        ),
    ):
        function = option(function)
    return bench_options(function)


@click.command()
@click.argument("bench_file", metavar="BENCH")
@lock_options
@channels_option("store")
@out_option("YAML file.  [default: on the terminal]", "-o", "--out")
@force_option
@json_option
@click.pass_context
def snapshot(
    context: click.Context,
    /,
    bench_file: str,
    channels: tuple[str, ...],
    out: Path | None,
    force: bool,
    as_json: bool,
    **held: Any,
) -> None:
    """Store the settings of every device of BENCH: heaters, lasers, modules, meters, polarization.

    Nothing is changed but what opening a bench sets from its file. `lumion restore BENCH FILE` puts them back.
    Devices that do not answer are noted in the snapshot, and the command ends with exit code 4.
    """
    from lumion_hw.acquisition import snapshot_yaml, take_snapshot
    from lumion_hw.files.writing import check_target, over, write_file

    if out is not None:
        check_target(out, "the snapshot", over(force))
    with locked_bench(bench_file, devices_with(bench_file, channels), "lumion snapshot", as_json, held) as (bench, _):
        taken = take_snapshot(bench, channels or ("*",))
    if out is not None:
        write_file(out, "the snapshot", snapshot_yaml(taken), over(force))
    if as_json:
        echo_json(taken.document() | ({"file": str(out)} if out else {}))
    elif out is None:
        say(snapshot_yaml(taken).rstrip("\n"))
    else:
        say(f"{out}: {len(taken.values)} settings of {len(taken.devices)} devices")
    for name, why in taken.silent.items():
        note(f"Not stored: {name} did not answer: {why}")
    if taken.silent:
        context.exit(LinkError.exit_code)


@click.command()
@click.argument("bench_file", metavar="BENCH")
@click.argument("file", type=click.Path(dir_okay=False))
@lock_options
@channels_option("put back")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show the difference alone.")
@json_option
@click.pass_context
def restore(
    context: click.Context,
    /,
    bench_file: str,
    file: str,
    channels: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    as_json: bool,
    **held: Any,
) -> None:
    """Put the settings in FILE, from `lumion snapshot`, back on BENCH, after showing what differs.

    Sources that are changed go dark first, and light comes back last. A snapshot of another bench or of other devices
    is refused. What cannot be put back is said, and the command ends with exit code 1.
    """
    from lumion_hw.acquisition import differences, load_snapshot, restore as put_back
    from lumion_hw.bench.bench import load

    if as_json and not (yes or dry_run):
        raise ConfigError("--json asks nobody", hint="Give --yes as well, or --dry-run to see the difference alone.")
    stored = load_snapshot(file)
    for name in stored.silent:
        note(f"{name} did not answer when the snapshot was taken. Its settings are unknown and stay as they are.")
    patterns = channels or tuple(stored.devices)
    only = devices_with(bench_file, channels) or [name for name in load(bench_file).devices if name in stored.devices]
    with locked_bench(bench_file, only, "lumion restore", as_json, held) as (bench, standing):
        changes = differences(bench, stored, patterns)
        if not as_json:
            _show(file, changes)
        if standing and any(change.name.endswith(".heaters_ma") for change in changes) and not dry_run:
            raise BusyError(
                f"other heater currents would take down what is connected: {', '.join(standing)}",
                hint="`lumion disconnect --all` first, or choose other settings with -c.",
            )
        done = None
        if changes and not dry_run:
            if not (yes or _agreed()):
                note("Nothing was changed.")
                context.exit(LumionError.exit_code)
            done = put_back(bench, stored, patterns, progress=_told)
    if as_json:
        echo_json(_document(bench.model.name, file, changes, done))
    elif done is not None:
        _report(done)
    if done is not None and not done.complete:
        context.exit(LumionError.exit_code)


@contextlib.contextmanager
def locked_bench(
    file: str, only: Sequence[str] | None, program: str, as_json: bool, held: dict[str, Any]
) -> Iterator[tuple[Bench, list[str]]]:
    """Open devices of a bench, its mesh under the lock of the bench and left on; with it go the circuits that stand."""
    from lumion_hw.bench.bench import load
    from lumion_hw.bench.file.devices import HeaterDriverModel
    from lumion_hw.circuits.lock import BenchLock
    from lumion_hw.circuits.state import read_state
    from lumion_hw.cli.circuits import BenchTarget

    model = load(file)
    controller = model.mesh.controller if model.mesh is not None else None
    opened = controller is not None and (only is None or controller in only)
    takes_currents = controller is not None and isinstance(model.devices[controller], HeaterDriverModel)
    leave_on_s = held["leave_on_s"] if opened and takes_currents else None
    where = (held["emulate"], held["seed"], held["endpoints"])
    with contextlib.ExitStack() as stack:
        standing: list[str] = []
        if leave_on_s is not None:
            target = BenchTarget(file, *where, held["state"], None, held["take_over"], leave_on_s, as_json)
            directory = stack.enter_context(target.directory())
            stack.enter_context(BenchLock(directory, program, take_over=held["take_over"]))
            standing = [circuit.name for circuit in read_state(directory)[0].circuits]
        yield stack.enter_context(open_bench(file, *where, only, leave_on_s=leave_on_s)), standing


def _agreed() -> bool:
    """Ask on the terminal. Raises ``ConfigError`` where nobody can answer."""
    try:
        return click.confirm("Put these settings back?", err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise ConfigError(
            "nobody answered: nothing was changed", hint="Give --yes, or --dry-run to see the difference alone."
        ) from None


def _show(file: str, changes: Sequence[SettingChange]) -> None:
    if not changes:
        say(f"{file}: the bench is as it was stored.")
        return
    rows = [(each.name, *_words(each.now, each.wanted), each.setting.unit) for each in changes]
    say(table(("setting", "now", "stored", "unit"), rows))


def _words(now: SettingValue, wanted: SettingValue) -> tuple[object, object]:
    """Return two values for a table; of long arrays, where they differ most."""
    import numpy as np

    if not (isinstance(now, np.ndarray) and isinstance(wanted, np.ndarray)):
        return _word(now), _word(wanted)
    if len(now) <= _SHOWN_VALUES:
        return " ".join(f"{value:.6g}" for value in now), " ".join(f"{value:.6g}" for value in wanted)
    n_other, most = int(np.count_nonzero(now != wanted)), int(np.argmax(np.abs(now - wanted)))
    return (
        f"{n_other} of {len(now)} differ, most no. {most}: {now[most]:.6g}",
        f"{wanted[most]:.6g}",
    )


def _word(value: SettingValue) -> object:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "-" if value is None else f"{value:.10g}" if isinstance(value, float) else value


def _told(name: str, value: SettingValue, error: LumionError | None) -> None:
    """Say every step at once: what an interruption leaves is on the terminal."""
    note(f"{name}: {'not put back: ' + str(error) if error else 'set'}")


def _report(done: Restoration) -> None:
    total = len(done.put_back) + len(done.failed) + len(done.left_out)
    say(f"put back: {len(done.put_back)} of {total}")
    for change, error in done.failed:
        note(f"not put back: {change.name}: {error}")
    for change in done.left_out:
        note(f"not tried, because of a failure before it: {change.name}")
    for device in done.left_dark:
        note(f"left dark: {device}")


def _document(bench: str, file: str, changes: Sequence[SettingChange], done: Restoration | None) -> dict[str, object]:
    document: dict[str, object] = {
        "bench": bench,
        "file": file,
        "differences": [
            {"setting": each.name, "unit": each.setting.unit, "now": each.now, "stored": each.wanted}
            for each in changes
        ],
        "complete": not changes if done is None else done.complete,
    }
    if done is not None:
        document |= {
            "put_back": [change.name for change in done.put_back],
            "failed": [{"setting": change.name, "why": str(error)} for change, error in done.failed],
            "left_out": [change.name for change in done.left_out],
            "left_dark": list(done.left_dark),
        }
    return document
