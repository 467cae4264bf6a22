"""The command group ``lumion-calibrate`` and its command ``verify``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.calibrate import (
    drift as cli_drift,
    many as cli_many,
    plan as cli_plan,
    records as cli_records,
    report as cli_report,
    run as cli_run,
)
from lumion_hw.cli.calibrate.output import report_result
from lumion_hw.cli.calibrate.wavelengths import wavelength_option
from lumion_hw.cli.common.lazy import NamedGroup
from lumion_hw.cli.common.numbers import TOLERANCE_DB
from lumion_hw.cli.common.opening import bench_options, open_bench
from lumion_hw.cli.common.output import json_option
from lumion_hw.cli.common.version import version_option
from lumion_hw.errors import CalibrationError, ConfigError

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench
    from lumion_hw.mesh.record.validity import Policy


@click.group(cls=NamedGroup, context_settings={"help_option_names": ["-h", "--help"]})
@version_option
def calibrate() -> None:
    """Calibrate the mesh of a bench by light measured at its ports, and check the result.

    BENCH is the path of a bench file or the name of a built-in bench, such as lumion-prototype.
    """


__all__ = ["calibrate"]

_COMMANDS = (
    cli_plan.plan,
    cli_run.run_command,
    cli_drift.drift,
    cli_many.many,
    cli_records.show,
    cli_records.compare,
    cli_records.export,
    cli_report.report,
)
for _command in _COMMANDS:
    calibrate.add_command(_command)


@calibrate.command()
@click.argument("bench_file", metavar="BENCH")
@click.argument("record", type=click.Path(dir_okay=False))
@bench_options
@click.option(
    "--tolerance-db",
    default=0.1,
    show_default=True,
    type=TOLERANCE_DB,
    help="Largest accepted rms error after subtraction of the reading noise, in dB.",
)
@cli_drift.policy_option
@cli_drift.aged_option
@click.option("--against-truth", is_flag=True, help="Also compare with the true parameters of an emulated bench.")
@wavelength_option
@json_option
def verify(
    bench_file: str,
    record: str,
    emulate: bool,
    seed: int,
    endpoints: str | None,
    tolerance_db: float,
    policy: Policy,
    aged_days: float,
    against_truth: bool,
    wavelength: float | None,
    as_json: bool,
) -> int:
    """Verify RECORD: predict the light of new settings and compare with readings. Exit code 3 if out of tolerance.

    Half of the settings are random currents, half programmed bar and cross states. A reading is compared if its power
    in the mesh (photocurrent divided by the responsivity of the record) is above -40 dBm and 10 dB above the floor of
    the monitor.
    """
    from calibration.measure.bench_probe import BenchProbe
    from calibration.measure.probe import tune_to_record
    from calibration.run.verification import verify_at
    from lumion_hw.storage import load_record

    loaded = load_record(Path(record))
    if against_truth and not emulate:
        raise ConfigError("--against-truth needs --emulate, because the true parameters of a real bench are unknown")
    aged_s = cli_drift.aged_s(aged_days, emulate)
    with open_bench(bench_file, emulate, seed, endpoints, aged_s=aged_s) as bench, bench.dark():
        bench.mesh.check_record(loaded)
        probe = BenchProbe(bench)
        probe.check_input_ports_match_record(loaded)
        tune_to_record(probe, loaded)
        remarks = cli_drift.check_in_use(bench, loaded, policy)
        probe.align_all()
        result = verify_at(probe, loaded, wavelength or loaded.wavelength_nm, seed + 1)
        if not result.results:
            raise CalibrationError("no reading was bright enough to compare", hint="Check the light and the monitors.")
        document: dict[str, Any] = {"record": record, "tolerance_db": tolerance_db, **result.figures()}
        document |= {"suspects": list(result.suspects), "doubts": list(remarks)}
        if against_truth:
            document |= _truth_document(bench, loaded)
    failure = None
    if result.excess_db > tolerance_db:
        suspects = f" Suspect PUCs: {', '.join(map(str, result.suspects))}." if result.suspects else ""
        failure = CalibrationError(
            f"held-out error {result.rms_db:.2f} dB rms, {result.excess_db:.2f} dB after subtraction of the reading "
            f"noise, tolerance {tolerance_db:.2f} dB.{suspects}",
            hint="Calibrate again with `lumion-calibrate run`.",
        )
    margin = "limit" if failure is None else "more than the limit of"
    verdict = (
        f"The record {'holds' if failure is None else 'does not hold'}: held-out error {result.excess_db:.3f} dB above "
        f"the reading noise, {margin} {tolerance_db:g} dB"
    )
    lines = (
        f"{name.replace('_', ' ')}: {f'{value:.4g}' if isinstance(value, float) else value}"
        for name, value in document.items()
    )
    return report_result(document, "\n".join((verdict, *lines)), failure, as_json)


def _truth_document(bench: Bench, record: Any) -> dict[str, Any]:
    import numpy as np

    from calibration.report.hidden_truth import compare

    report = compare(bench, record)
    return {
        "phase_error_rms_rad": float(np.sqrt((report.phase_error_rad**2).mean())),
        "phase_error_worst_rad": float(np.abs(report.phase_error_rad).max()),
        "loss_error_rms_db": float(np.sqrt((report.loss_error_db**2).mean())),
        "states_short_of_30_db": report.shortfalls(),
    }
