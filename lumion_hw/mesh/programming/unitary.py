"""Programming an N x N unitary: a rectangular interferometer on a feed-forward block of the hexagonal mesh.

The matrix is taken apart into mixers and phases (Clements 2016, here in the convention of
:mod:`lumion_hw.mesh.waves.cell`), laid onto a block, programmed against passive phases, joints and crosstalk, and then
refined on the record's own model of the mesh, imperfect couplers and all, by the exact gradient of the fidelity.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError, LimitError
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.feedforward import FeedForwardBlock, block
from lumion_hw.mesh.programming.heater_currents import HeaterLimits, PucTarget, program_pucs, rounded_ma
from lumion_hw.mesh.programming.prediction import sample_cells
from lumion_hw.mesh.waves.adjoint import gradient
from lumion_hw.mesh.waves.scattering import Solver

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

_ROUNDS = 400
_NOT_UNITARY = 1e-9


@dataclass(frozen=True)
class Mixer:
    """One element of a rectangular interferometer: a phase on the first of two modes, then both are mixed.

    Acts as [[sin θ, cos θ], [cos θ, -sin θ]] · diag(e^{-jφ}, 1) on modes ``mode`` and ``mode + 1``.

    Attributes:
        mode: The first of the two modes.
        theta_rad: θ; π/2 keeps the modes apart, 0 swaps them.
        phase_rad: φ.
    """

    mode: int
    theta_rad: float
    phase_rad: float


@dataclass(frozen=True, eq=False)
class UnitarySetting:
    """A unitary as it is programmed.

    Attributes:
        block: Where it is.
        currents_ma: Shape ``(2E,)``.
        heat_mw: Heat of all heaters.
        matrix: Shape ``(N, N)``; field from input to output as the record predicts it, losses included.
        fidelity: Predicted fidelity, |tr U†V|² / (N tr V†V).
        unrefined_fidelity: The same before refinement.
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
    """Return |tr U†V|² / (N tr V†V): 1 for a V proportional to the unitary U."""
    overlap, power = np.vdot(wanted, matrix), np.vdot(matrix, matrix).real
    return float(np.abs(overlap) ** 2 / (len(wanted) * power))


def fidelity_up_to_port_phases(wanted: Complex, matrix: Complex, rounds: int = 200) -> float:
    """Return the largest fidelity over phases at inputs and outputs, which power meters cannot see."""
    overlap = wanted.conj() * matrix
    best = 0.0
    # Phases at inputs and outputs in turns, each best for the others: that climbs to the nearest maximum, hence from
    # every input.
    for start in range(len(wanted)):
        at_output = np.exp(-1j * np.angle(overlap[:, start]))
        for _ in range(rounds):
            at_input = np.exp(-1j * np.angle(at_output @ overlap))
            at_output = np.exp(-1j * np.angle(overlap @ at_input))
        best = max(best, fidelity(wanted, at_output[:, None] * matrix * at_input))
    return best


def decompose(unitary: Complex) -> tuple[tuple[Mixer, ...], Real]:
    """Return a unitary as mixers, in the order light meets them, and phases at the outputs, shape ``(N,)``.

    U = diag(e^{-j·phases}) · (last mixer) ⋯ (first mixer); N (N - 1) / 2 mixers in N columns.

    Raises:
        ConfigError: The matrix is not unitary.
    """
    n = len(unitary)
    rest = np.array(unitary, dtype=np.complex128)
    if rest.shape != (n, n) or n < 1 or np.abs(rest.conj().T @ rest - np.eye(n)).max() > _NOT_UNITARY:
        raise ConfigError("the matrix to program is not unitary", hint="U†U has to be the identity to 1e-9.")
    first: list[Mixer] = []
    last: list[Mixer] = []
    # Diagonal by diagonal, from either side in turns: the mesh comes out as shallow as can be (Clements 2016).
    for diagonal in range(1, n):
        for step in range(diagonal):
            if diagonal % 2:
                first.append(_null_from_right(rest, n - 1 - step, diagonal - 1 - step))
            else:
                last.append(_null_from_left(rest, n - diagonal + step, step))
    phases = -np.angle(np.diag(rest))
    moved = []
    for mixer in reversed(last):
        # T†·D = D'·T', so that all phases end up at the outputs.
        m = mixer.mode
        moved.append(Mixer(m, mixer.theta_rad, float(phases[m] - phases[m + 1])))
        phases[m] = phases[m + 1] - mixer.phase_rad
    return (*first, *moved), phases


def _null_from_right(rest: Complex, row: int, mode: int) -> Mixer:
    """Multiply by T† from the right so that element (row, mode) vanishes; return T."""
    a, b = rest[row, mode], rest[row, mode + 1]
    mixer = Mixer(mode, math.atan2(abs(b), abs(a)), float(np.pi + np.angle(b) - np.angle(a)))
    pair = rest[:, mode : mode + 2]
    pair[:] = pair @ _matrix(mixer).conj().T
    return mixer


def _null_from_left(rest: Complex, row: int, column: int) -> Mixer:
    """Multiply by T from the left so that element (row, column) vanishes; return T."""
    a, b = rest[row - 1, column], rest[row, column]
    mixer = Mixer(row - 1, math.atan2(abs(a), abs(b)), float(np.angle(a) - np.angle(b)))
    pair = rest[row - 1 : row + 1]
    pair[:] = _matrix(mixer) @ pair
    return mixer


def _matrix(mixer: Mixer) -> Complex:
    sine, cosine = math.sin(mixer.theta_rad), math.cos(mixer.theta_rad)
    matrix: Complex = np.array([[sine, cosine], [cosine, -sine]]) * np.array([np.exp(-1j * mixer.phase_rad), 1.0])
    return matrix


def block_targets(where: FeedForwardBlock, unitary: Complex) -> dict[int, PucTarget]:
    """Return what every PUC of a block has to do for a unitary, if couplers were ideal and joints without phase.

    Raises:
        ConfigError: The matrix is not unitary, has another size than the block, or needs more columns than there are.
    """
    if len(unitary) != where.n_modes:
        raise ConfigError(f"a matrix of {len(unitary)} modes on a block of {where.n_modes}")
    mixers, out_phases = decompose(unitary)
    columns = len(where.mixers)
    theta: dict[int, float] = {}
    phase = np.zeros((columns + 1, where.n_modes))
    phase[columns] = out_phases
    free = [0] * where.n_modes
    active = set()
    for mixer in mixers:
        m, column = mixer.mode, max(free[mixer.mode], free[mixer.mode + 1])
        # Two neighbouring modes meet in every second column only.
        while column < columns and where.mixer_of(column, m) is None:
            column += 1
        puc = where.mixer_of(column, m) if column < columns else None
        if puc is None:
            raise ConfigError(
                f"{where.n_modes} modes need more columns than mesh {where.mesh.label!r} has",
                hint=f"It has {columns} columns of mixers.",
            )
        theta[puc] = mixer.theta_rad
        phase[column, m] += mixer.phase_rad
        active |= {(column, m), (column, m + 1)}
        free[m] = free[m + 1] = column + 1
    for column, row in enumerate(where.mixers):
        for mode, (_, lower) in enumerate(row):
            if lower and (column, mode) not in active:
                phase[column, mode] += math.pi  # the lower rail of a PUC in bar: its matrix is diag(1, -1)
    return _targets(where, theta, phase)


def _targets(where: FeedForwardBlock, theta: dict[int, float], phase: Real) -> dict[int, PucTarget]:
    """Return the arm phases of mixers and wires: T = -j·e^{-jΔ}·[[sin θ, cos θ], [cos θ, -sin θ]]."""
    quarter = 0.5 * math.pi
    targets = {}
    for mixers in where.mixers:
        for puc, _ in mixers:
            angle = theta.get(puc, quarter)
            targets[puc] = PucTarget.arms(-quarter + angle, -quarter - angle)
    for column, wires in enumerate(where.wires):
        for mode, wire in enumerate(wires):
            angle = quarter if wire.state == "bar" else 0.0
            turned = math.pi if wire.state == "bar" and wire.right_rail else 0.0
            common = float(phase[column, mode]) - quarter + turned
            targets[wire.puc] = PucTarget.arms(common + angle, common - angle)
    return targets


def program_unitary(
    known: CalibratedMesh,
    unitary: Complex,
    *,
    where: FeedForwardBlock | None = None,
    avoid: Collection[int] = (),
    limits: HeaterLimits | None = None,
    refine: bool = True,
) -> UnitarySetting:
    """Program a unitary by what a record knows; rows beside the block are led straight through.

    Args:
        known: The mesh as a record knows it; loop phases are wanted, or interference is anyone's guess.
        unitary: Shape ``(N, N)``; field at output n for unit light at input m.
        where: The block to use; the first without dead heaters and without ``avoid`` if not given.
        avoid: PUCs not to use.
        limits: What the controller allows.
        refine: Whether to refine on the model.

    Raises:
        ConfigError: The matrix is not unitary, or there is no room for it.
        CalibrationError: A PUC is not calibrated, or crosstalk cannot be compensated.
        LimitError: A heater does not reach its phase, or the heat in all exceeds the limit.
    """
    limits = limits or HeaterLimits()
    dead = {int(heater) // 2 for heater in np.flatnonzero(known.max_ma == 0.0)}
    unknown = set(np.flatnonzero(np.isnan(known.passive_rad)).tolist())
    where = where or block(known.mesh, len(unitary), avoid=dead | unknown | set(avoid))
    targets = _parked(known, where) | block_targets(where, unitary)
    start = program_pucs(known, targets, limits=limits, cancel_joints=where.joints)
    model = UnitaryModel(known, where, np.asarray(unitary, dtype=np.complex128))
    unrefined = fidelity(model.unitary, model.matrix(start.currents_ma))
    own = model.refined(start.own_rad) if refine else start.own_rad
    currents = rounded_ma(known.currents_ma(own), known.max_ma, limits.dac_step_ma)
    heat = float(known.heat_mw(known.own_rad(currents)).sum())
    if heat > limits.total_mw:
        raise LimitError("heat of all heaters", requested=heat, limit=limits.total_mw, unit="mW")
    matrix = model.matrix(currents)
    loss_db = -10.0 * math.log10(np.vdot(matrix, matrix).real / len(matrix))
    return UnitarySetting(where, currents, heat, matrix, fidelity(model.unitary, matrix), unrefined, loss_db)


def predicted_fidelities(
    known: CalibratedMesh, setting: UnitarySetting, unitary: Complex, *, draws: int = 64, seed: int = 0
) -> Real:
    """Return the fidelities that a setting may reach, shape ``(draws,)``, given how sure the record is of itself.

    Phases at inputs and outputs, which power meters cannot see, are left out.
    """
    cells = sample_cells(known, setting.currents_ma, draws, seed)
    fields = Solver(known.mesh).solve(cells, cells.reference_hz, setting.block.inputs)
    outputs = list(setting.block.outputs)
    return np.array([fidelity_up_to_port_phases(unitary, field[outputs]) for field in fields])


def _parked(known: CalibratedMesh, where: FeedForwardBlock) -> dict[int, PucTarget]:
    """Return targets for the rows beside a block, so that what leaks there leaves; whatever cannot be set is left."""
    rest = range(where.mesh.n_pucs)
    targets: dict[int, PucTarget] = {}
    for puc in rest:
        reach = float(known.reach_rad[2 * puc : 2 * puc + 2].max())
        if puc not in where.pucs and not np.isnan(known.passive_rad[puc]) and reach >= 2.0 * math.pi:
            targets[puc] = PucTarget.state("bar")
    return targets


class UnitaryModel:
    """The fidelity of a unitary as a function of the own phases of all heaters, with its gradient.

    Args:
        known: The mesh as a record knows it.
        where: The block.
        unitary: Shape ``(N, N)``.
    """

    def __init__(self, known: CalibratedMesh, where: FeedForwardBlock, unitary: Complex) -> None:
        self.unitary = unitary
        self._known, self._where = known, where
        self._solver = Solver(known.mesh)
        self._outputs = np.array(where.outputs)

    def matrix(self, currents_ma: Real) -> Complex:
        """Return the field from inputs to outputs."""
        cells = self._known.cells(currents_ma)
        matrix: Complex = self._solver.solve(cells, cells.reference_hz, self._where.inputs)[self._outputs]
        return matrix

    def refined(self, own_rad: Real) -> Real:
        """Return the own phases of largest fidelity near a start; only heaters of the block are moved."""
        from scipy.optimize import minimize

        heaters = np.array(sorted(2 * puc + arm for puc in self._where.pucs for arm in (0, 1)))
        reach = self._known.reach_rad[heaters]

        def infidelity(part: Real) -> tuple[float, Real]:
            own = own_rad.copy()
            own[heaters] = part
            value, slope = self.fidelity_and_slope(own)
            return 1.0 - value, -slope[heaters]

        found = minimize(
            infidelity,
            own_rad[heaters],
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(np.zeros(len(reach)), reach, strict=True)),
            options={"maxiter": _ROUNDS, "ftol": 1e-13, "gtol": 1e-9},
        )
        best = own_rad.copy()
        best[heaters] = np.clip(found.x, 0.0, reach)
        return best

    def fidelity_and_slope(self, own_rad: Real) -> tuple[float, Real]:
        """Return the fidelity and its derivatives by the phases of heaters on their own arms, shape ``(2E,)``."""
        known = self._known
        cells = known.cells(known.currents_ma(own_rad))
        frequency_hz, inputs = cells.reference_hz, self._where.inputs
        field = self._solver.solve(cells, frequency_hz, inputs)
        matrix = field[self._outputs]
        overlap, power = np.vdot(self.unitary, matrix), np.vdot(matrix, matrix).real
        value = float(np.abs(overlap) ** 2 / (len(matrix) * power))
        cotangent = np.zeros_like(field)
        # dF of F = |tr U†V|² / (N tr V†V), as a factor of dV.
        cotangent[self._outputs] = 2.0 * (
            np.conj(overlap) * self.unitary.conj() / (len(matrix) * power) - value / power * matrix.conj()
        )
        by = gradient(self._solver, cells, frequency_hz, cotangent, inputs)
        arms = np.stack([by.phase_upper, by.phase_lower], axis=-1).reshape(-1)
        by_heat = arms @ known.arm_rad_per_mw
        if len(known.joint_rad_per_mw):
            by_heat = by_heat + by.joint_phase @ known.joint_rad_per_mw
        return value, arms + known.heat_mw_per_rad * by_heat
