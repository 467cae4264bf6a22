"""How well programmed currents will do, from what a record knows of its own uncertainty."""

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
"""Array of a record: F of the covariance F·Fᵀ, rows by ``CovarianceEntry.groups``."""
LOOP_DIRECTIONS = "loop_directions"
"""Array of a record: shape ``(J, N_loop)``; joint phases of the coordinates called ``loops``."""

_LAW_TERMS = ("rho2", "rho4", "rho6")


@dataclass(frozen=True, eq=False)
class Prediction:
    """What PUCs should do at given currents; NaN where the record knows no passive phase.

    Attributes:
        differential_rad: Shape ``(E,)``; φu - φl, -π … π.
        differential_sigma_rad: Shape ``(E,)``; its standard error, rounding of currents included.
        coupling: Shape ``(E,)``; power to the cross output.
        coupling_sigma: Shape ``(E,)``; its standard error to first order.
        extinction_db: Shape ``(E,)``; stronger over weaker output, by couplers and expected phase error.
    """

    differential_rad: Real
    differential_sigma_rad: Real
    coupling: Real
    coupling_sigma: Real
    extinction_db: Real


@dataclass(frozen=True)
class PathPrediction:
    """Power between two ports.

    Attributes:
        transmission_db: Power leaving over power entering the mesh.
        sigma_db: Its standard error.
    """

    transmission_db: float
    sigma_db: float


def predict_pucs(known: CalibratedMesh, currents_ma: Real, dac_step_ma: float = 0.0) -> Prediction:
    """Return what every PUC should do.

    The standard errors come from the covariance of passive phases and heater laws if the record holds it, else from
    the passive phases alone.

    Args:
        known: The mesh as a record knows it.
        currents_ma: Shape ``(2E,)``.
        dac_step_ma: Step of the currents, if they are rounded.
    """
    cells = known.cells(currents_ma)
    unknown = np.isnan(known.passive_rad)
    differential = np.where(unknown, np.nan, cells.phase_upper - cells.phase_lower)
    differential = (differential + np.pi) % (2.0 * np.pi) - np.pi
    sigma = np.hypot(_phase_sigma_rad(known, currents_ma), _rounding_sigma_rad(known, currents_ma, dac_step_ma))
    common, half = _coupler_angles(known)
    # Either output adds up two amplitudes, by way of either arm; arms that lose differently leave more in a null.
    tilt = 10.0 ** (-np.asarray(cells.arm_difference_db) / 40.0)
    first, second = np.pi / 4.0 + common + half, np.pi / 4.0 + common - half
    crossing = np.cos(second) * np.sin(first) / tilt, np.sin(second) * np.cos(first) * tilt
    most, least = (crossing[0] + crossing[1]) ** 2, (crossing[0] - crossing[1]) ** 2
    coupling = most * np.cos(differential / 2) ** 2 + least * np.sin(differential / 2) ** 2
    slope = 0.5 * (most - least) * np.abs(np.sin(differential))
    # The mean of cos² over a small phase error: second order, which is all there is at a null.
    bend = -0.25 * (most - least) * np.cos(differential) * np.nan_to_num(sigma) ** 2
    passing = np.cos(second) * np.cos(first) * tilt, np.sin(second) * np.sin(first) / tilt
    through = passing[0] ** 2 + passing[1] ** 2 - 2.0 * passing[0] * passing[1] * np.cos(differential)
    weaker = np.minimum(coupling + bend, through - bend)
    extinction = 10.0 * np.log10((coupling + through - weaker) / np.maximum(weaker, 1e-15))
    return Prediction(differential, sigma, coupling, slope * sigma, extinction)


def predict_path(
    known: CalibratedMesh,
    currents_ma: Real,
    source: int,
    port: int,
    *,
    solver: Solver | None = None,
    wavelength_nm: float | None = None,
) -> PathPrediction:
    """Return the power from one port to another, by the whole mesh and not by the path alone.

    Args:
        known: The mesh as a record knows it.
        currents_ma: Shape ``(2E,)``.
        source: Port where the light enters.
        port: Port where it leaves.
        solver: Solver of the mesh, if there is one already.
        wavelength_nm: Wavelength of the light, if it is not that of the record. What dispersion adds to the standard
            error is left out.

    Raises:
        LimitError: The record does not hold for this wavelength.
    """
    solver = solver or Solver(known.mesh)
    frequency_hz = None if wavelength_nm is None else frequency_hz_from_wavelength_m(wavelength_nm * 1e-9)
    cells = known.cells(currents_ma, frequency_hz)
    at_hz = cells.reference_hz if frequency_hz is None else frequency_hz
    field = solver.solve(cells, at_hz, [source])
    power = float(np.abs(field[port, 0]) ** 2)
    cotangent = np.zeros_like(field)
    cotangent[port, 0] = 2.0 * field[port, 0].conj()
    by = gradient(solver, cells, at_hz, cotangent, [source])
    per_db = 10.0 / np.log(10.0) / power
    return PathPrediction(10.0 * float(np.log10(power)), per_db * _power_sigma(known, cells, currents_ma, by))


def sample_cells(known: CalibratedMesh, currents_ma: Real, count: int, seed: int = 0) -> UnitCells:
    """Return what the mesh may be at given currents: so many samples from the covariance of the record.

    Without a covariance passive phases and losses are drawn by their own standard errors. Crosstalk is taken as known.

    Args:
        known: The mesh as a record knows it.
        currents_ma: Shape ``(2E,)``.
        count: Number of samples.
        seed: Seed of the draws.
    """
    off = _drawn(known, count, np.random.default_rng(seed))
    cells, n_pucs = known.cells(currents_ma), len(known.passive_rad)
    arms = np.zeros((count, 2 * n_pucs))
    for term, name in enumerate(_LAW_TERMS):
        arms += off.get(name, 0.0) * currents_ma ** (2 * (term + 1))
    common = off.get("coupler_common_rad", np.zeros((count, n_pucs)))
    half = 0.5 * off.get("coupler_difference_rad", np.zeros((count, n_pucs)))
    first, second = (np.arcsin(np.sqrt(eta)) for eta in (cells.eta_in, cells.eta_out))
    joints = cells.joint_phase
    directions = known.record.arrays.get(LOOP_DIRECTIONS)
    if directions is not None and "loops" in off:
        joints = joints + off["loops"] @ directions.T
    return replace(
        cells,
        loss_db=np.maximum(cells.loss_db + off.get("loss_db", 0.0), 0.0),
        eta_in=np.sin(first + common + half) ** 2,
        eta_out=np.sin(second + common - half) ** 2,
        phase_upper=cells.phase_upper + off.get("passive_phase_rad", 0.0) + arms[:, 0::2],
        phase_lower=cells.phase_lower + arms[:, 1::2],
        joint_phase=joints,
    )


def _drawn(known: CalibratedMesh, count: int, rng: np.random.Generator) -> dict[str, Real]:
    """Return errors of parameters by group, each of shape ``(count, n)``."""
    entry, factor = known.record.covariance, known.record.arrays.get(COVARIANCE_FACTOR)
    if entry is None or factor is None:
        phase = [puc.passive_phase_sigma_rad or 0.0 for puc in known.record.pucs]
        loss = [puc.loss_sigma_db for puc in known.record.pucs]
        sigmas = {"passive_phase_rad": np.array(phase), "loss_db": np.array(loss)}
        return {name: sigma * rng.standard_normal((count, len(sigma))) for name, sigma in sigmas.items()}
    off = rng.standard_normal((count, factor.shape[1])) @ np.asarray(factor, dtype=np.float64).T
    return {name: off[:, place] for name, _ in entry.groups if (place := entry.rows_of(name)) is not None}


def _coupler_angles(known: CalibratedMesh) -> tuple[Real, Real]:
    """Return the common part of the coupler angles and half their difference."""
    couplers = [known.coupler(puc) for puc in range(len(known.passive_rad))]
    common = np.array([coupler.common_rad for coupler in couplers])
    return common, 0.5 * np.array([coupler.difference_rad for coupler in couplers])


def _phase_sigma_rad(known: CalibratedMesh, currents_ma: Real) -> Real:
    """Return the standard error of every differential phase, heater laws included."""
    entry, factor = known.record.covariance, known.record.arrays.get(COVARIANCE_FACTOR)
    place = None if entry is None or factor is None else entry.rows_of("passive_phase_rad")
    if entry is None or factor is None or place is None:
        sigma = [puc.passive_phase_sigma_rad for puc in known.record.pucs]
        return np.array([np.nan if value is None else value for value in sigma])
    rows = np.array(factor[place], dtype=np.float64)
    for term, name in enumerate(_LAW_TERMS):
        law = entry.rows_of(name)
        if law is not None:
            # Upper arm minus lower, like the phase itself: what their laws have in common cancels.
            moved = factor[law] * (currents_ma ** (2 * (term + 1)))[:, None]
            rows += moved[0::2] - moved[1::2]
    sigma_rad: Real = np.sqrt((rows**2).sum(axis=1))
    return np.where(np.isnan(known.passive_rad), np.nan, sigma_rad)


def _rounding_sigma_rad(known: CalibratedMesh, currents_ma: Real, dac_step_ma: float) -> Real:
    """Return the standard deviation of every differential phase by rounding of currents, uniform over a step."""
    # dφ/dI = dφ/dI² · 2 I; a step is spread evenly, with a standard deviation of 1/√12 of it.
    per_ma = known.own_slope_rad_per_ma2(currents_ma) * 2.0 * currents_ma
    sigma: Real = np.hypot(per_ma[0::2], per_ma[1::2]) * dac_step_ma / np.sqrt(12.0)
    return sigma


def _power_sigma(known: CalibratedMesh, cells: UnitCells, currents_ma: Real, by: CellGradient) -> float:
    """Return the standard error of a power whose derivatives are given."""
    record = known.record
    entry, factor = record.covariance, record.arrays.get(COVARIANCE_FACTOR)
    if entry is None or factor is None:
        phase = np.nan_to_num(_phase_sigma_rad(known, currents_ma))
        loss = np.array([puc.loss_sigma_db for puc in record.pucs])
        return float(np.sqrt(((by.phase_upper * phase) ** 2).sum() + ((by.loss_db * loss) ** 2).sum()))
    total = np.zeros(factor.shape[1])
    for name, slope in _slopes(known, cells, currents_ma, by).items():
        place = entry.rows_of(name)
        if place is not None:
            total += slope @ factor[place]
    return float(np.sqrt((total**2).sum()))


def _slopes(known: CalibratedMesh, cells: UnitCells, currents_ma: Real, by: CellGradient) -> Mapping[str, Real]:
    """Return the derivatives by the groups of a covariance."""
    arms = np.stack([by.phase_upper, by.phase_lower], axis=-1).reshape(-1)
    # dη = sin 2a · da = 2 √(η (1 - η)) da
    first = by.eta_in * 2.0 * np.sqrt(cells.eta_in * (1.0 - cells.eta_in))
    second = by.eta_out * 2.0 * np.sqrt(cells.eta_out * (1.0 - cells.eta_out))
    slopes = {
        "passive_phase_rad": by.phase_upper,
        "loss_db": by.loss_db,
        "coupler_common_rad": first + second,
        "coupler_difference_rad": 0.5 * (first - second),
    }
    slopes |= {name: arms * currents_ma ** (2 * (term + 1)) for term, name in enumerate(_LAW_TERMS)}
    directions = known.record.arrays.get(LOOP_DIRECTIONS)
    if directions is not None:
        slopes["loops"] = by.joint_phase @ directions
    return slopes
