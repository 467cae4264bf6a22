"""The commands of ``lumion-calibrate`` that only read calibration records: ``show``, ``compare`` and ``export``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.numbers import Number
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, error_document, json_option, note, paragraph
from lumion_hw.cli.common.outputs import force_option, out_option
from lumion_hw.errors import CalibrationError, ConfigError
from lumion_hw.files.json_text import json_text

if TYPE_CHECKING:
    from calibration.record.comparison import Comparison
    from lumion_hw.mesh.record.calibration_record import CalibrationRecord

_FORMATS = ("json", "csv", "npz")


def _load(path: str) -> CalibrationRecord:
    from lumion_hw.storage import load_record

    return load_record(Path(path))


@click.command()
@click.argument("record", type=click.Path(dir_okay=False))
@json_option
def show(record: str, as_json: bool) -> None:
    """Show a summary of a calibration record; with --json also all numbers of its report."""
    from calibration.report.headline import headline
    from calibration.report.summary import calibration_summary, report_document

    loaded = _load(record)
    identity = _identity(loaded)
    if as_json:
        figures = report_document(loaded, Path(record))
        echo_json({"record": record, **identity, **calibration_summary(loaded), **figures})
        return
    echo_text(f"{headline(loaded).text()}\n")
    echo_text("\n".join(f"- {name.replace('_', ' ')}: {_text(value)}" for name, value in identity.items()) + "\n")
    rows: list[list[object]] = []
    for puc, entry in enumerate(loaded.pucs):
        laws = [heater.law for heater in (entry.upper, entry.lower)]
        phases = [None if law is None else f"{law.max_phase_rad:.2f}" for law in laws]
        passive, sigma = entry.passive_phase_rad, entry.passive_phase_sigma_rad
        rows.append(
            [
                puc,
                None if passive is None else f"{passive:+.3f}",
                None if sigma is None else f"{sigma * 1e3:.1f}",
                f"{entry.loss_db:.3f}",
                *phases,
                entry.note,
            ]
        )
    echo_table("PUCs", ("PUC", "passive rad", "± mrad", "loss dB", "upper reach rad", "lower reach rad", "note"), rows)
    if loaded.physics:
        physics = [
            [term.description, term.parameters, f"{term.width:.3g}", f"{term.gain:.0f}"] for term in loaded.physics
        ]
        echo_table("Physics beyond the basic model", ("effect", "parameters", "width", "gain of evidence"), physics)
    if loaded.defects:
        faults = [
            [defect.kind, f"{defect.element} {defect.number}", defect.evidence, _states(defect.usable_states)]
            for defect in loaded.defects
        ]
        echo_table("Faults", ("kind", "element", "evidence", "usable states"), faults)
    _echo_covariance(loaded)


def _identity(record: CalibrationRecord) -> dict[str, Any]:
    kernel = record.crosstalk.kernel if record.crosstalk else None
    return {
        "record_id": record.record_id,
        "created_utc": record.created_utc,
        "parent_sha256": record.parent_sha256,
        "mesh": record.mesh_label,
        "wavelength_nm": record.wavelength_nm,
        "wavelength_range_nm": record.conditions.wavelength_range_nm,
        "loops_calibrated": record.joints is not None,
        "crosstalk_kernel": None if kernel is None else dataclasses.asdict(kernel),
    }


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {number:.4g}" for name, number in value.items())
    if isinstance(value, tuple):
        return " … ".join(f"{number:.6g}" for number in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _states(states: tuple[str, ...] | None) -> str | None:
    return None if states is None else ", ".join(states) or "none"


def _echo_covariance(record: CalibrationRecord) -> None:
    covariance = record.covariance
    if covariance is None:
        return
    echo_text(
        f"Covariance of {covariance.size} parameters: {covariance.n_free} free, rank {covariance.rank}; "
        f"readings at these ports can determine at most {covariance.expected_rank}"
    )
    if covariance.set_by_prior:
        echo_text(f"Not measured, set by the prior: {', '.join(covariance.set_by_prior)}")
    for combination in covariance.unidentifiable:
        echo_text(f"Not identifiable: {combination}")


@click.command()
@click.argument("first", type=click.Path(dir_okay=False))
@click.argument("second", type=click.Path(dir_okay=False))
@click.option(
    "--tolerance-sigma",
    type=Number("σ", 0.0, 1e6),
    help="Largest accepted rms difference of a parameter group, in standard errors; beyond it the exit code is 3.",
)
@json_option
def compare(first: str, second: str, tolerance_sigma: float | None, as_json: bool) -> int:
    """Compare two calibration records of one mesh, in units of their standard errors.

    Parameter combinations that cannot be observed at the ports are excluded.
    """
    from calibration.record.comparison import compare_records

    result = compare_records(_load(first), _load(second))
    failure = _out_of_tolerance(result, tolerance_sigma)
    if as_json:
        document = {"first": first, "second": second, **dataclasses.asdict(result)}
        echo_json(document if failure is None else document | error_document(failure, failure.exit_code))
    else:
        _echo_comparison(result)
    if failure is None:
        return 0
    note(f"lumion-calibrate: {paragraph(failure)}")
    return failure.exit_code


def _out_of_tolerance(result: Comparison, tolerance_sigma: float | None) -> CalibrationError | None:
    if tolerance_sigma is None:
        return None
    if result.worst_rms_sigma is None:
        raise ConfigError(
            "--tolerance-sigma needs records with a covariance", hint="Compare without --tolerance-sigma."
        )
    if result.worst_rms_sigma <= tolerance_sigma:
        return None
    worst = max((group for group in result.groups), key=lambda group: group.rms_sigma or 0.0)
    return CalibrationError(
        f"{worst.group} differ by {worst.rms_sigma:.2f} standard errors rms, tolerance {tolerance_sigma:g}.",
        hint=f"Worst: {worst.worst_at}, {worst.worst:+.4g} {worst.unit}.",
    )


def _echo_comparison(result: Comparison) -> None:
    rows: list[list[object]] = [
        [
            group.group,
            group.count,
            f"{group.rms:.3g}",
            f"{group.worst:+.3g}",
            group.unit,
            group.worst_at,
            None if group.rms_sigma is None else f"{group.rms_sigma:.2f}",
            None if group.worst_sigma is None else f"{group.worst_sigma:.2f}",
        ]
        for group in result.groups
    ]
    headers = ("parameters", "number", "rms", "worst", "unit", "worst at", "rms / σ", "worst / σ")
    echo_table("Second minus first", headers, rows)
    if result.chi2_per_dof is not None:
        echo_text(f"χ² per degree of freedom: {result.chi2_per_dof:.3g}")
    for text in result.notes:
        echo_text(f"Note: {text}")


@click.command()
@click.argument("record", type=click.Path(dir_okay=False))
@click.option(
    "--format",
    "kind",
    type=click.Choice(_FORMATS),
    default="json",
    show_default=True,
    help="Format to write: json, csv or npz.",
)
@out_option("File to write, or directory for csv.  [default: standard output, for json]")
@force_option
def export(record: str, kind: str, out: Path | None, force: bool) -> None:
    """Convert a calibration record for other programs: json, csv (one table per file) or npz (numpy arrays)."""
    from calibration.record.export import parameters_document, write_npz, write_tables
    from lumion_hw.files.writing import overwrite_policy, write_file

    loaded = _load(record)
    if out is None:
        if kind != "json":
            raise ConfigError(f"--format {kind} needs --out", hint="Give the file (npz) or directory (csv) to write.")
        echo_json(parameters_document(loaded))
        return
    files: tuple[Path, ...] = (out,)
    if kind == "csv":
        files = write_tables(loaded, out, overwrite_policy(force))
    elif kind == "npz":
        write_npz(loaded, out, overwrite_policy(force))
    else:
        text = json_text(parameters_document(loaded), indent=1)
        write_file(out, "the export", text + "\n", overwrite_policy(force))
    echo_text("\n".join(str(file) for file in files))
