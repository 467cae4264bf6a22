"""Program an N x N unitary as a rectangular interferometer on the hexagonal mesh.

The matrix is decomposed into mixers and phases (Clements 2016). Currents are then refined with the calibrated model of
the mesh, by the gradient of the fidelity.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError, LimitError
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.feedforward import FeedForwardBlock, find_block
from lumion_hw.mesh.programming.heater_currents import HeaterLimits, PucTarget, program_pucs, rounded_ma
from lumion_hw.mesh.programming.prediction import sample_cells
from lumion_hw.mesh.waves.adjoint import gradient
from lumion_hw.mesh.waves.scattering import Solver

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

# Two modes converge in about 55 rounds. Four and six modes use all 400; the fidelity is then 3e-8 and 4e-7 below 1.
_ROUNDS = 400
_NOT_UNITARY = 1e-9


@dataclass(frozen=True)
class Mixer:
    """One element of a rectangular interferometer: a phase on the first of two modes, then a mix of both.

    The matrix is [[sin θ, cos θ], [cos θ, -sin θ]] · diag(e^{-jφ}, 1) on modes ``mode`` and ``mode + 1``.

    Attributes:
        mode: First of the two modes.
        theta_rad: θ; π/2 keeps the modes apart, 0 swaps them.
        phase_rad: φ.
    """

    mode: int
    theta_rad: float
    phase_rad: float


@dataclass(frozen=True, eq=False)
class UnitarySetting:
    """A programmed unitary with its predicted quality.

    Attributes:
        block: Part of the mesh that is used.
        currents_ma: Heater currents, shape ``(2 n_pucs,)``.
        matrix: Shape ``(N, N)`` for N modes; predicted field from input to output, including losses.
        fidelity: Predicted fidelity |tr U†V|² / (N tr V†V) of ``matrix`` V for the requested unitary U.
        unrefined_fidelity: Predicted fidelity before the currents were refined.
        loss_db: Predicted mean loss from an input to all outputs.
    """

    block: FeedForwardBlock
    currents_ma: Real
    heat_mw: float
    matrix: Complex
    fidelity: float
    unrefined_fidelity: float
    loss_db: float


def fidelity(wanted: Complex, matrix: Complex) -> float:
    """Return the fidelity |tr U†V|² / (N tr V†V) of N x N matrices U (unitary) and V; 1 if they are proportional."""
    overlap, power = np.vdot(wanted, matrix), np.vdot(matrix, matrix).real
    return float(np.abs(overlap) ** 2 / (len(wanted) * power))


def fidelity_up_to_port_phases(wanted: Complex, matrix: Complex, rounds: int = 200) -> float:
    """Return the fidelity maximised over phases at inputs and outputs, which power meters cannot observe."""
    overlap = wanted.conj() * matrix
    best = 0.0
    # Optimising input and output phases alternately climbs to the nearest maximum, so start once from every input.
    for start in range(len(wanted)):
        at_output = np.exp(-1j * np.angle(overlap[:, start]))
        # With 30 rounds, up to 8e-6 of the fidelity is missing for four modes; with 200, nothing above rounding.
        for _ in range(rounds):
            at_input = np.exp(-1j * np.angle(at_output @ overlap))
            at_output = np.exp(-1j * np.angle(overlap @ at_input))
        best = max(best, fidelity(wanted, at_output[:, None] * matrix * at_input))
    return best


def decompose(unitary: Complex) -> tuple[tuple[Mixer, ...], Real]:
    """Decompose a unitary into mixers, in the order of the light, and output phases of shape ``(N,)``.

    U = diag(e^{-j·phases}) · (last mixer) ⋯ (first mixer), with N (N - 1) / 2 mixers.

    Raises:
        ConfigError: The matrix is not unitary.
    """
    n = len(unitary)
    # A copy, because the decomposition nulls its elements one by one.
    remainder = np.array(unitary, dtype=np.complex128)
    if remainder.shape != (n, n) or n < 1 or np.abs(remainder.conj().T @ remainder - np.eye(n)).max() > _NOT_UNITARY:
        raise ConfigError(
            "the matrix to program is not unitary", hint="Give a matrix U with U†U equal to the identity within 1e-9."
        )
    first: list[Mixer] = []
    last: list[Mixer] = []
    # Nulling the diagonals alternately from both sides gives the shallowest mesh (Clements 2016).
    for diagonal in range(1, n):
        for step in range(diagonal):
            if diagonal % 2:
                first.append(_null_from_right(remainder, n - 1 - step, diagonal - 1 - step))
            else:
                last.append(_null_from_left(remainder, n - diagonal + step, step))
    phases = -np.angle(np.diag(remainder))
    moved = []
    for mixer in reversed(last):
        # T†·D = D'·T' moves all phases to the outputs.
        m = mixer.mode
        moved.append(Mixer(m, mixer.theta_rad, float(phases[m] - phases[m + 1])))
        phases[m] = phases[m + 1] - mixer.phase_rad
    return (*first, *moved), phases


def _null_from_right(remainder: Complex, row: int, mode: int) -> Mixer:
    """Multiply ``remainder`` from the right by an inverse mixer so that element (row, mode) vanishes.

    Return the mixer.
    """
    a, b = remainder[row, mode], remainder[row, mode + 1]
    mixer = Mixer(mode, math.atan2(abs(b), abs(a)), float(np.pi + np.angle(b) - np.angle(a)))
    pair = remainder[:, mode : mode + 2]
    pair[:] = pair @ _matrix(mixer).conj().T
    return mixer


def _null_from_left(remainder: Complex, row: int, column: int) -> Mixer:
    """Multiply ``remainder`` from the left by a mixer so that element (row, column) vanishes; return the mixer."""
    a, b = remainder[row - 1, column], remainder[row, column]
    mixer = Mixer(row - 1, math.atan2(abs(a), abs(b)), float(np.angle(a) - np.angle(b)))
    pair = remainder[row - 1 : row + 1]
    pair[:] = _matrix(mixer) @ pair
    return mixer


def _matrix(mixer: Mixer) -> Complex:
    sine, cosine = math.sin(mixer.theta_rad), math.cos(mixer.theta_rad)
    matrix: Complex = np.array([[sine, cosine], [cosine, -sine]]) * np.array([np.exp(-1j * mixer.phase_rad), 1.0])
    return matrix


def block_targets(block: FeedForwardBlock, unitary: Complex) -> dict[int, PucTarget]:
    """Return the wanted phases of all PUCs for a unitary, assuming ideal couplers and waveguides without phase.

    Raises:
        ConfigError: The matrix is not unitary, its size differs from the block, or the block has too few columns.
    """
    if len(unitary) != block.n_modes:
        raise ConfigError(f"the matrix has {len(unitary)} modes, but the block has {block.n_modes}")
    mixers, out_phases = decompose(unitary)
    columns = len(block.mixers)
    theta: dict[int, float] = {}
    phase = np.zeros((columns + 1, block.n_modes))
    phase[columns] = out_phases
    # First column that each mode can still use: light meets mixers in the order of the decomposition.
    free = [0] * block.n_modes
    active = set()
    for mixer in mixers:
        m, column = mixer.mode, max(free[mixer.mode], free[mixer.mode + 1])
        # Two neighbouring modes meet only in every second column.
        while column < columns and block.mixer_of(column, m) is None:
            column += 1
        puc = block.mixer_of(column, m) if column < columns else None
        if puc is None:
            raise ConfigError(
                f"{block.n_modes} modes need more columns than mesh {block.mesh.label!r} has",
                hint=f"The mesh has {columns} columns of mixers; use a wider mesh or fewer modes.",
            )
        theta[puc] = mixer.theta_rad
        phase[column, m] += mixer.phase_rad
        active |= {(column, m), (column, m + 1)}
        free[m] = free[m + 1] = column + 1
    for column, row in enumerate(block.mixers):
        for mode, (_, lower) in enumerate(row):
            # Only a mode that is not mixed in this column; the mixers of the others include the sign.
            if lower and (column, mode) not in active:
                phase[column, mode] += math.pi  # the lower rail of a PUC in bar: its matrix is diag(1, -1)
    return _targets(block, theta, phase)


def _targets(block: FeedForwardBlock, theta: dict[int, float], phase: Real) -> dict[int, PucTarget]:
    quarter = 0.5 * math.pi
    targets = {}
    for mixers in block.mixers:
        for puc, _ in mixers:
            angle = theta.get(puc, quarter)
            targets[puc] = PucTarget.arms(-quarter + angle, -quarter - angle)
    for column, wires in enumerate(block.wires):
        for mode, wire in enumerate(wires):
            angle = quarter if wire.state == "bar" else 0.0
            turned = math.pi if wire.state == "bar" and wire.right_rail else 0.0
            common = float(phase[column, mode]) - quarter + turned
            targets[wire.puc] = PucTarget.arms(common + angle, common - angle)
    return targets


def program_unitary(
    calibrated: CalibratedMesh,
    unitary: Complex,
    *,
    block: FeedForwardBlock | None = None,
    avoid: Collection[int] = (),
    limits: HeaterLimits | None = None,
    refine: bool = True,
) -> UnitarySetting:
    """Program a unitary on a calibrated mesh; PUCs outside the block are set to bar.

    Args:
        calibrated: The calibrated mesh, which should include phases around closed paths.
        unitary: Shape ``(N, N)``; field at output n for unit light at input m.
        block: Block to use; by default the first one that has no dead heater and no PUC in ``avoid``.
        avoid: PUCs not to use.
        limits: Limits of the controller.
        refine: Whether to refine the currents with the calibrated model.

    Raises:
        ConfigError: The matrix is not unitary, or no block is free.
        CalibrationError: A PUC is not calibrated, or crosstalk cannot be compensated.
        LimitError: A heater cannot reach its phase, or the total heat exceeds the limit.
    """
    limits = limits or HeaterLimits()
    # Every PUC of a block sets both arms, which takes two working heaters.
    dead = {int(heater) // 2 for heater in np.flatnonzero(calibrated.max_ma == 0.0)}
    unknown = set(np.flatnonzero(np.isnan(calibrated.passive_rad)).tolist())
    block = block or find_block(calibrated.mesh, len(unitary), avoid=dead | unknown | set(avoid))
    targets = _bar_targets_outside(calibrated, block) | block_targets(block, unitary)
    # The design assumes joints without phase, so their phases are cancelled.
    start = program_pucs(calibrated, targets, limits=limits, cancel_joints=block.joints)
    model = UnitaryModel(calibrated, block, np.asarray(unitary, dtype=np.complex128))
    unrefined = fidelity(model.unitary, model.matrix(start.currents_ma))
    own = model.refined(start.own_rad) if refine else start.own_rad
    currents = rounded_ma(calibrated.currents_ma(own), calibrated.max_ma, limits.dac_step_ma)
    heat = float(calibrated.heat_mw(calibrated.own_rad(currents)).sum())
    if heat > limits.total_mw:
        raise LimitError(
            "the total heat of all heaters exceeds the limit", requested=heat, limit=limits.total_mw, unit="mW"
        )
    matrix = model.matrix(currents)
    loss_db = -10.0 * math.log10(np.vdot(matrix, matrix).real / len(matrix))
    return UnitarySetting(block, currents, heat, matrix, fidelity(model.unitary, matrix), unrefined, loss_db)


def predicted_fidelities(
    calibrated: CalibratedMesh, setting: UnitarySetting, unitary: Complex, *, draws: int = 64, seed: int = 0
) -> Real:
    """Return random samples of the fidelity, shape ``(draws,)``, drawn from the uncertainty of the record.

    The fidelity ignores phases at inputs and outputs, which power meters cannot observe.
    """
    cells = sample_cells(calibrated, setting.currents_ma, draws, seed)
    fields = Solver(calibrated.mesh).solve(cells, cells.reference_hz, setting.block.inputs)
    outputs = list(setting.block.outputs)
    return np.array([fidelity_up_to_port_phases(unitary, field[outputs]) for field in fields])


def _bar_targets_outside(calibrated: CalibratedMesh, block: FeedForwardBlock) -> dict[int, PucTarget]:
    remaining_pucs = range(block.mesh.n_pucs)
    targets: dict[int, PucTarget] = {}
    for puc in remaining_pucs:
        reach = float(calibrated.reach_rad[2 * puc : 2 * puc + 2].max())
        # With a full turn of range, a PUC reaches bar whatever its passive phase is.
        if puc not in block.pucs and not np.isnan(calibrated.passive_rad[puc]) and reach >= 2.0 * math.pi:
            targets[puc] = PucTarget.state("bar")
    return targets


class UnitaryModel:
    """Fidelity of a programmed unitary and its gradient, as functions of the heater phases."""

    def __init__(self, calibrated: CalibratedMesh, block: FeedForwardBlock, unitary: Complex) -> None:
        self.unitary = unitary
        self._calibrated, self._block = calibrated, block
        self._solver = Solver(calibrated.mesh)
        self._outputs = np.array(block.outputs)

    def matrix(self, currents_ma: Real) -> Complex:
        """Return the predicted field matrix from inputs to outputs of the block."""
        cells = self._calibrated.cells(currents_ma)
        matrix: Complex = self._solver.solve(cells, cells.reference_hz, self._block.inputs)[self._outputs]
        return matrix

    def refined(self, own_rad: Real) -> Real:
        """Return the heater phases that maximise the fidelity, starting from ``own_rad``."""
        from scipy.optimize import minimize

        heaters = np.array(sorted(2 * puc + arm for puc in self._block.pucs for arm in (0, 1)))
        reach = self._calibrated.reach_rad[heaters]

        def infidelity(part: Real) -> tuple[float, Real]:
            own = own_rad.copy()
            own[heaters] = part
            value, slope = self.fidelity_and_slope(own)
            return 1.0 - value, -slope[heaters]

        optimum = minimize(
            infidelity,
            own_rad[heaters],
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(np.zeros(len(reach)), reach, strict=True)),
            options={"maxiter": _ROUNDS, "ftol": 1e-13, "gtol": 1e-9},
        )
        best = own_rad.copy()
        best[heaters] = np.clip(optimum.x, 0.0, reach)
        return best

    def fidelity_and_slope(self, own_rad: Real) -> tuple[float, Real]:
        """Return the fidelity and its derivatives by the heater phases, shape ``(2 n_pucs,)``."""
        calibrated = self._calibrated
        cells = calibrated.cells(calibrated.currents_ma(own_rad))
        frequency_hz, inputs = cells.reference_hz, self._block.inputs
        field = self._solver.solve(cells, frequency_hz, inputs)
        matrix = field[self._outputs]
        overlap, power = np.vdot(self.unitary, matrix), np.vdot(matrix, matrix).real
        value = float(np.abs(overlap) ** 2 / (len(matrix) * power))
        cotangent = np.zeros_like(field)
        # Derivative of F = |tr U†V|² / (N tr V†V) with respect to V.
        cotangent[self._outputs] = 2.0 * (
            np.conj(overlap) * self.unitary.conj() / (len(matrix) * power) - value / power * matrix.conj()
        )
        derivatives = gradient(self._solver, cells, frequency_hz, cotangent, inputs)
        arms = np.stack([derivatives.phase_upper, derivatives.phase_lower], axis=-1).reshape(-1)
        # A heater acts on its own arm directly, and through its heat on all other arms and joints.
        by_heat = arms @ calibrated.arm_rad_per_mw
        if len(calibrated.joint_rad_per_mw):
            by_heat = by_heat + derivatives.joint_phase @ calibrated.joint_rad_per_mw
        return value, arms + calibrated.heat_mw_per_rad * by_heat
