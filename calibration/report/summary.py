"""Summary of a calibration record: key figures, JSON document, and report.

The report needs only the record and the files next to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.run.blas_threads import one_blas_thread
from lumion_hw.errors import CalibrationError, ConfigError, LumionError
from lumion_hw.files import AnyPath
from lumion_hw.files.writing import Overwrite, check_target, write_file
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.storage import load_record

if TYPE_CHECKING:
    from calibration.report.numbers import Metric
    from calibration.report.page import Page
    from calibration.report.readings import Readings

_HTML = (".html", ".htm")


def calibration_summary(record: CalibrationRecord) -> dict[str, Any]:
    """Return the most important figures of a calibration by name."""
    sigma = [entry.passive_phase_sigma_rad for entry in record.pucs if entry.passive_phase_sigma_rad is not None]
    heaters = [heater for entry in record.pucs for heater in (entry.upper, entry.lower)]
    residual = [heater.residual_sigma for heater in heaters if heater.residual_sigma is not None]
    return {
        "device_serial": record.device_serial,
        "complete": record.complete,
        "pucs_calibrated": sum(entry.passive_phase_rad is not None for entry in record.pucs),
        "pucs": len(record.pucs),
        "heaters_calibrated": sum(heater.law is not None for heater in heaters),
        "heaters": len(heaters),
        "passive_phase_sigma_median_rad": float(np.median(sigma)) if sigma else None,
        "heater_fit_residual_median_sigma": float(np.median(residual)) if residual else None,
        "faults": list(record.faults),
        **record.quality,
    }


@dataclasses.dataclass(frozen=True)
class WrittenReport:
    """A written report.

    Attributes:
        pictures: Picture files; none for HTML, which contains them.
        missing: Missing parts and reasons, one sentence each.
    """

    path: Path
    pictures: tuple[Path, ...] = ()
    missing: tuple[str, ...] = ()


def check_report_path(path: Path, overwrite: Overwrite = "own") -> None:
    """Raise an error if a report cannot be written to a path; call this before long work.

    Raises:
        ConfigError: The suffix is not ``.html`` or ``.md``, or an existing file must not be overwritten.
    """
    if path.suffix not in (*_HTML, ".md"):
        raise ConfigError(
            f"{path}: the name of a report must end in .html or .md", hint="Change the suffix to .html or .md."
        )
    check_target(path, "the report", overwrite)


@one_blas_thread()
def write_report(
    record_path: AnyPath,
    out_path: AnyPath,
    *,
    truth: Sequence[Metric] = (),
    plots: bool = True,
    overwrite: Overwrite = "own",
) -> WrittenReport:
    """Write the report of a calibration record.

    Args:
        record_path: The record.
        out_path: ``.html`` for one self-contained document, ``.md`` for Markdown with pictures in ``NAME-pictures/``.
        truth: Comparison with the true parameters of an emulated bench.
        plots: Whether to include plots (needs matplotlib).
        overwrite: Which existing files may be overwritten.

    Raises:
        ConfigError: The suffix is wrong, or the file cannot be written.
        CalibrationError: The record cannot be read, or it was edited or damaged.
    """
    from calibration.report.page import html_text, markdown_text

    record_path, out_path = Path(record_path), Path(out_path)
    check_report_path(out_path, overwrite)
    page, missing = _page(record_path, truth, plots=plots)
    if out_path.suffix in _HTML:
        write_file(out_path, "the report", html_text(page), overwrite)
        return WrittenReport(out_path, missing=missing)
    folder = out_path.with_name(f"{out_path.stem}-pictures")
    pictures = {folder / f"{name}.svg": svg for name, svg in page.pictures.items()}
    for path, svg in pictures.items():
        write_file(path, "the picture", svg)
    write_file(out_path, "the report", markdown_text(page, folder.name), overwrite)
    return WrittenReport(out_path, tuple(pictures), missing)


def _page(record_path: Path, truth: Sequence[Metric], *, plots: bool) -> tuple[Page, tuple[str, ...]]:
    from calibration.report import plots as report_plots
    from calibration.report.headline import headline
    from calibration.report.page import Page
    from calibration.report.sections import Material, lead, sections

    record = load_record(record_path)
    readings, no_readings = load_readings(record, record_path)
    no_plots = ""
    if not plots:
        no_plots = f"run this command for plots: lumion-calibrate report {record_path.name}"
    elif not report_plots.available():
        no_plots = f"plots need matplotlib: {report_plots.HOW_TO_GET}"
    summary = [headline(record).verdict]
    missing = tuple(reason for reason in (no_plots, no_readings) if reason)
    summary += [f"Missing in this report: {reason}." for reason in missing]
    material = Material(record, readings, no_readings, no_plots, truth)
    title = f"Calibration of {record.device_serial}, {record.created_utc}"
    return Page(title, summary, sections(material), lead(material)), missing


def load_readings(record: CalibrationRecord, path: Path) -> tuple[Readings | None, str]:
    """Return the raw readings next to a record, or the reason why there are none."""
    from calibration.record.raw_data import load_raw
    from calibration.report.readings import Readings

    try:
        if record.raw is None:
            raise CalibrationError("the record has no raw readings")
        return Readings(record, load_raw(path, record.raw)), ""
    except LumionError as error:
        return None, str(error).rstrip(".")


def report_document(record: CalibrationRecord, path: Path) -> dict[str, Any]:
    """Return the figures of a report for JSON; ``residuals`` is ``None`` without raw readings."""
    from calibration.record.export import tables
    from calibration.report import numbers, uncertainty

    readings, _ = load_readings(record, path)
    correlations = uncertainty.correlation_by_group(record)
    return {
        "metrics": [{**dataclasses.asdict(metric), "ok": metric.ok} for metric in numbers.metrics(record)],
        "elements": tables(record),
        "cell_loop_sigma_mrad": list(uncertainty.face_sigma_mrad(record).values()),
        "extinction": [
            None if extinction is None else dataclasses.asdict(extinction) for extinction in numbers.extinctions(record)
        ],
        "residuals": None if readings is None else readings.statistics(),
        "dispersion": [
            dict(zip(("figure", "value", "standard_error", "unit"), row, strict=True))
            for row in uncertainty.dispersion(record)
        ],
        "correlation": None
        if correlations is None
        else {"groups": correlations[0], "largest": correlations[1].tolist()},
        "set_by_prior": uncertainty.set_by_prior(record),
        "conditions": dataclasses.asdict(record.conditions),
        "provenance": record.provenance,
    }
