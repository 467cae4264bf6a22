"""``lumion-calibrate drift``: check whether a calibration record is still valid, and correct what has changed."""

from __future__ import annotations

import dataclasses
import math
import re
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.calibrate.output import report_result
from lumion_hw.cli.common.numbers import Number
from lumion_hw.cli.common.opening import bench_options, open_bench
from lumion_hw.cli.common.output import json_option, note
from lumion_hw.cli.common.outputs import out_option
from lumion_hw.errors import CalibrationError, ConfigError, LumionError

if TYPE_CHECKING:
    from calibration.fit.ageing import Change, Kind, RenewedFit
    from calibration.fit.drift import Health
    from calibration.measure.bench_probe import BenchProbe
    from calibration.run.renewal import DriftRun
    from lumion_hw.bench.bench import Bench
    from lumion_hw.mesh.record.calibration_record import CalibrationRecord
    from lumion_hw.mesh.record.validity import Policy

_DAY_S = 86_400.0

aged_option = click.option(
    "--aged-days",
    default=0.0,
    show_default=True,
    type=Number("days", 0.0, 36_500.0),
    help="Simulated age of the emulated bench, in days; section 'emulation' of the bench file sets what drifts.",
)
policy_option = click.option(
    "--policy",
    default="warn",
    show_default=True,
    type=click.Choice(["warn", "refuse"]),
    help="What to do if the record is too old or from another temperature: print a warning, or fail with an error.",
)


def check_in_use(bench: Bench, record: CalibrationRecord, policy: Policy = "warn") -> tuple[str, ...]:
    """Check whether a calibration record may be used on a bench, and print warnings. Raises as ``check_use``."""
    from lumion_hw.bench.record_use import check_use
    from lumion_hw.mesh.record.validity import CalibrationWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        remarks = check_use(bench, record, policy)
    for remark in remarks:
        note(f"lumion-calibrate: {remark}.")
    return remarks


def aged_s(days: float, emulate: bool) -> float:
    """Convert the value of ``--aged-days`` to seconds. Raises ``ConfigError`` for a bench that is not emulated."""
    if days and not emulate:
        raise ConfigError("--aged-days needs --emulate")
    return days * _DAY_S


def next_name(record: Path) -> Path:
    """Return the first unused file name for a renewed record, such as ``NAME.drift-1.json``."""
    stem = re.sub(r"\.drift-\d+$", "", record.name.removesuffix(".json"))
    number = 1
    while (path := record.with_name(f"{stem}.drift-{number}.json")).exists():
        number += 1
    return path


@click.command()
@click.argument("bench_file", metavar="BENCH")
@click.argument("record", type=click.Path(dir_okay=False))
@bench_options
@aged_option
@click.option("--check-only", is_flag=True, help="Only check the record; do not renew it.")
@out_option("Renewed record to write.  [default: RECORD.drift-1.json]")
@click.option(
    "--seconds",
    default=2.0,
    show_default=True,
    type=Number("s", 0.1, 600.0),
    help="Measurement time on the hardware to renew the record, in seconds.",
)
@json_option
def drift(
    bench_file: str,
    record: str,
    emulate: bool,
    seed: int,
    endpoints: str | None,
    aged_days: float,
    check_only: bool,
    out: Path | None,
    seconds: float,
    as_json: bool,
) -> int:
    """Check whether RECORD is still valid for BENCH, and write a renewed record with RECORD as its parent.

    At most two settings per heater show whether passive phases, heater gains or resistances, loops or light have
    changed. Only changed values differ in the renewed record. RECORD itself is never changed. The exit code is 3 if
    RECORD is no longer valid (--check-only), or if the chip has changed too much for a check; the error then lists the
    PUCs with the worst fit.
    """
    from calibration.record.conditions import ConditionsWatch
    from calibration.run.renewal import DriftRun
    from lumion_hw.bench.record_use import record_age_s
    from lumion_hw.cli.common.progress import RunProgress
    from lumion_hw.files.writing import check_target
    from lumion_hw.storage import load_record

    path = Path(record)
    loaded = load_record(path)
    target = out or next_name(path)
    check_target(target, "the renewed record", overwrite="nothing")
    with open_bench(bench_file, emulate, seed, endpoints, aged_s=aged_s(aged_days, emulate)) as bench, bench.dark():
        probe = _tuned_probe(bench, loaded)
        remarks = check_in_use(bench, loaded)
        age_s = record_age_s(bench, loaded)
        probe.align_all()
        watch = ConditionsWatch(bench, probe)
        with RunProgress(None, quiet=True) as bars:
            run = DriftRun(probe, loaded, (age_s or 0.0) / _DAY_S, seed + 1, seconds, progress=bars)
            health = run.check()
            document: dict[str, Any] = {
                "record": record,
                "age_s": age_s,
                "doubts": list(remarks),
                "health": health_document(health),
            }
            if check_only:
                failure = _invalid_record_error(health, path)
                return report_result(document | cost_document(run), health_text(health), failure, as_json)
            renewal = run.renew()
        after, change = run.check_renewal(renewal), run.change(renewal)
        failure = _large_change_error(renewal, after, target)
        faults = () if failure is None else (failure.message,)
        write(run, run.result(renewal, faults, watch()), target)
    document |= {"renewed": str(target), "health_after": health_document(after)} | dataclasses.asdict(change)
    document |= _renewal_document(renewal, run)
    text = f"{health_text(health)}\n{changes_text(renewal.changes)}\n{result_text(after, run)}\nRecord: {target}"
    return report_result(document, text, failure, as_json)


def _tuned_probe(bench: Bench, record: CalibrationRecord) -> BenchProbe:
    """Return a probe of a bench that matches a record, with its sources at the frequencies of the record."""
    from calibration.measure.bench_probe import BenchProbe
    from calibration.measure.probe import tune_to_record

    bench.mesh.check_record(record)
    probe = BenchProbe(bench)
    probe.check_input_ports_match_record(record)
    tune_to_record(probe, record)
    return probe


def _renewal_document(renewal: RenewedFit, run: DriftRun) -> dict[str, Any]:
    return {
        "chi2_per_dof": renewal.chi2_per_dof,
        "worst_pucs": list(renewal.worst_pucs),
        **cost_document(run),
        "changes": [dataclasses.asdict(change) for change in renewal.moved],
    }


def write(run: DriftRun, record: CalibrationRecord, path: Path) -> None:
    """Write a renewed record atomically, and its readings to a second file in the same folder.

    Raises:
        ConfigError: The path is not writable.
        LumionError: The disk is full.
    """
    from calibration.record.raw_data import save_raw
    from lumion_hw.storage import save_record

    raw = save_raw(path, run.logbook.observations())
    save_record(dataclasses.replace(record, raw=raw), path)


def health_document(health: Health) -> dict[str, Any]:
    """Return the result of the drift check as a JSON document."""
    names = {"chi2_without_temperature": "but_temperature"}  # names of the document format
    document = {names.get(name, name): value for name, value in dataclasses.asdict(health).items()}
    return document | {"holds": health.is_valid}


def health_text(health: Health) -> str:
    """Return the result of the drift check as text."""
    from calibration.fit.drift import MAX_CHI2

    verdict = "The record is valid" if health.is_valid else "The record is no longer valid"
    if not health.is_valid and health.chi2_without_temperature < MAX_CHI2:
        verdict += " for loops, because the chip temperature has changed; bar and cross states are unchanged"
    return (
        f"{verdict}: {health.readings} readings, χ² {health.chi2_per_reading:.3g} per reading "
        f"({health.chi2_without_temperature:.3g} after correcting for the chip temperature), "
        f"worst {health.worst_sigma:.1f} σ at {health.worst_at}"
    )


def changes_text(changes: Sequence[Change]) -> str:
    """Return the changed and unchanged elements as text, one line for each kind."""
    lines = []
    for kind, (title, element, unit, factor) in _KINDS.items():
        of_kind = [change for change in changes if change.kind == kind]
        moved = sorted((change for change in of_kind if change.moved), key=lambda change: -abs(change.value))
        if not of_kind:
            continue
        if not moved:
            sigma = statistics.median(change.sigma for change in of_kind)
            lines.append(f"{title}: unchanged (standard error {factor * sigma:.2g} {unit})")
            continue
        named = [
            f"{element(change.number)} {factor * change.value:+.{digits(factor * change.sigma)}f} ± "
            f"{factor * change.sigma:.2g} {unit}"
            for change in moved[:_MAX_NAMED]
        ]
        omitted = f", and {len(moved) - len(named)} more" if len(moved) > len(named) else ""
        lines.append(f"{title}: {len(moved)} of {len(of_kind)} changed: {', '.join(named)}{omitted}")
    return "\n".join(lines)


def digits(sigma: float) -> int:
    """Return the number of decimal places for a value with this standard error."""
    return max(0, 1 - math.floor(math.log10(sigma))) if 0.0 < sigma < 10.0 else 0


def _heater(number: int) -> str:
    return f"PUC {number // 2} {('upper', 'lower')[number % 2]} arm"


_MAX_NAMED = 4
_KINDS: Mapping[Kind, tuple[str, Callable[[int], str], str, float]] = {
    "offset": ("Passive phases", "PUC {}".format, "mrad", 1e3),
    "loop": ("Loop phases", "loop {}".format, "mrad", 1e3),
    "gain": ("Heater gains (phase per power)", _heater, "%", 100.0),
    "resistance": ("Heater resistances", _heater, "%", 100.0),
    "heater": ("Heaters (gain or resistance; this controller measures no voltages)", _heater, "%", 100.0),
    "source": ("Light into the mesh", "port {}".format, "dB", 1.0),
    "monitor": ("Monitors", "port {}".format, "dB", 1.0),
}
"""Title, name of an element, unit, and factor from stored to printed values, by kind of change."""


def result_text(after: Health, run: DriftRun) -> str:
    """Return the check of the renewed record, and the effort, as text."""
    effort = run.logbook.effort
    return (
        f"Renewed record: χ² {after.chi2_per_reading:.3g} per reading on settings not used in the renewal\n"
        f"{effort.settings} settings, {effort.hardware_s:.1f} s of hardware time"
    )


def cost_document(run: DriftRun) -> dict[str, Any]:
    """Return the effort of a renewal as a JSON document: settings, source changes and hardware time."""
    effort = run.logbook.effort
    return {"settings": effort.settings, "source_changes": effort.source_changes, "hardware_s": effort.hardware_s}


def _invalid_record_error(health: Health, path: Path) -> LumionError | None:
    if health.is_valid:
        return None
    return CalibrationError(
        f"{path} is no longer valid: χ² is {health.chi2_per_reading:.3g} per reading.",
        hint="To renew it, run the same command without --check-only.",
    )


def _large_change_error(renewal: RenewedFit, after: Health, target: Path) -> CalibrationError | None:
    if renewal.explains_readings and after.is_valid:
        return None
    pucs = ", ".join(map(str, renewal.worst_pucs))
    return CalibrationError(
        f"the chip has changed too much for a check (χ² {renewal.chi2_per_dof:.3g} per degree of freedom, "
        f"{after.chi2_per_reading:.3g} on settings not used in the renewal); a part may have failed. The worst fit is "
        f"at readings that depend on PUCs {pucs}",
        hint=f"Do not use {target}; it is marked as faulty. Check the heaters of these PUCs, and calibrate again.",
    )
