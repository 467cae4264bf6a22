"""``lumion snapshot`` and ``lumion restore``: save the settings of all devices to a file, and restore them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.numbers import Number
from lumion_hw.cli.common.opening import (
    LEAVE_ON_HELP,
    STATE_HELP,
    TAKE_OVER_HELP,
    bench_options,
    channels_option,
    devices_with,
    open_bench,
)
from lumion_hw.cli.common.output import echo_json, echo_text, json_option, note, table
from lumion_hw.cli.common.outputs import force_option, out_option
from lumion_hw.errors import BusyError, ConfigError, LinkError, LumionError

if TYPE_CHECKING:
    from lumion_hw.acquisition import Restoration, SettingChange, SettingValue
    from lumion_hw.bench.bench import Bench

_MAX_LISTED_VALUES = 4


def lock_options(function: Any) -> Any:
    """Add the options of commands that lock the bench and leave its heaters on afterwards."""
    for option in (
        click.option("--take-over", metavar="USER@HOST", help=TAKE_OVER_HELP),
        click.option("--state", metavar="DIR", help=STATE_HELP),
        click.option(
            "--leave-on",
            "leave_on_s",
            type=Number("s", 0.0, 3600.0),
            default=3600.0,
            show_default=True,
            help=LEAVE_ON_HELP,
        ),
    ):
        function = option(function)
    return bench_options(function)


@click.command()
@click.argument("bench_file", metavar="BENCH")
@lock_options
@channels_option("save")
@out_option("YAML file to write.  [default: standard output]", "-o", "--out")
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
    **lock_arguments: Any,
) -> None:
    """Save the settings of all devices of BENCH: heaters, lasers, modules, meters, polarization.

    Opening the bench applies the settings of the bench file; nothing else changes. `lumion restore BENCH FILE` restores
    the settings. If a device does not answer, the snapshot notes this and the exit code is 4.
    """
    from lumion_hw.acquisition import snapshot_yaml, take_snapshot
    from lumion_hw.files.writing import check_target, overwrite_policy, write_file

    if out is not None:
        check_target(out, "the snapshot", overwrite_policy(force))
    only = devices_with(bench_file, channels)
    with locked_bench(bench_file, only, "lumion snapshot", as_json, lock_arguments) as (bench, _):
        saved = take_snapshot(bench, channels or ("*",))
    if out is not None:
        write_file(out, "the snapshot", snapshot_yaml(saved), overwrite_policy(force))
    if as_json:
        echo_json(saved.document() | ({"file": str(out)} if out else {}))
    elif out is None:
        echo_text(snapshot_yaml(saved).rstrip("\n"))
    else:
        echo_text(f"{out}: {len(saved.values)} settings of {len(saved.devices)} devices")
    for name, reason in saved.silent.items():
        note(f"Not saved: {name} did not answer: {reason}")
    if saved.silent:
        context.exit(LinkError.exit_code)


@click.command()
@click.argument("bench_file", metavar="BENCH")
@click.argument("file", type=click.Path(dir_okay=False))
@lock_options
@channels_option("restore")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Only show the differences.")
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
    **lock_arguments: Any,
) -> None:
    """Show the differences between BENCH and FILE (from `lumion snapshot`), and restore the saved settings.

    Light sources whose settings change are switched off first and on last. A snapshot of another bench or of other
    devices is rejected. Every setting that cannot be restored is reported; the exit code is then 1.
    """
    from lumion_hw.acquisition import differences, load_snapshot, restore as restore_settings
    from lumion_hw.bench.bench import load

    if as_json and not (yes or dry_run):
        raise ConfigError(
            "--json cannot ask for confirmation", hint="Give --yes as well, or --dry-run to see only the differences."
        )
    stored = load_snapshot(file)
    for name in stored.silent:
        note(f"{name} did not answer when the snapshot was saved, so its settings are not restored.")
    patterns = channels or tuple(stored.devices)
    only = devices_with(bench_file, channels) or [name for name in load(bench_file).devices if name in stored.devices]
    with locked_bench(bench_file, only, "lumion restore", as_json, lock_arguments) as (bench, active_circuits):
        changes = differences(bench, stored, patterns)
        if not as_json:
            _show_differences(file, changes)
        if active_circuits and any(change.name.endswith(".heaters_ma") for change in changes) and not dry_run:
            raise BusyError(
                f"restoring heater currents would interrupt the connected circuits {', '.join(active_circuits)}",
                hint="Run `lumion disconnect --all` first, or choose other settings with -c.",
            )
        result = None
        if changes and not dry_run:
            if not (yes or _confirm()):
                note("Nothing was changed.")
                context.exit(LumionError.exit_code)
            result = restore_settings(bench, stored, patterns, progress=_note_step)
    if as_json:
        echo_json(_document(bench.model.name, file, changes, result))
    elif result is not None:
        _report(result)
    if result is not None and not result.complete:
        context.exit(LumionError.exit_code)


@contextlib.contextmanager
def locked_bench(
    file: str,
    only: Sequence[str] | None,
    program: str,
    as_json: bool,
    lock_arguments: dict[str, Any],
    aged_s: float = 0.0,
) -> Iterator[tuple[Bench, list[str]]]:
    """Open the given devices of a bench; yield the bench and the names of its connected circuits.

    If the mesh controller is opened, the bench is locked, and the heaters stay on afterwards.
    """
    from lumion_hw.bench.bench import load
    from lumion_hw.bench.file.devices import HeaterDriverModel
    from lumion_hw.circuits.lock import BenchLock
    from lumion_hw.circuits.state import read_state
    from lumion_hw.cli.circuits import BenchTarget

    model = load(file)
    controller = model.mesh.controller if model.mesh is not None else None
    is_opened = controller is not None and (only is None or controller in only)
    drives_heaters = controller is not None and isinstance(model.devices[controller], HeaterDriverModel)
    leave_on_s = lock_arguments["leave_on_s"] if is_opened and drives_heaters else None
    source = (lock_arguments["emulate"], lock_arguments["seed"], lock_arguments["endpoints"])
    with contextlib.ExitStack() as stack:
        active_circuits: list[str] = []
        if leave_on_s is not None:
            state, take_over = lock_arguments["state"], lock_arguments["take_over"]
            target = BenchTarget(file, *source, state, None, take_over, leave_on_s, as_json)
            directory = stack.enter_context(target.directory())
            stack.enter_context(BenchLock(directory, program, take_over=take_over))
            active_circuits = [circuit.name for circuit in read_state(directory)[0].circuits]
        yield stack.enter_context(open_bench(file, *source, only, aged_s, leave_on_s)), active_circuits


def _confirm() -> bool:
    """Ask the user to confirm. Raises ``ConfigError`` if standard input is not a terminal."""
    try:
        return click.confirm("Restore these settings?", err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise ConfigError(
            "standard input is not a terminal, so no user can confirm the restoration; nothing was changed",
            hint="Give --yes, or --dry-run to see only the differences.",
        ) from None


def _show_differences(file: str, changes: Sequence[SettingChange]) -> None:
    if not changes:
        echo_text(f"{file}: all settings of the bench are as saved.")
        return
    rows = [(change.name, *_cells(change.present_value, change.wanted), change.setting.unit) for change in changes]
    echo_text(table(("setting", "now", "stored", "unit"), rows))


def _cells(present: SettingValue, wanted: SettingValue) -> tuple[object, object]:
    import numpy as np

    if not (isinstance(present, np.ndarray) and isinstance(wanted, np.ndarray)):
        return _cell(present), _cell(wanted)
    if len(present) <= _MAX_LISTED_VALUES:
        return " ".join(f"{value:.6g}" for value in present), " ".join(f"{value:.6g}" for value in wanted)
    n_different, worst = int(np.count_nonzero(present != wanted)), int(np.argmax(np.abs(present - wanted)))
    return (
        f"{n_different} of {len(present)} differ, most at no. {worst}: {present[worst]:.6g}",
        f"{wanted[worst]:.6g}",
    )


def _cell(value: SettingValue) -> object:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "-" if value is None else f"{value:.10g}" if isinstance(value, float) else value


def _note_step(name: str, value: SettingValue, error: LumionError | None) -> None:
    note(f"{name}: {'not restored: ' + str(error) if error else 'restored'}")


def _report(result: Restoration) -> None:
    total = len(result.put_back) + len(result.failed) + len(result.left_out)
    echo_text(f"restored: {len(result.put_back)} of {total} settings")
    for change, error in result.failed:
        note(f"not restored: {change.name}: {error}")
    for change in result.left_out:
        note(f"not tried, because an earlier setting failed: {change.name}")
    for device in result.left_dark:
        note(f"still switched off after the failure: {device}")


def _document(bench: str, file: str, changes: Sequence[SettingChange], result: Restoration | None) -> dict[str, object]:
    document: dict[str, object] = {
        "bench": bench,
        "file": file,
        "differences": [
            {"setting": change.name, "unit": change.setting.unit, "now": change.present_value, "stored": change.wanted}
            for change in changes
        ],
        "complete": not changes if result is None else result.complete,
    }
    if result is not None:
        document |= {
            "put_back": [change.name for change in result.put_back],
            "failed": [{"setting": change.name, "why": str(error)} for change, error in result.failed],
            "left_out": [change.name for change in result.left_out],
            "left_dark": list(result.left_dark),
        }
    return document
