"""Observable part of the phases of waveguide joints (docs/calibration.md, 1.2).

Power meters cannot detect a phase that is added to all joints at end A of a PUC and subtracted from those at end B. The
change of joint phases by such a phase in each PUC is a column of the signed incidence matrix G. Only loop phases are
observable: sums of joint phases along integer vectors v with v·G = 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real
from calibration.model.illuminated_part import illuminated_part, joints_by_pair
from lumion_hw.mesh.layout.topology import MeshTopology

_MAX_ROUNDS = 50
_INVISIBLE = 1e-9


def signed_incidence(mesh: MeshTopology) -> NDArray[np.int64]:
    """Return G for J joints and E cells: +1 for every end A at a joint, -1 for every end B.

    The shape is ``(J, E + C)``, with C cells without couplers. A cell without couplers has a second column, with
    the joints of the waveguide from the upper rail of end A only.
    """
    joints, numbers = mesh.joints, np.arange(len(mesh.joints))
    # PUC-ports 0 and 1 are end A, 2 and 3 end B.
    sign = np.where(joints % 4 < 2, 1, -1)
    separate = np.flatnonzero(~mesh.has_coupler.any(axis=0))
    incidence = np.zeros((len(joints), mesh.n_pucs + len(separate)), dtype=np.int64)
    column = np.full(mesh.n_pucs, -1)
    column[separate] = mesh.n_pucs + np.arange(len(separate))
    # A crossing leads from the upper rail of end A to the lower rail of end B.
    upper_exit = np.where(mesh.nominal_eta[0] != mesh.nominal_eta[1], 3, 2)
    for side in (0, 1):
        cell, rail = joints[:, side] // 4, joints[:, side] % 4
        np.add.at(incidence, (numbers, cell), sign[:, side])
        upper = (column[cell] >= 0) & ((rail == 0) | (rail == upper_exit[cell]))
        np.add.at(incidence, (numbers[upper], column[cell[upper]]), sign[upper, side])
    return incidence


@lru_cache(maxsize=8)
def loop_basis(mesh: MeshTopology) -> NDArray[np.int64]:
    """Return the loops of a mesh, shape ``(N_loop, joints)``: a basis of all integer vectors v with v·G = 0.

    The phase of loop l is ``loop_basis(mesh)[l] @ joint_phase``, modulo 2π.
    """
    basis = _shortened(_left_null_lattice(signed_incidence(mesh)))
    basis.setflags(write=False)
    return basis


@lru_cache(maxsize=8)
def visible_joint_directions(mesh: MeshTopology) -> Real:
    """Return an orthonormal basis of the observable combinations of J joint phases, shape ``(J, N_loop)``."""
    directions, _ = np.linalg.qr(loop_basis(mesh).T.astype(np.float64))
    directions.setflags(write=False)
    return directions


@lru_cache(maxsize=16)
def illuminated_loop_basis(
    mesh: MeshTopology, sources: tuple[int, ...], monitors: tuple[int, ...]
) -> NDArray[np.int64]:
    """Return the loops that light can show, a basis as :func:`loop_basis`; shape ``(loops, joints)``.

    These are the loops through which light runs from a single source to a single monitor, and their sums. In a loop
    whose parts get light from different sources only, nothing interferes.
    """
    joints = illuminated_part(mesh, sources, monitors).joints
    every = loop_basis(mesh) if joints.all() else _loops_through(mesh, joints)
    shown = np.zeros((0, len(joints)), dtype=np.int64)
    lit = joints_by_pair(mesh, sources, monitors).reshape(len(sources) * len(monitors), len(joints))
    for own in _largest_sets(lit):
        # All sums of integer multiples of these rows are sums of the rows that remain.
        rows = np.vstack([shown, _loops_through(mesh, own)])
        shown = rows[: _echelon(rows, len(joints))]
        if len(shown) == len(every):
            shown = every
            break
    else:
        shown = _shortened(shown)
    shown.setflags(write=False)
    return shown


def _loops_through(mesh: MeshTopology, joints: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return a basis of the loops through the given joints only, shape ``(loops, joints)``."""
    loops = _left_null_lattice(signed_incidence(mesh)[joints])
    basis = np.zeros((len(loops), len(joints)), dtype=np.int64)
    basis[:, joints] = loops
    return basis


def _largest_sets(sets: NDArray[np.bool_]) -> Iterator[NDArray[np.bool_]]:
    """Yield the rows that are no subset of another row, shape ``(elements,)`` each; those with most elements first."""
    kept = np.zeros((0, sets.shape[1]), dtype=np.bool_)
    for row in sets[np.argsort(-sets.sum(axis=1), kind="stable")]:
        if not (kept[:, row].all(axis=1)).any():
            kept = np.vstack([kept, row])
            yield row


@lru_cache(maxsize=16)
def illuminated_joint_directions(
    mesh: MeshTopology, sources: tuple[int, ...], monitors: tuple[int, ...]
) -> tuple[Real, int]:
    """Return directions as :func:`visible_joint_directions`, and the number of those that light can show.

    The first directions are the loops of :func:`illuminated_loop_basis`.
    """
    every, joints = visible_joint_directions(mesh), illuminated_part(mesh, sources, monitors).joints
    basis = illuminated_loop_basis(mesh, sources, monitors)
    if joints.all() and len(basis) == every.shape[1]:
        return every, every.shape[1]
    loops = basis.T.astype(np.float64)
    loops = np.linalg.qr(loops)[0] if loops.shape[1] else loops
    hidden = np.linalg.svd(every - loops @ (loops.T @ every), full_matrices=False)[0]
    directions = np.hstack([loops, hidden[:, : every.shape[1] - loops.shape[1]]])
    directions.setflags(write=False)
    return directions, loops.shape[1]


def has_visible_phase(
    mesh: MeshTopology, sources: Sequence[int] | None = None, monitors: Sequence[int] | None = None
) -> NDArray[np.bool_]:
    """Return for every arm whether its phase changes the power at a port, shape ``(2 n_pucs,)``.

    Args:
        mesh: The mesh.
        sources: Ports where light enters; by default all.
        monitors: Ports with a monitor; by default all.
    """
    ports = range(mesh.n_ports)
    inputs, outputs = (tuple(ports if selected is None else selected) for selected in (sources, monitors))
    visible = np.repeat(mesh.interferes & illuminated_part(mesh, inputs, outputs).pucs, 2)
    if visible.all():
        return visible
    joint_at = _joint_at(mesh)
    directions, count = illuminated_joint_directions(mesh, inputs, outputs)
    is_visible = np.linalg.norm(directions[:, :count], axis=1) > _INVISIBLE
    for arm in np.flatnonzero(np.repeat(~mesh.interferes, 2)):
        joint = joint_at[_exit(arm)]
        visible[arm] = joint >= 0 and is_visible[joint]
    return visible


@lru_cache(maxsize=8)
def visible_combinations(mesh: MeshTopology, sources: tuple[int, ...], monitors: tuple[int, ...]) -> Real:
    """Return for each heater the combination of phases that light shows and that contains that of its own arm once.

    In a PUC whose arms interfere, this is the phase of the arm minus that of the other one; elsewhere, it is a mean of
    loop phases. The shape is ``(2E, 2E + J)``, with arms before joints; zero if light does not show the phase.
    """
    n_arms, numbers = 2 * mesh.n_pucs, np.arange(2 * mesh.n_pucs)
    weights = np.zeros((n_arms, n_arms + len(mesh.joints)))
    weights[numbers, numbers], weights[numbers, numbers ^ 1] = 1.0, -1.0
    # The phase of a waveguide in a cell without interference continues in the joint at its end, and so does the mean
    # phase of the two arms of a PUC, at both of its outputs.
    in_joints = np.zeros((len(mesh.joints), weights.shape[1]))
    in_joints[:, n_arms:] = np.eye(len(mesh.joints))
    joint_at = _joint_at(mesh)
    for arm in numbers:
        alone = not mesh.interferes[arm // 2]
        for end in (arm,) if alone else (arm, arm ^ 1):
            if (joint := joint_at[_exit(end)]) >= 0:
                in_joints[joint, arm] += 1.0 if alone else 0.5
    directions, count = illuminated_joint_directions(mesh, sources, monitors)
    by_loops = directions[:, :count].T @ in_joints
    for arm in np.flatnonzero(np.repeat(~mesh.interferes, 2)):
        strength = float((by_loops[:, arm] ** 2).sum())
        weights[arm] = by_loops[:, arm] @ by_loops / strength if strength > _INVISIBLE else 0.0
    weights[~np.repeat(illuminated_part(mesh, sources, monitors).pucs, 2)] = 0.0
    weights.setflags(write=False)
    return weights


def _joint_at(mesh: MeshTopology) -> NDArray[np.int64]:
    """Return the joint at every PUC-port, -1 without one."""
    joint_at = np.full(4 * mesh.n_pucs, -1, dtype=np.int64)
    joint_at[mesh.joints] = np.arange(len(mesh.joints))[:, None]
    return joint_at


def _exit(arm: int | np.integer[Any]) -> int:
    """Return the PUC-port at end B of an arm."""
    return int(4 * (arm // 2) + 2 + arm % 2)


def gauge_fixed_difference(mesh: MeshTopology, difference_rad: Real, loops: NDArray[np.int64] | None = None) -> Real:
    """Return the difference of two sets of joint phases without unobservable parts and full turns, shape ``(joints,)``.

    The loop phases of the difference are wrapped to ±π. The result is the shortest vector with these loop phases.
    ``loops`` are the observable loops, such as those of :func:`illuminated_loop_basis`; by default all.
    """
    basis = loop_basis(mesh) if loops is None else loops
    loop_rad = wrapped(basis @ difference_rad)
    # Wrapping comes before projection; otherwise a harmless 2π on one joint would become an error of many loops.
    return basis.T @ np.linalg.solve((basis @ basis.T).astype(np.float64), loop_rad)


def common_phase_rad(mesh: MeshTopology, difference_rad: Real, loops: NDArray[np.int64] | None = None) -> float:
    """Return the phase per PUC, modulo half a turn, that explains most of a difference of joint phases.

    Subtract it before wrapping loop phases. ``loops`` are as for :func:`gauge_fixed_difference`.
    """
    basis = loop_basis(mesh) if loops is None else loops
    if not len(basis):
        return 0.0
    loop_rad, turns = basis @ difference_rad, basis.sum(axis=1)
    # If all loops have even numbers of PUCs, half a turn changes nothing. On this grid even the largest loop changes by
    # less than a radian per step.
    full = 2.0 * np.pi if np.any(turns % 2) else np.pi
    tried = np.linspace(0.0, full, round(16 / np.pi * full) * max(int(np.abs(turns).max()), 1), endpoint=False)
    best = tried[int((wrapped(loop_rad - tried[:, None] * turns) ** 2).sum(axis=1).argmin())]
    residual = wrapped(loop_rad - best * turns)
    return float(wrapped(best + turns @ residual / max(float(turns @ turns), 1.0)))


def loop_rms_rad(mesh: MeshTopology, difference_rad: Real) -> float:
    """Return √(Σ r² / N_loop) of a joint-phase difference r without unobservable parts."""
    residual = gauge_fixed_difference(mesh, difference_rad)
    return float(np.sqrt((residual**2).sum() / len(loop_basis(mesh))))


def wrapped(phase_rad: Real) -> Real:
    """Return phases wrapped to -π … π."""
    return (phase_rad + np.pi) % (2.0 * np.pi) - np.pi


def _left_null_lattice(matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a basis of the integer vectors v with v·matrix = 0, shape ``(rows - rank, rows)``."""
    rows, columns = matrix.shape
    work = np.hstack([matrix, np.eye(rows, dtype=np.int64)])
    return work[_echelon(work, columns) :, columns:].copy()


def _echelon(work: NDArray[np.int64], columns: int) -> int:
    """Bring the first columns of a matrix to echelon form, by whole multiples of rows in place; return their rank."""
    rank = 0
    for column in range(columns):
        # Euclid's algorithm in the column: the smallest entry divides the others until only the divisor is left.
        while len(candidates := rank + np.flatnonzero(work[rank:, column])) > 1:
            # Among equal divisors the row with the smallest entries is used, which keeps integers small.
            size = np.abs(work[candidates, column])
            pivot = candidates[np.lexsort((np.abs(work[candidates]).sum(axis=1), size))[0]]
            other_candidates = candidates[candidates != pivot]
            times = np.rint(work[other_candidates, column] / work[pivot, column]).astype(np.int64)
            work[other_candidates] -= times[:, None] * work[pivot]
        if len(candidates):
            work[[rank, candidates[0]]] = work[[candidates[0], rank]]
            rank += 1
    return rank


def _shortened(basis: NDArray[np.int64]) -> NDArray[np.int64]:
    for _ in range(_MAX_ROUNDS):
        changed = False
        for row in range(len(basis)):
            # Rounded projections subtract whole multiples only, so the vectors stay integer and the lattice unchanged.
            overlap, length = basis @ basis[row], (basis**2).sum(axis=1)
            times = np.rint(overlap / length).astype(np.int64)
            times[row] = 0
            gain = 2 * times * overlap - times**2 * length
            best = int(np.argmax(gain))
            if gain[best] > 0:
                basis[row] -= times[best] * basis[best]
                changed = True
        if not changed:
            break
    # A fixed order, so that records made with different versions of numpy number their loops alike.
    order = np.lexsort((np.abs(basis).argmax(axis=1), (basis**2).sum(axis=1)))
    return basis[order]
