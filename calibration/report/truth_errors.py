"""Errors of a calibration against the true parameters of an emulated bench, compared with the stated errors.

For tests, benchmarks and ``lumion-calibrate report --bench`` only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.fit.bound import Bound, plan_bound
from calibration.measure.design import IncrementalSettings
from calibration.model.arrays import Real
from calibration.model.gauge import (
    common_phase_rad,
    gauge_fixed_difference,
    illuminated_loop_basis,
    visible_combinations,
    wrapped,
)
from calibration.model.heating import HEAT_GROUPS, Heating
from calibration.model.mesh_model import MeshModel
from calibration.model.nominal_heaters import NominalHeaters
from calibration.model.observations import NoiseModel, Observations
from calibration.model.parameters import MeshParameters
from calibration.model.priors import FREE_WITH_MODULES, default_prior
from calibration.model.space import ParameterSpace, space_from_record
from calibration.record.conversion import covariance_from_record, parameters_from_record
from calibration.report.hidden_truth import compare, heat_phases_rad, true_parameters
from calibration.report.numbers import Metric
from lumion_hw.bench.bench import Bench
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.record.calibration_record import CalibrationRecord

Complex = NDArray[np.complex128]

PUBLISHED_EXTINCTION_DB = 44.0
"""Best published extinction of such a PUC (Sánchez-Jácome 2025)."""
_SETTINGS_PER_SOURCE = 40
# Noise of the readings, relative to each and to the largest, and the sum of squared changes below which two signs look
# the same (three standard deviations).
_NOISE, _NOISE_FLOOR, _MAX_SIGN_CHI2 = 1e-3, 1e-6, 9.0
_STEP_SIGMA = 0.1
_LAW_POINTS = 8  # phases per turn at which laws are compared
_NO_COMMON_PHASE = 1e-6  # rounding errors are smaller


def project_out_common_phase(space: ParameterSpace) -> Real:
    """Return the projection that removes the phase common to all PUCs from L loop phases, shape ``(L, L)``.

    Nothing is removed where all interfering paths have equally many PUCs, or where light shows no loop.
    """
    common = _common_direction(space)
    length = float(np.linalg.norm(common))
    common = common / length if length > _NO_COMMON_PHASE else np.zeros(len(common))
    return np.eye(len(common)) - np.outer(common, common)


def _common_direction(space: ParameterSpace) -> Real:
    """Return the same phase on every joint as loop parameters with light, shape ``(L,)``."""
    common: Real = space.directions.T @ np.ones(len(space.mesh.joints))
    common[space.n_illuminated_loops :] = 0.0
    return common


@dataclass(frozen=True)
class GroupErrors:
    """True errors of a group of parameters beside the stated ones.

    Attributes:
        error: Shape ``(n,)``; fitted minus true values.
        covariance: Shape ``(n, n)``; stated.
    """

    error: Real
    covariance: Real

    @property
    def normalised(self) -> Real:
        """True errors over stated standard errors, shape ``(n,)``."""
        return self.error / np.sqrt(np.diag(self.covariance))

    @property
    def ratio(self) -> float:
        """Rms of the true errors over the stated standard errors."""
        return _rms(self.normalised)

    def drawn_ratios(self, draws: int, rng: np.random.Generator) -> Real:
        """Return such ratios of errors drawn from the stated covariance, shape ``(draws,)``."""
        sigma = np.sqrt(np.diag(self.covariance))
        weights = np.linalg.eigvalsh(self.covariance / np.outer(sigma, sigma)).clip(0.0)
        squares: Real = rng.chisquare(1.0, (draws, len(weights))) @ weights
        return np.sqrt(squares / len(weights))


def phase_errors(
    bench: Bench, record: CalibrationRecord, truth: MeshParameters
) -> tuple[dict[str, Real], dict[str, float]]:
    """Return the true errors over the stated errors by parameter group, and the phase errors in mrad."""
    groups, figures = group_errors(bench, record, truth)
    return {name: group.normalised for name, group in groups.items()}, figures


def group_errors(
    bench: Bench, record: CalibrationRecord, truth: MeshParameters
) -> tuple[dict[str, GroupErrors], dict[str, float]]:
    """Return the true and stated errors by parameter group, and the phase errors in mrad."""
    space, parameters = space_from_record(record), parameters_from_record(record)
    covariance = covariance_from_record(record)
    error = space.pack(parameters) - space.pack(truth)
    passive, loops = space.groups["passive_phase_rad"], space.groups["loops"]
    error[passive] = wrapped(error[passive])
    # Mean frequency and temperature turn all loops equally; this is not an error of the mesh parameters.
    joints = parameters.joint_phase_rad - truth.joint_phase_rad
    lit = illuminated_loop_basis(space.mesh, space.entries, tuple(space.monitors))
    common_rad = common_phase_rad(space.mesh, joints, lit)
    error[loops] = space.directions.T @ gauge_fixed_difference(space.mesh, joints - common_rad, lit)
    fixed = project_out_common_phase(space)
    common = error[loops] - fixed @ error[loops] + common_rad * _common_direction(space)
    error[loops] = fixed @ error[loops]
    covariance[loops, loops] = fixed @ covariance[loops, loops] @ fixed
    for name in ("coupler_common_rad", "coupler_difference_rad"):
        fitted, true = getattr(parameters, name), getattr(truth, name)
        is_unsigned = _is_unsigned(record, truth, name, np.flatnonzero(fitted * true < 0.0))
        error[space.groups[name]] = np.where(is_unsigned, np.abs(fitted) - np.abs(true), fitted - true)
    groups = {
        name: GroupErrors(error[space.groups[name]], covariance[space.groups[name], space.groups[name]])
        for name in ("passive_phase_rad", "loops", "loss_db", "coupler_common_rad", "coupler_difference_rad")
    }
    groups["law"] = _law_errors(bench, record, covariance)
    figures = {
        "passive_mrad": 1e3 * _rms(error[passive]),
        "passive_worst_mrad": 1e3 * float(np.abs(error[passive]).max()),
        "loops_mrad": 1e3 * _rms(error[loops][: max(space.n_illuminated_loops, 1)]),
        "common_mrad": 1e3 * _rms(common),
    }
    return {name: _stated(group) for name, group in groups.items()}, figures


def _stated(group: GroupErrors) -> GroupErrors:
    """Return the parameters of a group that have a stated error."""
    has_error = np.flatnonzero(np.diag(group.covariance) > 0.0)
    return GroupErrors(group.error[has_error], group.covariance[np.ix_(has_error, has_error)])


def _is_unsigned(
    record: CalibrationRecord, truth: MeshParameters, name: str, pucs: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether the light at the monitors is the same if the coupler angle of a PUC has the other sign.

    Example: if the light of a PUC's bar path meets no other light, only the square of its mean coupler angle matters.
    ``name`` is the group of the angle. The result, shape ``(n_pucs,)``, is false for all PUCs except ``pucs``.
    """
    space = space_from_record(record)
    result = np.zeros(space.mesh.n_pucs, np.bool_)
    if not len(pucs):
        return result
    model = _basic_model(record)
    max_ma = CalibratedMesh.from_record(record).max_ma
    settings = IncrementalSettings(max_ma, space.sources, space.monitors).random(
        _SETTINGS_PER_SOURCE * len(space.sources), np.random.default_rng(0)
    )
    vector = space.pack(truth)
    readings_ma = model.predict(space.unpack(vector), settings)
    sigma_ma = np.hypot(_NOISE * readings_ma, _NOISE_FLOOR * readings_ma.max())
    for puc in pucs:
        reversed_one = vector.copy()
        reversed_one[space.groups[name].start + puc] *= -1.0
        change_ma = model.predict(space.unpack(reversed_one), settings) - readings_ma
        result[puc] = ((change_ma / sigma_ma) ** 2).sum() < _MAX_SIGN_CHI2
    return result


def _basic_model(record: CalibrationRecord) -> MeshModel:
    space = space_from_record(record)
    return MeshModel(space.mesh, space.sources, space.monitors, record.heater_ohm, seconds=space.seconds)


def _law_errors(bench: Bench, record: CalibrationRecord, covariance: Real) -> GroupErrors:
    """Return the errors of the phases of all heaters whose phase light shows, at each eighth of a turn that they reach.

    Each heater is driven alone. Quarter turns are too few: with a reach of 1.1 turns, the residual of any smooth law
    after a fit of three terms is nearly zero at most of them.
    """
    calibrated, space = CalibratedMesh.from_record(record), space_from_record(record)
    weights = visible_combinations(space.mesh, space.entries, space.monitors)
    targets_rad = np.arange(1, _LAW_POINTS + 1) * 2.0 * np.pi / _LAW_POINTS
    drives_ma = np.array(
        [calibrated.currents_ma(np.where(calibrated.reach_rad > target, target, 0.0)) for target in targets_rad]
    )
    at, heaters = np.nonzero((drives_ma > 0.0) & weights.any(axis=1))
    single_ma = np.zeros((len(heaters), len(weights)))
    single_ma[np.arange(len(heaters)), heaters] = drives_ma[at, heaters]
    heating = Heating(space.mesh, record.heater_ohm, record.heater_channels)

    def visible_rad(vector: Real) -> Real:
        heated = heating.phases(space.unpack(vector), single_ma)
        visible: Real = (weights[heaters] * np.hstack([heated.arm_rad, heated.joint_rad])).sum(axis=1)
        return visible

    vector, sigma = space.pack(parameters_from_record(record)), np.sqrt(np.diag(covariance))
    slopes = np.zeros((len(heaters), space.size))
    heat = space.mask(name for name in HEAT_GROUPS if name in space.groups)
    for number in np.flatnonzero(heat & (sigma > 0.0)):
        step = np.zeros(space.size)
        step[number] = _STEP_SIGMA * sigma[number]
        slopes[:, number] = (visible_rad(vector + step) - visible_rad(vector - step)) / (2.0 * step[number])
    true_rad = [
        weights[heater] @ heat_phases_rad(bench, own_ma) for own_ma, heater in zip(single_ma, heaters, strict=True)
    ]
    return GroupErrors(visible_rad(vector) - true_rad, slopes @ covariance @ slopes.T)


def settings_bound(bench: Bench, record: CalibrationRecord, truth: MeshParameters, fitted: Observations) -> Bound:
    """Return the Cramér-Rao bound of the fitted settings with all parameters free."""
    model = _basic_model(record)
    floor_ma = 1e-6 * bench.mesh.responsivity_a_per_w  # -60 dBm
    noise = NoiseModel(0.005, float(np.hypot(floor_ma, bench.mesh.monitor_step_ma / np.sqrt(12.0))))
    typical = bench.model.mesh_section.typical
    heaters = NominalHeaters(record.heater_ohm, typical.p_pi_min_mw, typical.p_pi_max_mw)
    prior = default_prior(model.space, truth, heaters, typical.puc_loss_db)
    prior = prior.anchored("source_detuning_hz", model.space, 1e5)
    return plan_bound(model, truth, fitted, noise, prior, FREE_WITH_MODULES)


def phase_bounds_mrad(space: ParameterSpace, bound: Real) -> dict[str, float]:
    """Return the smallest possible rms errors of passive and loop phases, in mrad."""
    fixed = project_out_common_phase(space)
    loops = fixed @ bound[space.groups["loops"], space.groups["loops"]] @ fixed
    passive = np.diag(bound)[space.groups["passive_phase_rad"]]
    return {
        "passive_bound_mrad": 1e3 * float(np.sqrt(passive.mean())),
        "loops_bound_mrad": 1e3 * float(np.sqrt(np.diag(loops).mean())),
    }


def extinctions(bench: Bench, record: CalibrationRecord) -> dict[str, float]:
    """Return how far the extinction ratios of all states are below those that the couplers allow.

    ``extinction_short_db`` is the largest difference, with allowed values limited to the best published one;
    ``extinction_within_1_db`` is the fraction of states within 1 dB.
    """
    report = compare(bench, record)
    allowed, reached = report.allowed_db, report.extinction_db
    return {
        "extinction_short_db": float((np.minimum(allowed, PUBLISHED_EXTINCTION_DB) - reached).max()),
        "extinction_within_1_db": float((allowed - reached <= 1.0).mean()),
        "extinction_least_db": float(reached.min()),
    }


def _rms(values: Real) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


_EXPECTED_RATIO = "1 if the stated standard errors are correct; 0.8 to 1.3 over many seeds"
_NORMALISED = {
    "passive_phase_rad": "passive phases",
    "loops": "loop phases",
    "loss_db": "losses",
    "coupler_common_rad": "couplers, mean angle",
    "coupler_difference_rad": "couplers, difference of angles",
    "law": "heater laws, at each eighth of a turn",
}


def truth_metrics(bench: Bench, record: CalibrationRecord, fitted: Observations | None = None) -> list[Metric]:
    """Return the errors of a record against the true parameters; all PUCs are set to bar, then to cross.

    ``fitted`` are the fitted settings, for a comparison with the Cramér-Rao bound (smallest possible errors).

    Raises:
        ConfigError: The bench is not emulated.
        CalibrationError: The record has no covariance, or its crosstalk is not a function of distance.
    """
    truth = true_parameters(bench, record)
    normalised, phases = phase_errors(bench, record, truth)
    bounds: dict[str, float] = {}
    if fitted is not None:
        bound = settings_bound(bench, record, truth, fitted)
        bounds = phase_bounds_mrad(bound.space, bound.covariance())
    short = extinctions(bench, record)
    loss_db = _rms(compare(bench, record).loss_error_db)
    gauge = "modulo a turn; without a phase common to all loops"
    return [
        Metric("passive phases, error, rms", phases["passive_mrad"], "mrad", 3.0, note=gauge),
        Metric("passive phases, error, worst", phases["passive_worst_mrad"], "mrad"),
        Metric("loop phases, error, rms per loop", phases["loops_mrad"], "mrad", 3.0, note=gauge),
        *(
            Metric(
                f"{quantity}, error divided by Cramér-Rao bound",
                phases[f"{name}_mrad"] / bounds[f"{name}_bound_mrad"],
                "",
                3.0,
                note=f"bound of these settings: {bounds[f'{name}_bound_mrad']:.3g} mrad",
            )
            for name, quantity in (("passive", "passive phases"), ("loops", "loop phases"))
            if bounds
        ),
        Metric("losses, error, rms", loss_db, "dB"),
        Metric(
            "extinction shortfall against the couplers (up to 44 dB), worst", short["extinction_short_db"], "dB", 1.0
        ),
        *(
            Metric(f"{quantity}, error divided by standard error, rms", _rms(values), note=_EXPECTED_RATIO)
            for name, quantity in _NORMALISED.items()
            if len(values := normalised[name])
        ),
    ]
