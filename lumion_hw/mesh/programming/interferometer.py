"""Set a feed-forward mesh of Mach-Zehnder interferometers to a decomposed matrix.

Light follows N waveguides through the mesh and never turns back. Each mixer of a decomposition is given to the next
interferometer on its two waveguides. All wanted phases are then linear equations modulo 2π in the phases of arms and
joints (waveguides between PUCs), which are solved for the heaters. Any arrangement with enough heaters is served: outer
phases before or behind an interferometer, on the upper or the lower waveguide, or two heated arms.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.layout.cells import CELL_KINDS
from lumion_hw.mesh.layout.topology import EXIT_XOR, MeshTopology
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.decomposition import Mixer, UnitaryDecomposition, variants

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

_TURN = 2.0 * math.pi
# Crosstalk of a few per cent converges in three or four rounds.
_ROUNDS = 12
_CONVERGED_RAD = 1e-9
# Smallest new part of an equation, relative to the equation; rounding leaves 1e-15 of a dependent one.
_DEPENDENT = 1e-6
_EXACT_RAD = 1e-3
# Unit of the phases at inputs: a large one, so that the shortest solution moves them rather than heaters.
_INPUT_WEIGHT = 1e3
# Three rounds of changed signs find nearly all of the heat that can be saved in this way.
_SIGN_ROUNDS = 3


@dataclass(frozen=True, eq=False)
class PhaseEquations:
    """Wanted phases: ``rows @ phases ≡ wanted_rad`` modulo 2π, for the phases of all arms, all joints and all inputs.

    Attributes:
        rows: Shape ``(n, 2 n_pucs + n_joints + n_inputs)``.
        wanted_rad: Shape ``(n,)``.
    """

    rows: Real
    wanted_rad: Real


class _Equations:
    """Phase equations in the order in which they were added; see :class:`PhaseEquations`."""

    def __init__(self) -> None:
        self.rows: list[Real] = []
        self.wanted: list[float] = []

    def add(self, row: Real, wanted_rad: float) -> None:
        """Add one equation: the sum of phases weighted by ``row`` shall be ``wanted_rad`` modulo 2π."""
        self.rows.append(row)
        self.wanted.append(wanted_rad)

    def followed_by(self, others: _Equations) -> PhaseEquations:
        """Return these equations, then others."""
        return PhaseEquations(np.array([*self.rows, *others.rows]), np.array([*self.wanted, *others.wanted]))


@dataclass(frozen=True)
class Passage:
    """Two waveguides on their way through one cell.

    Attributes:
        puc: The cell.
        waveguides: Waveguide that enters on rail L and on rail R; ``None`` on a rail that no input reaches.
        leaving: PUC-ports where they leave, if an interferometer is in bar.
    """

    puc: int
    waveguides: tuple[int | None, int | None]
    leaving: tuple[int, int]


class Interferometer:
    """The passages of N waveguides through the cells of a feed-forward mesh, in the order of the light.

    Attributes:
        passages: The passages; empty if light can turn back, or a fixed coupler splits it.
        outputs: Port where each waveguide ends.
    """

    def __init__(self, mesh: MeshTopology, inputs: Sequence[int]) -> None:
        self.mesh = mesh
        self.passages, self.outputs = _follow(mesh, inputs)

    def pucs(self, waveguides: Collection[int]) -> frozenset[int]:
        """Return the cells that some waveguides pass."""
        return frozenset(passage.puc for passage in self.passages if set(waveguides) & set(passage.waveguides))

    def equations(self, decomposition: UnitaryDecomposition, first: int = 0) -> PhaseEquations | None:
        """Return the equations for a decomposed matrix; ``None`` if its mixers do not fit the mesh.

        The modes of the matrix are neighbouring waveguides from ``first`` on. Other waveguides are kept apart from
        them, and have no equations among each other.
        """
        n_modes = len(decomposition.input_rad)
        modes = range(first, first + n_modes)
        shifted = [
            replace(mixer, first=mixer.first + first, second=mixer.second + first) for mixer in decomposition.mixers
        ]
        if not self.passages or (mixers := self._assign_mixers(shifted)) is None:
            return None
        n_arms = 2 * self.mesh.n_pucs
        before = n_arms + len(self.mesh.joints)
        size = before + len(self.outputs)
        # Phase of each waveguide beyond the ideal matrix so far: a linear function of all phases, and a constant.
        linear, constant = np.eye(len(self.outputs), size, before), np.zeros(len(self.outputs))
        constant[first : first + n_modes] = -decomposition.input_rad
        splits = _Equations()
        phases = _Equations()
        joints_behind = self._joints_behind()
        for number, passage in enumerate(self.passages):
            upper, lower = passage.waveguides
            if upper not in modes and lower not in modes:
                continue
            mixer = mixers.get(number)
            arms = np.zeros(size)
            arms[2 * passage.puc], arms[2 * passage.puc + 1] = 1.0, -1.0
            if mixer is not None:
                first_mode, second = mixer.first, mixer.second
                # With its first mode on the lower rail, the same matrix needs the opposite angle.
                theta = mixer.theta_rad if first_mode == upper else -mixer.theta_rad
                splits.add(arms, 2.0 * theta)
                difference = constant[first_mode] - constant[second]
                phases.add(linear[first_mode] - linear[second], mixer.before_rad - difference)
                # The mean phase of both arms, and half a turn for each turn of their difference beyond 2θ.
                linear[second, 2 * passage.puc] += 1.0
                linear[first_mode] = linear[second]
                constant[second] += 0.5 * math.pi - theta - mixer.both_rad
                constant[first_mode] = constant[second] - mixer.after_rad
            else:
                if self.mesh.interferes[passage.puc]:
                    splits.add(arms, math.pi)
                self._pass(passage, linear, constant)
            for waveguide, joint in joints_behind[number]:
                linear[waveguide, n_arms + joint] += 1.0
        return splits.followed_by(phases)

    def _pass(self, passage: Passage, linear: Real, constant: Real) -> None:
        """Let waveguides through a cell that mixes nothing: a phase shifter, a crossing or an interferometer in bar."""
        interferes = self.mesh.interferes[passage.puc]
        is_crossing = CELL_KINDS[self.mesh.cell_kinds[passage.puc]].passes == "cross"
        for rail, waveguide in enumerate(passage.waveguides):
            if waveguide is None:
                continue
            # In bar the phase of the upper arm counts for both outputs, and the lower one has the opposite sign.
            linear[waveguide, 2 * passage.puc + (0 if interferes else rail)] += 1.0
            if interferes and rail:
                constant[waveguide] += math.pi
            elif is_crossing:
                # A crossing multiplies by -j.
                constant[waveguide] += 0.5 * math.pi

    def _assign_mixers(self, mixers: Sequence[Mixer]) -> dict[int, Mixer] | None:
        """Return the mixer of each passage, or ``None`` if a mixer finds no interferometer on its waveguides."""
        free = [0] * len(self.outputs)
        shared: dict[frozenset[int], list[int]] = {}
        for number, passage in enumerate(self.passages):
            if None not in passage.waveguides and self.mesh.interferes[passage.puc]:
                shared.setdefault(frozenset(w for w in passage.waveguides if w is not None), []).append(number)
        mixer_by_passage: dict[int, Mixer] = {}
        for mixer in mixers:
            earliest = max(free[mixer.first], free[mixer.second])
            pair = frozenset((mixer.first, mixer.second))
            later = [number for number in shared.get(pair, ()) if number >= earliest]
            if not later:
                return None
            mixer_by_passage[later[0]] = mixer
            free[mixer.first] = free[mixer.second] = later[0] + 1
        return mixer_by_passage

    def _joints_behind(self) -> list[list[tuple[int, int]]]:
        number_of = {int(end): joint for joint, ends in enumerate(self.mesh.joints) for end in ends}
        return [
            [
                (waveguide, number_of[end])
                for waveguide, end in zip(passage.waveguides, passage.leaving, strict=True)
                if waveguide is not None and end in number_of
            ]
            for passage in self.passages
        ]


@dataclass(frozen=True, eq=False)
class StartSetting:
    """Heater phases from which a search starts.

    Attributes:
        own_rad: Phase of each heater on its own arm, shape ``(2 n_pucs,)``.
        is_exact: Whether all wanted phases are reached, so that only couplers and losses remain to be corrected.
    """

    own_rad: Real
    is_exact: bool


def start_settings(
    calibrated: CalibratedMesh, guides: Interferometer, unitary: Complex, first: int = 0
) -> list[StartSetting]:
    """Return heater phases that set a unitary, if a decomposition of it fits the mesh.

    All decompositions that fit give the same matrix. The first one with phases that the heaters can reach is returned
    alone, with the signs of its angles chosen for little heat.

    Args:
        calibrated: The calibrated mesh.
        guides: The waveguides of the mesh.
        unitary: Shape ``(N, N)``.
        first: First of the N neighbouring waveguides.
    """
    starts = []
    for decomposition in variants(unitary):
        equations = guides.equations(decomposition, first)
        if equations is None:
            continue
        solver = PhaseSolver(calibrated, equations.rows)
        start = solver.solve(equations.wanted_rad)
        if start.is_exact:
            return [_coolest(solver, guides, decomposition, first, start)]
        starts.append(start)
    return starts


def _coolest(
    solver: PhaseSolver, guides: Interferometer, decomposition: UnitaryDecomposition, first: int, start: StartSetting
) -> StartSetting:
    """Return the setting with the least heat that changes of the sign of one angle after the other reach."""
    settings = [decomposition, *map(decomposition.with_opposite_angle, range(len(decomposition.mixers)))]
    equations = [guides.equations(setting, first) for setting in settings]
    wanted_rad, *others_rad = (fitting.wanted_rad for fitting in equations if fitting is not None)
    # The wanted phases are linear in the angles of the mixers, so the changes of several angles add up.
    changes_rad = [other_rad - wanted_rad for other_rad in others_rad]
    signs = np.zeros(len(changes_rad), dtype=bool)
    for _ in range(_SIGN_ROUNDS):
        before = signs.copy()
        for number, change_rad in enumerate(changes_rad):
            changed_rad = wanted_rad + (-change_rad if signs[number] else change_rad)
            other = solver.solve(changed_rad)
            if other.is_exact and solver.heat_mw(other) < solver.heat_mw(start):
                start, wanted_rad, signs[number] = other, changed_rad, not signs[number]
        if np.array_equal(before, signs):
            break
    return start


class PhaseSolver:
    """Solves phase equations with the same rows for heater phases.

    Equations that contradict earlier ones are left out. Where the equations leave a choice, phases are small. Phases at
    the inputs are free.
    """

    def __init__(self, calibrated: CalibratedMesh, rows: Real) -> None:
        self._calibrated, self._reach = calibrated, calibrated.reach_rad
        self._live = np.flatnonzero(self._reach > 0.0)
        heated = np.eye(2 * calibrated.mesh.n_pucs) + calibrated.arm_rad_per_mw * calibrated.heat_mw_per_rad
        joints = np.zeros((len(calibrated.mesh.joints), len(heated)))
        if len(calibrated.joint_rad_per_mw):
            joints = calibrated.joint_rad_per_mw * calibrated.heat_mw_per_rad
        n_phases = len(heated) + len(joints)
        # Phase in each equation by the phase of each working heater on its own arm, then by that of each input.
        by_heater = (rows[:, :n_phases] @ np.concatenate([heated, joints]))[:, self._live]
        self._slopes = np.concatenate([by_heater, _INPUT_WEIGHT * rows[:, n_phases:]], axis=1)
        # Without crosstalk, which would solve an equation with many turns of distant heaters.
        self._solvable = _independent(np.concatenate([rows[:, self._live], rows[:, n_phases:]], axis=1))
        self._inverse = np.linalg.pinv(self._slopes[self._solvable])
        cold = calibrated.cold_cells()
        arms = np.stack([cold.phase_upper, cold.phase_lower], axis=1).reshape(-1)
        self._cold_rad = rows[:, :n_phases] @ np.concatenate([arms, np.asarray(cold.joint_phase)])

    def solve(self, wanted_rad: Real) -> StartSetting:
        """Return the heater phases for the wanted phases of the equations."""
        n_live = len(self._live)
        phases = np.zeros(self._slopes.shape[1])
        most = np.maximum(self._reach[self._live], _TURN)
        # A heater that moves by a turn moves its neighbours by crosstalk, so the equations are solved again.
        for _ in range(_ROUNDS):
            step = self._inverse @ self._missed_rad(phases, wanted_rad)[self._solvable]
            if np.abs(step).max(initial=0.0) < _CONVERGED_RAD:
                break
            phases += step
            # A phase slightly above a turn stays, so that crosstalk does not move it back and forth by a turn.
            live = phases[:n_live]
            phases[:n_live] = np.where((live < 0.0) | (live > most), live % _TURN, live)
        phases[:n_live] = np.minimum(phases[:n_live], self._reach[self._live])
        own_rad = np.zeros(len(self._reach))
        own_rad[self._live] = phases[:n_live]
        missed = self._missed_rad(phases, wanted_rad)
        return StartSetting(own_rad, bool(np.abs(missed).max(initial=0.0) < _EXACT_RAD))

    def heat_mw(self, setting: StartSetting) -> float:
        """Return the total heat of a setting."""
        return float(self._calibrated.heat_mw(setting.own_rad).sum())

    def _missed_rad(self, phases: Real, wanted_rad: Real) -> Real:
        """Return by how much each equation is missed, -π … π."""
        missed: Real = (wanted_rad - self._cold_rad - self._slopes @ phases + math.pi) % _TURN - math.pi
        return missed


def _independent(rows: Real) -> list[int]:
    """Return the rows that are no combination of earlier rows."""
    basis: list[Real] = []
    chosen = []
    for number, row in enumerate(rows):
        remaining = row - sum((direction * (direction @ row) for direction in basis), np.zeros(len(row)))
        if (length := float(np.linalg.norm(remaining))) > _DEPENDENT * max(float(np.linalg.norm(row)), 1e-300):
            basis.append(remaining / length)
            chosen.append(number)
    return chosen


def feed_forward_ports(mesh: MeshTopology) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the inputs and the outputs of a feed-forward mesh: ports with a fibre; empty if light can turn back.

    The fibre port with the lowest number is an input.
    """
    fibres = sorted(mesh.fibre_ports)
    reached = {port: {other for other in fibres if other != port and mesh.reaches(port, other)} for port in fibres}
    outputs = reached[fibres[0]]
    inputs = [port for port in fibres if reached[port] & outputs and port not in outputs]
    if any(reached[port] & set(inputs) for port in inputs) or not outputs:
        return (), ()
    all_outputs = set().union(*(reached[port] for port in inputs))
    return tuple(inputs), tuple(sorted(all_outputs))


def passed_pucs(mesh: MeshTopology, inputs: Sequence[int], outputs: Sequence[int]) -> frozenset[int]:
    """Return the cells that light can pass on its way from some inputs to some outputs."""
    forward, backward = _reached(mesh, inputs), _reached(mesh, outputs)
    return frozenset(entry // 4 for entry in forward) & frozenset(entry // 4 for entry in backward)


def _follow(mesh: MeshTopology, inputs: Sequence[int]) -> tuple[tuple[Passage, ...], tuple[int, ...]]:
    reached_entries = _reached(mesh, inputs)
    at = {int(mesh.port_puc_port[port]): waveguide for waveguide, port in enumerate(inputs)}
    outputs = [-1] * len(inputs)
    passages: list[Passage] = []
    passed: set[int] = set()
    waiting = dict(at)
    while waiting:
        ready = next((entry for entry in waiting if entry ^ 1 in waiting or entry ^ 1 not in reached_entries), None)
        puc = -1 if ready is None else ready // 4
        kind = None if ready is None else CELL_KINDS[mesh.cell_kinds[puc]]
        alone = ready is not None and ready ^ 1 not in waiting
        # Light turns back, a coupler splits it for good, or an interferometer has an input without light.
        if ready is None or kind is None or puc in passed or (kind.has_couplers and (alone or not kind.interferes)):
            return (), tuple(outputs)
        passed.add(puc)
        entries = (ready & ~1, ready | 1)
        turn = EXIT_XOR["cross" if kind.passes == "cross" else "bar"]
        guides = (waiting.pop(entries[0], None), waiting.pop(entries[1], None))
        passages.append(Passage(puc, guides, (entries[0] ^ turn, entries[1] ^ turn)))
        for waveguide, leaving in zip(guides, passages[-1].leaving, strict=True):
            if waveguide is None:
                continue
            if mesh.mate[leaving] >= 0:
                waiting[int(mesh.mate[leaving])] = waveguide
            else:
                outputs[waveguide] = int(mesh.port_at[leaving])
    return tuple(passages), tuple(outputs)


def _reached(mesh: MeshTopology, inputs: Sequence[int]) -> set[int]:
    """Return the PUC-ports at which light from the inputs can enter a cell."""
    pending = [int(mesh.port_puc_port[port]) for port in inputs]
    reached = set(pending)
    while pending:
        for following in mesh.successors[pending.pop()].tolist():
            if following >= 0 and following not in reached:
                reached.add(following)
                pending.append(following)
    return reached
