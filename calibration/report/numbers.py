"""Figures of a calibration report from the record alone: metrics with goals, and maps by element."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np

from calibration.diagnose.element_faults import LEFT_OUT, UNSEEN_PUC
from calibration.model.arrays import Real
from calibration.model.gauge import has_visible_phase
from calibration.record.regimes import REGIMES
from calibration.report.uncertainty import (
    crosstalk_sigma_mrad,
    illuminated_loops,
    loop_factor,
    passive_sigma_mrad,
    set_by_prior,
)
from lumion_hw.errors import CalibrationError, LimitError
from lumion_hw.mesh.layout.cells import NO_CHANNEL
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, CouplerEntry

_STATES: tuple[State, State] = ("bar", "cross")
_MIN_LEAK = 1e-9
# An angle closer to zero than this many standard errors gives only a lower bound of the extinction.
_BOUND_SIGMA = 2.0
# With the phase common to all PUCs, the standard error of loop phases is shown too if it is larger by this factor.
_MIN_COMMON_RATIO = 1.1


@dataclass(frozen=True)
class Metric:
    """One figure of merit (docs/calibration.md, 8).

    Attributes:
        value: Value; ``None`` if unknown.
        goal: Limit of the value; ``None`` without a goal.
        at_least: Whether the value must be at least ``goal``, otherwise at most.
        note: Explanation for the reader.
    """

    name: str
    value: float | None
    unit: str = ""
    goal: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def ok(self) -> bool | None:
        """Whether the goal is met; ``None`` without a goal or a value."""
        if self.value is None or self.goal is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal


@dataclass(frozen=True)
class Extinction:
    """Extinction ratios that the couplers of one PUC allow (docs/calibration.md, 2), or lower bounds of them.

    Attributes:
        through_db: Extinction ratio of the bar output.
        cross_db: Extinction ratio of the cross output.
    """

    through_db: float
    cross_db: float
    through_is_bound: bool
    cross_is_bound: bool


def metrics(record: CalibrationRecord) -> list[Metric]:
    """Return the figures of merit of a record, with the goals of the emulated 72-PUC mesh (docs/calibration.md, 8)."""
    return [
        *_phase_metrics(record),
        *_setting_metrics(record),
        *(
            Metric(name, record.quality.get(key), unit, goal, at_least, note)
            for key, name, unit, goal, at_least, note in _FROM_QUALITY
            if goal is not None or key in record.quality
        ),
        *_coverage_metrics(record),
    ]


_READ = "includes noise and converter step of the readings"
# Key in the record, name, unit, goal, whether the goal is a minimum, note.
_FROM_QUALITY: tuple[tuple[str, str, str, float | None, bool, str], ...] = (
    ("held_out_rms_db", "held-out port power, rms", "dB", None, False, "settings that no fit used; " + _READ),
    ("held_out_excess_db", "held-out port power, rms above reading noise", "dB", 0.1, False, "error of the record"),
    *(
        (f"held_out_{kind}_rms_db", f"held-out port power {regime.description}, rms", "dB", None, False, "")
        for kind, regime in REGIMES.items()
    ),
    ("held_out_median_db", "held-out port power, median", "dB", None, False, ""),
    ("held_out_worst_db", "held-out port power, worst", "dB", None, False, ""),
    ("held_out_readings", "held-out readings judged", "", None, False, ""),
    ("held_out_chi2", "χ² per held-out reading", "", 1.5, False, "with the record's own uncertainty"),
    ("fit_chi2_per_dof", "χ² per degree of freedom", "", 1.5, False, "robust, all readings of the global fit"),
    ("fit_certified", "fit certified", "", 1.0, True, "1 if the fit explains all readings, including held-out ones"),
    ("settings", "settings used", "", 5000.0, False, ""),
    ("source_changes", "input changes", "", None, False, ""),
    ("hardware_s", "hardware time", "s", 90.0, False, "writes, settling, reads and source changes"),
    ("bench_s", "time on the bench's clock", "s", None, False, ""),
    ("cpu_s", "CPU time", "s", None, False, "processor time of this computer"),
)


def other_quality(record: CalibrationRecord) -> dict[str, float]:
    """Return the other quality figures of a run."""
    listed = {key for key, *_ in _FROM_QUALITY}
    return {key: value for key, value in record.quality.items() if key not in listed}


def extinctions(record: CalibrationRecord) -> list[Extinction | None]:
    """Return the extinction ratios of every PUC; ``None`` if couplers were not measured."""
    return [None if entry.coupler is None else _extinction(entry.coupler) for entry in record.pucs]


def _extinction(coupler: CouplerEntry) -> Extinction:
    # The leakage is cos²(a1 + a2) = sin²(2·common) in the bar output and sin²(a1 - a2) in the cross output.
    common, common_is_bound = _largest(2.0 * coupler.common_rad, 2.0 * (coupler.common_sigma_rad or 0.0))
    half, half_is_bound = _largest(coupler.difference_rad, coupler.difference_sigma_rad or 0.0)
    return Extinction(
        through_db=_ratio_db(np.cos(half) ** 2, np.sin(common) ** 2),
        cross_db=_ratio_db(np.cos(common) ** 2, np.sin(half) ** 2),
        through_is_bound=common_is_bound,
        cross_is_bound=half_is_bound,
    )


def _largest(angle_rad: float, sigma_rad: float) -> tuple[float, bool]:
    """Return the magnitude of an angle, or an upper bound if it is not significant."""
    bound_rad = _BOUND_SIGMA * sigma_rad
    return (abs(angle_rad) + bound_rad, True) if abs(angle_rad) < bound_rad else (abs(angle_rad), False)


def _ratio_db(strong: float, weak: float) -> float:
    return float(10.0 * np.log10(strong / max(weak, _MIN_LEAK)))


def arm_crosstalk_rad(record: CalibrationRecord) -> Real | None:
    """Return the phase of each arm (row) for π on another heater (column), in rad; ``None`` if unknown."""
    if record.crosstalk is None:
        return None
    calibrated = CalibratedMesh.from_record(record)
    shift: Real = calibrated.arm_rad_per_mw * (np.pi * calibrated.heat_mw_per_rad)
    return shift if shift.any() else None


def _phase_metrics(record: CalibrationRecord) -> list[Metric]:
    sigma = passive_sigma_mrad(record)
    rms = float(np.sqrt(np.mean(np.square(list(sigma.values()))))) if sigma else None
    worst = max(sigma, key=lambda puc: sigma[puc], default=None)
    factor, n_loops = loop_factor(record), int(illuminated_loops(record).sum())
    loops = None if factor is None or not n_loops else 1e3 * float(np.sqrt((factor**2).sum() / n_loops))
    named = "standard error from the fit; the true error is known on an emulator only"
    stated_rad = record.joints.loop_sigma_rad if record.joints else None
    with_common = []
    if stated_rad is not None and loops is not None and 1e3 * stated_rad > _MIN_COMMON_RATIO * loops:
        note = "laser frequency and temperature turn all loops together"
        with_common = [Metric("loop phases with the phase common to all PUCs", 1e3 * stated_rad, "mrad", note=note)]
    return [
        Metric("passive phases, standard error, rms", rms, "mrad", 3.0, note=named),
        Metric(
            "passive phases, standard error, worst",
            None if worst is None else sigma[worst],
            "mrad",
            10.0,
            note="" if worst is None else f"PUC {worst}",
        ),
        Metric(
            "loop phases, standard error, rms per loop", loops, "mrad", 3.0, note="without a phase common to all PUCs"
        ),
        *with_common,
    ]


def _setting_metrics(record: CalibrationRecord) -> list[Metric]:
    measured = [extinction for extinction in extinctions(record) if extinction is not None]
    sigma = passive_sigma_mrad(record)
    # dk/dφ is ½ at k = ½ and smaller elsewhere.
    worst_k = 0.5e-3 * max(sigma.values()) if sigma else None
    expected = {state: programmed_extinction_db(record, state) for state in _STATES}
    crosstalk_mrad: float | None = None
    with contextlib.suppress(CalibrationError):  # this software cannot evaluate the crosstalk of the record
        crosstalk_mrad = crosstalk_sigma_mrad(record)
    return [
        _min_extinction("bar", [(extinction.through_db, extinction.through_is_bound) for extinction in measured]),
        _min_extinction("cross", [(extinction.cross_db, extinction.cross_is_bound) for extinction in measured]),
        *(
            Metric(f"smallest expected extinction, programmed {state}", min(ratios.values(), default=None), "dB")
            for state, ratios in expected.items()
        ),
        Metric("power coupling, standard error at k = ½, worst", worst_k, "", 1e-3, note="a step of 0.001 is resolved"),
        Metric(
            "crosstalk on an arm after compensation, all heaters at π",
            crosstalk_mrad,
            "mrad",
            note="standard error of the kernel, rms",
        ),
    ]


def _min_extinction(output: str, extinctions_db: list[tuple[float, bool]]) -> Metric:
    values = [value for value, is_bound in extinctions_db if not is_bound]
    bounds = len(extinctions_db) - len(values)
    note = "limit of the couplers" + (f"; a lower bound for {bounds} PUCs" if bounds else "")
    return Metric(f"smallest extinction of the {output} output", min(values, default=None), "dB", note=note)


def programmed_extinction_db(record: CalibrationRecord, state: State) -> dict[int, float]:
    """Return the expected extinction ratio of every PUC with all PUCs set to bar or cross.

    The result is empty if the currents cannot be calculated.
    """
    from lumion_hw.mesh.programming.inverse import heater_currents_ma
    from lumion_hw.mesh.programming.prediction import predict_pucs

    states = {puc: state for puc in range(len(record.pucs)) if len(record.usable_states(puc)) == len(_STATES)}
    try:
        expected = predict_pucs(CalibratedMesh.from_record(record), heater_currents_ma(record, states)).extinction_db
    except (CalibrationError, LimitError):
        return {}
    return {puc: float(expected[puc]) for puc in states if np.isfinite(expected[puc])}


def unlit_pucs(record: CalibrationRecord) -> set[int]:
    """Return the PUCs without light: those that no light reaches, and those left out of the calibration."""
    left_out = {puc for puc, entry in enumerate(record.pucs) if entry.note == LEFT_OUT}
    return left_out | {defect.number for defect in record.defects if defect.kind == UNSEEN_PUC}


def _coverage_metrics(record: CalibrationRecord) -> list[Metric]:
    covariance = record.covariance
    pucs = sum(entry.passive_phase_rad is not None for entry in record.pucs)
    heaters = sum(heater.law is not None for entry in record.pucs for heater in (entry.upper, entry.lower))
    # PUCs without light, and heaters whose phase no power shows, are not part of the goal.
    unseen = unlit_pucs(record)
    count = len(record.pucs) - len(unseen)
    inputs = [entry.port for entry in record.ports if entry.source_dbm is not None]
    visible = has_visible_phase(record.mesh, inputs, record.monitor_ports)
    driven = visible & (np.array(record.heater_channels) != NO_CHANNEL)
    n_heaters = sum(heater // 2 not in unseen for heater in np.flatnonzero(driven).tolist())
    rank = expected = prior = None
    free = ""
    if covariance is not None:
        rank, expected = float(covariance.rank), float(covariance.expected_rank)
        free = f"of {covariance.n_free} free parameters; the goal is the rank that the ports allow"
        prior = float(len(set_by_prior(record)))
    return [
        Metric("PUCs calibrated", float(pucs), "", float(count), at_least=True),
        Metric("heaters calibrated", float(heaters), "", float(n_heaters), at_least=True),
        Metric("rank found", rank, "", expected, at_least=True, note=free),
        Metric("parameters set by the prior", prior, "", note="the prior determines these more than the readings do"),
        Metric("wavelengths", float(max(1, len(record.conditions.wavelengths_nm)))),
    ]
