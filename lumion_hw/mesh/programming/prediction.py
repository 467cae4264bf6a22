"""Predict the accuracy of programmed currents from the uncertainties in a calibration record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.waves.adjoint import CellGradient, gradient
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.scattering import Solver
from lumion_hw.quantities import frequency_hz_from_wavelength_m

Real = NDArray[np.float64]

COVARIANCE_FACTOR = "covariance_factor"
"""Name of the record array with the factor F of the covariance F·Fᵀ."""
LOOP_DIRECTIONS = "loop_directions"
"""Name of the record array that converts the N_loop observable sums of joint phases to the phases of the J joints.

A joint is a waveguide between PUCs; sums run around closed paths. Shape ``(J, N_loop)``.
"""

_LAW_TERMS = ("rho2", "rho4", "rho6")


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicted state of the PUCs; NaN where the phase without heat is unknown.

    Attributes:
        differential_rad: Shape ``(n_pucs,)``; phase of the upper arm minus the lower arm, -π … π.
        differential_sigma_rad: Shape ``(n_pucs,)``; standard error of this phase, including rounding of currents.
        coupling: Shape ``(n_pucs,)``; fraction of power to the cross output.
        coupling_sigma: Shape ``(n_pucs,)``; standard error of the coupling, to first order.
        extinction_db: Shape ``(n_pucs,)``; power ratio of the stronger to the weaker output.
    """

    differential_rad: Real
    differential_sigma_rad: Real
    coupling: Real
    coupling_sigma: Real
    extinction_db: Real


@dataclass(frozen=True)
class PathPrediction:
    """Predicted transmission between two ports in dB, and its standard error."""

    transmission_db: float
    sigma_db: float


def predict_pucs(calibrated: CalibratedMesh, currents_ma: Real, dac_step_ma: float = 0.0) -> Prediction:
    """Return the predicted state of every PUC at given heater currents.

    Without a covariance in the record, standard errors include only errors of the phases without heat. ``dac_step_ma``
    is the current step of the DAC; 0 if currents are not rounded.
    """
    cells = calibrated.cells(currents_ma)
    unknown = np.isnan(calibrated.passive_rad)
    # A PUC without a known passive phase has no predicted state at all.
    differential = np.where(unknown, np.nan, cells.phase_upper - cells.phase_lower)
    differential = (differential + np.pi) % (2.0 * np.pi) - np.pi
    sigma = np.hypot(
        _phase_sigma_rad(calibrated, currents_ma), _rounding_sigma_rad(calibrated, currents_ma, dac_step_ma)
    )
    common, half = _coupler_angles(calibrated)
    # Each output is the sum of two amplitudes, one per arm; unequal arm losses leave more light in a null.
    tilt = 10.0 ** (-np.asarray(cells.arm_difference_db) / 40.0)
    designed = calibrated.mesh.coupler_angles_rad
    first, second = designed[0] + common + half, designed[1] + common - half
    crossing = np.cos(second) * np.sin(first) / tilt, np.sin(second) * np.cos(first) * tilt
    largest, smallest = (crossing[0] + crossing[1]) ** 2, (crossing[0] - crossing[1]) ** 2
    coupling = largest * np.cos(differential / 2) ** 2 + smallest * np.sin(differential / 2) ** 2
    slope = 0.5 * (largest - smallest) * np.abs(np.sin(differential))
    # Mean of cos² over a small phase error. This second-order term is the only one at a null.
    bend = -0.25 * (largest - smallest) * np.cos(differential) * np.nan_to_num(sigma) ** 2
    passing = np.cos(second) * np.cos(first) * tilt, np.sin(second) * np.sin(first) / tilt
    through = passing[0] ** 2 + passing[1] ** 2 - 2.0 * passing[0] * passing[1] * np.cos(differential)
    weaker = np.minimum(coupling + bend, through - bend)
    # The floor of 150 dB keeps a perfect null from giving an infinite ratio.
    extinction = 10.0 * np.log10((coupling + through - weaker) / np.maximum(weaker, 1e-15))
    return Prediction(differential, sigma, coupling, slope * sigma, extinction)


def predict_path(
    calibrated: CalibratedMesh,
    currents_ma: Real,
    source: int,
    port: int,
    *,
    solver: Solver | None = None,
    wavelength_nm: float | None = None,
) -> PathPrediction:
    """Return the predicted power from one port to another.

    Args:
        calibrated: The calibrated mesh.
        currents_ma: Shape ``(2 n_pucs,)``.
        source: Port where the light enters.
        port: Port where the light leaves.
        solver: Solver of the mesh, if one exists already.
        wavelength_nm: Wavelength of the light, by default that of the record. The standard error does not include
            dispersion.

    Raises:
        LimitError: The record is not valid at this wavelength.
    """
    solver = solver or Solver(calibrated.mesh)
    frequency_hz = None if wavelength_nm is None else frequency_hz_from_wavelength_m(wavelength_nm * 1e-9)
    cells = calibrated.cells(currents_ma, frequency_hz)
    at_hz = cells.reference_hz if frequency_hz is None else frequency_hz
    field = solver.solve(cells, at_hz, [source])
    power = float(np.abs(field[port, 0]) ** 2)
    cotangent = np.zeros_like(field)
    # P = |field|², so dP = Re(2 field* · dfield).
    cotangent[port, 0] = 2.0 * field[port, 0].conj()
    derivatives = gradient(solver, cells, at_hz, cotangent, [source])
    # d(10 log₁₀ P) = (10 / ln 10) dP / P.
    per_db = 10.0 / np.log(10.0) / power
    return PathPrediction(
        10.0 * float(np.log10(power)), per_db * _power_sigma(calibrated, cells, currents_ma, derivatives)
    )


def sample_cells(calibrated: CalibratedMesh, currents_ma: Real, count: int, seed: int = 0) -> UnitCells:
    """Return ``count`` random sets of unit cells at given currents, drawn from the covariance in the record.

    Without a covariance, phases without heat and losses are drawn from their own standard errors. Crosstalk is not
    varied.
    """
    errors = _sample_errors(calibrated, count, np.random.default_rng(seed))
    cells, n_pucs = calibrated.cells(currents_ma), len(calibrated.passive_rad)
    arms = np.zeros((count, 2 * n_pucs))
    for term, name in enumerate(_LAW_TERMS):
        arms += errors.get(name, 0.0) * currents_ma ** (2 * (term + 1))
    common = errors.get("coupler_common_rad", np.zeros((count, n_pucs)))
    half = 0.5 * errors.get("coupler_difference_rad", np.zeros((count, n_pucs)))
    first, second = (np.arcsin(np.sqrt(eta)) for eta in (cells.eta_in, cells.eta_out))
    joints = cells.joint_phase
    directions = calibrated.record.arrays.get(LOOP_DIRECTIONS)
    if directions is not None and "loops" in errors:
        joints = joints + errors["loops"] @ directions.T
    return replace(
        cells,
        # A PUC with gain would amplify light that circulates.
        loss_db=np.maximum(cells.loss_db + errors.get("loss_db", 0.0), 0.0),
        eta_in=np.sin(first + common + half) ** 2,
        eta_out=np.sin(second + common - half) ** 2,
        phase_upper=cells.phase_upper + errors.get("passive_phase_rad", 0.0) + arms[:, 0::2],
        phase_lower=cells.phase_lower + arms[:, 1::2],
        joint_phase=joints,
    )


def _sample_errors(calibrated: CalibratedMesh, count: int, rng: np.random.Generator) -> dict[str, Real]:
    entry, factor = calibrated.record.covariance, calibrated.record.arrays.get(COVARIANCE_FACTOR)
    if entry is None or factor is None:
        phase = [puc.passive_phase_sigma_rad or 0.0 for puc in calibrated.record.pucs]
        loss = [puc.loss_sigma_db for puc in calibrated.record.pucs]
        sigmas = {"passive_phase_rad": np.array(phase), "loss_db": np.array(loss)}
        return {name: sigma * rng.standard_normal((count, len(sigma))) for name, sigma in sigmas.items()}
    # Independent normal numbers times the factor have the covariance F·Fᵀ.
    errors = rng.standard_normal((count, factor.shape[1])) @ np.asarray(factor, dtype=np.float64).T
    return {name: errors[:, rows] for name, _ in entry.groups if (rows := entry.rows_of(name)) is not None}


def _coupler_angles(calibrated: CalibratedMesh) -> tuple[Real, Real]:
    couplers = [calibrated.coupler(puc) for puc in range(len(calibrated.passive_rad))]
    common = np.array([coupler.common_rad for coupler in couplers])
    return common, 0.5 * np.array([coupler.difference_rad for coupler in couplers])


def _phase_sigma_rad(calibrated: CalibratedMesh, currents_ma: Real) -> Real:
    entry, factor = calibrated.record.covariance, calibrated.record.arrays.get(COVARIANCE_FACTOR)
    rows = None if entry is None or factor is None else entry.rows_of("passive_phase_rad")
    if entry is None or factor is None or rows is None:
        sigma = [puc.passive_phase_sigma_rad for puc in calibrated.record.pucs]
        return np.array([np.nan if value is None else value for value in sigma])
    factor_rows = np.array(factor[rows], dtype=np.float64)
    for term, name in enumerate(_LAW_TERMS):
        law = entry.rows_of(name)
        if law is not None:
            # Upper minus lower arm, as in the phase itself, so that common errors of both laws cancel.
            moved = factor[law] * (currents_ma ** (2 * (term + 1)))[:, None]
            factor_rows += moved[0::2] - moved[1::2]
    sigma_rad: Real = np.sqrt((factor_rows**2).sum(axis=1))
    return np.where(np.isnan(calibrated.passive_rad), np.nan, sigma_rad)


def _rounding_sigma_rad(calibrated: CalibratedMesh, currents_ma: Real, dac_step_ma: float) -> Real:
    # dφ/dI = dφ/dI² · 2 I; a uniform error over one step has a standard deviation of 1/√12 steps.
    per_ma = calibrated.own_slope_rad_per_ma2(currents_ma) * 2.0 * currents_ma
    sigma: Real = np.hypot(per_ma[0::2], per_ma[1::2]) * dac_step_ma / np.sqrt(12.0)
    return sigma


def _power_sigma(calibrated: CalibratedMesh, cells: UnitCells, currents_ma: Real, derivatives: CellGradient) -> float:
    record = calibrated.record
    entry, factor = record.covariance, record.arrays.get(COVARIANCE_FACTOR)
    if entry is None or factor is None:
        phase = np.nan_to_num(_phase_sigma_rad(calibrated, currents_ma))
        loss = np.array([puc.loss_sigma_db for puc in record.pucs])
        return float(
            np.sqrt(((derivatives.phase_upper * phase) ** 2).sum() + ((derivatives.loss_db * loss) ** 2).sum())
        )
    total = np.zeros(factor.shape[1])
    for name, slope in _slopes(calibrated, cells, currents_ma, derivatives).items():
        rows = entry.rows_of(name)
        if rows is not None:
            # The variance is |Fᵀ·slope|², because the covariance is F·Fᵀ.
            total += slope @ factor[rows]
    return float(np.sqrt((total**2).sum()))


def _slopes(
    calibrated: CalibratedMesh, cells: UnitCells, currents_ma: Real, derivatives: CellGradient
) -> Mapping[str, Real]:
    arms = np.stack([derivatives.phase_upper, derivatives.phase_lower], axis=-1).reshape(-1)
    # dη = sin 2a · da = 2 √(η (1 - η)) da
    first, second = (
        # A waveguide without a coupler has no coupler angle.
        np.where((eta > 0.0) & (eta < 1.0), derivative * 2.0 * np.sqrt(eta * (1.0 - eta)), 0.0)
        for derivative, eta in ((derivatives.eta_in, cells.eta_in), (derivatives.eta_out, cells.eta_out))
    )
    slopes = {
        "passive_phase_rad": derivatives.phase_upper,
        "loss_db": derivatives.loss_db,
        "coupler_common_rad": first + second,
        "coupler_difference_rad": 0.5 * (first - second),
    }
    slopes |= {name: arms * currents_ma ** (2 * (term + 1)) for term, name in enumerate(_LAW_TERMS)}
    directions = calibrated.record.arrays.get(LOOP_DIRECTIONS)
    if directions is not None:
        slopes["loops"] = derivatives.joint_phase @ directions
    return slopes
