"""Sections of a calibration report: text, tables and pictures of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.record.export import tables
from calibration.report import numbers, uncertainty
from calibration.report.headline import certified_uses, headline
from calibration.report.page import Block, Picture, ReportTable, Section
from calibration.report.readings import Readings
from lumion_hw.errors import LumionError
from lumion_hw.mesh.picture.drawing import mesh_svg
from lumion_hw.mesh.picture.values import PictureValues
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, Defect
from lumion_hw.mesh.waves.crosstalk import HeaterDistances

_ADVICE = {
    "dead heater": "The other arm sets every coupling if it reaches a full turn. Do not use the PUC in "
    "interferometers. Check the wiring of the channel; its read-back shows whether it is open.",
    "stuck PUC": "Routes avoid it. Check both channels and the bond wires, and calibrate again after the repair.",
    "unseen PUC": "Routes avoid it. Connect a source or a monitor to a port whose light passes it.",
    "uncertain law": "Use the PUC with care. Calibrate again with more light or more levels per sweep.",
    "dead monitor": "Circuits can use the port without a monitor. Prove circuits that end there with another meter.",
    "faint monitor": "Increase the light with an amplifier or a laser, and calibrate again.",
    "unseen heater": "Increase the light with an amplifier or a laser, and calibrate again.",
    "saturated monitor": "Reduce the light or change the range of the monitor, then calibrate again.",
    "dead source": "Check module, fibre and connector. Without this source fewer paths are measured.",
    "dead port": "Do not use the port for circuits. Clean or replace the fibre and inspect the facet.",
    "weak heater": "Couplings outside its range are refused. Use the other arm, or raise the current limit if this "
    "is allowed.",
    "exchanged channels": "Exchange the channels in the bench file, or swap their wires, and calibrate again.",
    "shared channel": "Check the wires of both channels and the chip for a short, then calibrate again.",
    "couplers off balance": "Do not use the PUC in paths that need more extinction.",
    "temperature drift": "Check the temperature control. Renew the record once the temperature is stable.",
    "mode hop": "Check the laser. Calibrate again with another laser or at another bias.",
    "power drift": "Check laser and fibres. The fit has corrected the drift.",
    "PUC not calibrated": "Calibrate again. Until then routes avoid it.",
}
_WIDENED = "widened_"
"""Prefix of quality entries with factors by which standard errors were increased."""
_OTHER_ADVICE = "Check the element. If the fault remains, disable the element and calibrate again."


@dataclass(frozen=True, eq=False)
class Material:
    """Input of a report.

    Attributes:
        readings: The raw readings next to the record; ``None`` if there are none.
        no_readings: Reason why there are no raw readings.
        no_plots: Reason why there are no plots, or empty.
        truth: Comparison with the true parameters of an emulated bench, if any.
    """

    record: CalibrationRecord
    readings: Readings | None
    no_readings: str = ""
    no_plots: str = ""
    truth: Sequence[numbers.Metric] = ()

    def plot(self, name: str, caption: str, draw: Callable[[Any], Any]) -> Block:
        """Return a plot, or a sentence that explains why it is missing.

        ``name`` is the subject of the plot and the name of its file. ``draw`` draws the plot with the module
        :mod:`calibration.report.plots`.
        """
        if self.no_plots:
            return f"Not shown ({name}): {self.no_plots}."
        from calibration.report import plots as report_plots

        svg = report_plots.svg_of(lambda: draw(report_plots))
        return Picture(name.replace(" ", "-").replace("π", "pi"), svg, f"{name[:1].upper()}{name[1:]}. {caption}")


def sections(material: Material) -> list[Section]:
    """Return all sections; a section that fails contains the reason."""
    result = []
    for title, write, folded in _SECTIONS:
        blocks: list[Block] = []
        try:
            for block in write(material):  # blocks before the failure stay
                blocks.append(block)
        except LumionError as error:
            blocks.append(f"Not shown: {error}")
        if blocks:
            result.append(Section(title, tuple(blocks), folded))
    return result


def lead(material: Material) -> list[Block]:
    """Return the first blocks of the report: map of the mesh and key figures."""
    try:
        blocks = list(_phase_map(material))
    except LumionError as error:
        blocks = [f"Not shown (map of the mesh): {error}"]
    return [*blocks, ReportTable(("", ""), headline(material.record).figures)]


def _misses(material: Material) -> Iterator[Block]:
    figures = headline(material.record)
    if figures.misses:
        yield ReportTable(("missed goal",), [[miss] for miss in figures.misses])
    yield from _faults(material)


def _device(material: Material) -> Iterator[Block]:
    record, conditions = material.record, material.record.conditions
    age_s = conditions.emulated_age_s
    rows: list[list[object]] = [
        ["serial number", record.device_serial],
        ["controller", " ".join(filter(None, (record.device_vendor, record.device_model, record.device_firmware)))],
        ["mesh", f"{record.mesh_label}: {len(record.pucs)} PUCs, {len(record.monitor_ports)} ports with a detector"],
        ["mesh hash", record.mesh_sha256],
        ["calibrated", record.created_utc],
        ["complete", record.complete],
        [
            "wavelength, nm",
            ", ".join(f"{wavelength:g}" for wavelength in conditions.wavelengths_nm or (record.wavelength_nm,)),
        ],
        ["reference frequency, THz", f"{record.reference_hz * 1e-12:.6f}"],
        ["chip temperature, setpoint, °C", conditions.temperature_set_c],
        ["chip temperature, measured, °C", _interval(conditions.temperature_range_c)],
        ["laser power, dBm", conditions.laser_power_dbm],
        *_rows({f"polarization at {port}": state for port, state in conditions.polarization.items()}),
        ["ambient", conditions.ambient or None],
        ["age of the emulated bench, days", None if age_s is None else age_s / 86400.0],
        ["thermal time constant of the heaters, s", conditions.heater_tau_s],
    ]
    yield ReportTable(("", ""), rows)


def _rows(named: Mapping[str, object]) -> list[list[object]]:
    return [[name.replace("_", " "), value] for name, value in named.items()]


def _interval(ends: tuple[float, float] | None) -> str | None:
    return None if ends is None else f"{ends[0]:g} … {ends[1]:g}"


def _result(material: Material) -> Iterator[Block]:
    record = material.record
    yield _metric_table([metric for metric in numbers.metrics(record) if metric.name != "fit certified"])
    yield (
        "The goals are limits that suit any chip; a run aims at --sigma-mrad, by default 1 mrad rms. The table shows "
        "standard errors, because true phase errors are known on an emulated bench only. A calibration does not "
        "measure the fidelity of programmed unitaries."
    )
    if material.truth:
        yield _metric_table(material.truth, "Compared with the hidden truth of the emulated bench")
    other = numbers.other_quality(record)
    widened = {name.removeprefix(_WIDENED): value for name, value in other.items() if name.startswith(_WIDENED)}
    if widened:
        caption = (
            "Factors by which standard errors were increased, because readings scatter more than the model explains"
        )
        yield ReportTable(("parameters", "factor"), _rows(widened), caption)
    other_figures = {name: value for name, value in other.items() if not name.startswith(_WIDENED)}
    if other_figures:
        yield ReportTable(("figure of the run", "value"), _rows(other_figures))


def _metric_table(metrics: Sequence[numbers.Metric], caption: str = "") -> ReportTable:
    rows = [[metric.name, metric.value, metric.unit, _goal(metric), metric.ok, metric.note] for metric in metrics]
    return ReportTable(("figure", "value", "unit", "goal", "met", "remark"), rows, caption)


def _goal(metric: numbers.Metric) -> str | None:
    return None if metric.goal is None else f"{'≥' if metric.at_least else '≤'} {metric.goal:g}"


def _faults(material: Material) -> Iterator[Block]:
    record = material.record
    if not record.complete:
        yield (
            "The run was interrupted. Elements that it did not reach are not calibrated, and the record cannot be "
            "used for routing."
        )
    described = {defect.evidence for defect in record.defects}
    other_faults = [fault for fault in record.faults if fault not in described]
    if record.defects:
        rows = [
            [
                defect.kind,
                _element(record, defect),
                defect.evidence,
                _states(defect),
                _ADVICE.get(defect.kind, _OTHER_ADVICE),
            ]
            for defect in record.defects
        ]
        yield ReportTable(("fault", "where", "observation", "usable states", "what to do"), rows)
    if other_faults:
        yield ReportTable(("also found",), [[fault] for fault in other_faults])
    if not record.faults and not record.defects:
        yield "No faults were found."


def _physics(material: Material) -> Iterator[Block]:
    effects = material.record.physics
    if not effects:
        yield "The basic model explains the readings; no additional effects were needed."
        return
    rows = [[effect.description, effect.name, effect.parameters, effect.width, effect.gain] for effect in effects]
    yield ReportTable(("effect", "name, with unit", "parameters", "width", "gain in log evidence"), rows)


def _element(record: CalibrationRecord, defect: Defect) -> str:
    if defect.element == "heater" and defect.number < 2 * len(record.pucs):
        return CalibratedMesh.from_record(record).heater_name(defect.number)
    if defect.element in ("puc", "heater", "port", "monitor", "source"):
        return f"{'PUC' if defect.element == 'puc' else defect.element} {defect.number}"
    return defect.element


def _states(defect: Defect) -> str | None:
    return None if defect.usable_states is None else ", ".join(defect.usable_states) or "none"


def _validity(material: Material) -> Iterator[Block]:
    record, conditions = material.record, material.record.conditions
    max_phases_rad = [law.max_phase_rad for entry in record.pucs for law in (entry.upper.law, entry.lower.law) if law]
    valid_s = conditions.valid_for_s
    rows: list[list[object]] = [
        ["wavelength, nm", _interval(conditions.wavelength_range_nm) or f"{record.wavelength_nm:g} only"],
        ["chip temperature, °C", _interval(conditions.temperature_valid_c) or "not stated"],
        ["check again after, h", "not stated" if valid_s is None else f"{valid_s / 3600:g}"],
        [
            "heater phase, rad",
            f"0 … {min(max_phases_rad):.2f} for the weakest heater" if max_phases_rad else "no heater",
        ],
        ["certified for", certified_uses(record) if record.joints else "switching only: no loop phases"],
    ]
    yield ReportTable(("holds for", ""), rows)


def _phase_map(material: Material) -> Iterator[Block]:
    record = material.record
    sigma, cells = uncertainty.passive_sigma_mrad(record), uncertainty.face_sigma_mrad(record)
    if not sigma and not cells:
        yield "The record has no standard errors of phases."
        return
    values = PictureValues("standard error", "mrad", sigma, cells)
    unlit = numbers.unlit_pucs(record)
    pucs = np.flatnonzero(record.mesh.interferes).tolist()
    failed = [puc for puc in pucs if record.pucs[puc].passive_phase_rad is None and puc not in unlit]
    svg = mesh_svg(
        record.mesh,
        values=values,
        failed=failed,
        unlit=unlit,
        heater_channels=record.heater_channels,
        fibres=_connected_ports(record),
        title="Phase uncertainty",
    )
    label = "passive phase on PUCs, loop phase in cells"
    yield Picture(
        "phase-uncertainty", svg, f"Standard errors of phases ({label}), for the light and the temperature of the run."
    )


def _connected_ports(record: CalibrationRecord) -> set[int]:
    return {*record.monitor_ports, *(entry.port for entry in record.ports if entry.source_dbm is not None)}


def _losses(material: Material) -> Iterator[Block]:
    record = material.record
    unlit = numbers.unlit_pucs(record)
    losses = {puc: loss_db for puc, loss_db in enumerate(record.loss_db.tolist()) if puc not in unlit}
    values = PictureValues("insertion loss", "dB", losses)
    fibres = _connected_ports(record)
    svg = mesh_svg(record.mesh, values=values, unlit=unlit, fibres=fibres, title="PUC losses")
    yield Picture("losses", svg, "Insertion loss of every PUC.")
    by_prior = [name for name in uncertainty.set_by_prior(record) if name.startswith("loss_db")]
    if by_prior:
        yield f"Determined by the prior, because the ports show only sums: {', '.join(by_prior)}."
    if any(entry.coupler is not None for entry in record.pucs):
        caption = (
            "Largest extinction that the couplers allow. Triangles: lower bounds, because the coupler is perfect "
            "within its error."
        )
        yield material.plot("extinction ratios", caption, lambda plots: plots.extinction(numbers.extinctions(record)))


def _heaters(material: Material) -> Iterator[Block]:
    record, readings = material.record, material.readings
    calibrated = CalibratedMesh.from_record(record)
    power = {
        heater: float(np.pi * mw_per_rad) for heater, mw_per_rad in enumerate(calibrated.heat_mw_per_rad) if mw_per_rad
    }
    if not power:
        yield "No heater has an effect."
        return
    low, middle, high = (float(value) for value in np.percentile(list(power.values()), (0, 50, 100)))
    yield f"Power for π: {low:.2f} … {high:.2f} mW, median {middle:.2f} mW over {len(power)} heaters."
    yield material.plot("power for π", "Power for π of every heater.", lambda plots: plots.heater_power(power))
    if readings is None:
        yield f"Not shown (fringes of single heaters): {material.no_readings}."
        return
    if not readings.sweeps:
        yield "Not shown (fringes of single heaters): the raw readings contain no sweeps."
        return
    caption = (
        "Readings during the sweep of one heater (dots) and prediction of the record (lines), at the monitor with "
        "the largest effect. Shaded: outside the range of the heater's law."
    )
    yield material.plot(
        "fringes of single heaters",
        caption,
        lambda plots: plots.fringes(
            [(rank, readings.fringe(sweep)) for rank, sweep in readings.ranked_sweeps()], calibrated.max_ma.tolist()
        ),
    )


def _residuals(material: Material) -> Iterator[Block]:
    readings = material.readings
    if readings is None:
        yield f"Not shown: {material.no_readings}."
        return
    rows = [
        [label, *(statistics[name] for name in ("readings", "rms_sigma", "typical_sigma", "beyond_3_sigma"))]
        for label, statistics in readings.statistics().items()
    ]
    yield ReportTable(("readings of", "number", "rms, σ", "typical, σ", "beyond 3 σ (normal: 0.0027)"), rows)
    yield (
        "σ contains the reading noise and the allowances of the global fit for model error and drift. The global fit "
        "does not use sweeps, because they exceed the range of the three-term heater laws."
    )
    caption = (
        "Residuals in units of σ with the normal distribution (the flat top comes from dark readings that the "
        "monitors round), by monitor, and by setting in time order."
    )
    yield material.plot("residuals", caption, lambda plots: plots.residuals(readings))


def _crosstalk(material: Material) -> Iterator[Block]:
    record = material.record
    shift = numbers.arm_crosstalk_rad(record)
    kernel = record.crosstalk.kernel if record.crosstalk else None
    if shift is None:
        yield "The record has no crosstalk."
        return
    formula = ""
    if kernel is not None:
        formula = (
            f"κ(d) = {1e3 * kernel.amplitude_rad_per_mw:.3g} mrad/mW · exp(−d / {kernel.length_mm:.3g} mm) + "
            f"{1e3 * kernel.floor_rad_per_mw:.2g} mrad/mW"
        )
        yield f"{formula}, with PUCs {kernel.edge_mm:g} mm long."
    distance = HeaterDistances.from_mesh(record.mesh).arm_mm
    caption = (
        "Phase of every arm for π on every other heater, as a matrix and over their distance. The spread at one "
        "distance comes from the different powers for π."
    )
    yield material.plot("thermal crosstalk", caption, lambda plots: plots.crosstalk(shift, distance, formula))


def _wavelength(material: Material) -> Iterator[Block]:
    dispersion = uncertainty.dispersion(material.record)
    if not dispersion:
        yield "The record has no wavelength dependence."
        return
    yield ReportTable(("figure", "value", "standard error", "unit"), [[*row] for row in dispersion])
    yield "Figures without a standard error are published values and were not measured."


def _covariance(material: Material) -> Iterator[Block]:
    record, entry = material.record, material.record.covariance
    correlations = uncertainty.correlation_by_group(record)
    if entry is None or correlations is None:
        yield "The record has no covariance."
        return
    yield (
        f"{entry.size} parameters, {entry.n_free} of them free. The readings determine {entry.rank} combinations; "
        f"{entry.expected_rank} are possible with these ports."
    )
    by_prior = uncertainty.set_by_prior(record)
    if by_prior:
        yield f"Determined by the prior: {', '.join(by_prior)}."
    if entry.unidentifiable:
        yield ReportTable(
            ("parameters that can change together without any effect on the readings",),
            [[combination] for combination in entry.unidentifiable],
        )
    caption = "Largest correlation between a parameter of one group and a parameter of the other."
    yield material.plot("correlations", caption, lambda plots: plots.correlation(*correlations))


def _all_elements(material: Material) -> Iterator[Block]:
    for name, rows in tables(material.record).items():
        if name != "joints" and rows:
            yield ReportTable([head.replace("_", " ") for head in rows[0]], [[*row.values()] for row in rows], name)


def _provenance(material: Material) -> Iterator[Block]:
    record = material.record
    rows: list[list[object]] = [
        ["record", record.record_id],
        ["content hash", record.content_sha256],
        ["re-fitted from", record.parent_sha256],
        ["raw readings", None if record.raw is None else f"{record.raw.name}, hash {record.raw.sha256}"],
        *_rows(record.provenance),
    ]
    yield ReportTable(("", ""), rows)


# Title, content function, and whether the section is folded.
_SECTIONS: tuple[tuple[str, Callable[[Material], Iterator[Block]], bool], ...] = (
    ("Misses and faults", _misses, False),
    ("Range of validity", _validity, False),
    ("Device and conditions", _device, True),
    ("All figures", _result, True),
    ("Additional effects", _physics, True),
    ("Losses and couplers", _losses, True),
    ("Heaters", _heaters, True),
    ("Residuals", _residuals, True),
    ("Thermal crosstalk", _crosstalk, True),
    ("Wavelength", _wavelength, True),
    ("Covariance", _covariance, True),
    ("Provenance", _provenance, True),
    ("All elements", _all_elements, True),
)
