"""Light in the emulated chip: all waves in both directions, with what joints and facets send back.

Every PUC-port u = 4·PUC + 2·end + rail has a wave a_u that enters the PUC there and a wave b_u that leaves it. Cells
make b of a; joints pass the b of one PUC-port to the a of the other, and send a little back; at a port of the mesh the
facet does the same, and light comes in. The a are the unknowns of one linear system.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.waves.elimination import dissect
from lumion_hw.mesh.waves.engines import WaveEquations, choose_engine

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Mirrors:
    """What is sent back, as amplitudes.

    Attributes:
        facet: Shape ``(n_ports,)``; of the wave that leaves a port of the mesh.
        joint: Shape ``(2 J,)``; of the wave that leaves into a joint, first at its one end, then at its other.
        passed: Shape ``(J,)``; amplitude that passes a joint.
    """

    facet: Complex
    joint: Complex
    passed: Complex


class Waves:
    """Solves a chip of some graph; what depends on the graph alone is worked out once.

    Args:
        mesh: The graph.
        sends_back: Joints and facets send light back; without it the matrix is sparser.
    """

    def __init__(self, mesh: MeshTopology, *, sends_back: bool) -> None:
        self._mesh, self.n_pucs = mesh, mesh.n_pucs
        self._engine = choose_engine(None)
        self._graph = _graph_of(mesh, sends_back)

    def leaving(
        self, transfer: Complex, joint_phase: Real, sample: Integers, port: Integers, mirrors: Mirrors | None = None
    ) -> Complex:
        """Return the fields that leave all ports for unit light that comes to one.

        Args:
            transfer: Shape ``(samples, E, 2, 2)``; T of all cells of every sample: a heat, a frequency, a polarization.
            joint_phase: Shape ``(samples, J)``.
            sample: Shape ``(n,)``; the sample that each light goes through. Each is eliminated once.
            port: Shape ``(n,)``; where each comes in.
            mirrors: What is sent back; needed where this was made for it.

        Returns:
            Shape ``(n, n_ports)``.
        """
        graph = self._graph
        elements = np.ascontiguousarray(transfer.reshape(len(transfer), -1).T)
        factors = np.exp(-1j * joint_phase).T
        if mirrors is not None:
            facet = np.broadcast_to(mirrors.facet[:, None], (len(mirrors.facet), factors.shape[1]))
            sent_back = np.tile(factors, (2, 1)) * mirrors.joint[:, None]
            factors = np.concatenate([factors * mirrors.passed[:, None], sent_back, facet])
        sources, source = np.unique(port, return_inverse=True)
        waves = self._engine.waves(
            graph.equations,
            elements,
            np.ascontiguousarray(factors),
            graph.place[self._mesh.port_puc_port[sources]],
            graph.place[graph.out_wave],
        )
        parts = elements[graph.out_element].T[sample] * waves[sample, :, source]
        leaving: Complex = parts[:, 0::2] + parts[:, 1::2]
        return leaving


@dataclass(frozen=True, eq=False)
class _Graph:
    """What follows from the graph alone.

    Attributes:
        place: Place of every wave in the elimination.
        equations: The elimination.
        out_wave: Shape ``(2 n_ports,)``; the two waves that make the light out of every port …
        out_element: … and the elements of T by which.
    """

    place: Integers
    equations: WaveEquations
    out_wave: Integers
    out_element: Integers


_graphs: dict[tuple[bytes, bool], _Graph] = {}
_guard = threading.Lock()


def _graph_of(mesh: MeshTopology, sends_back: bool) -> _Graph:
    key = b"".join(part.tobytes() for part in (mesh.mate, mesh.port_puc_port, mesh.corners)), sends_back
    with _guard:
        if key not in _graphs:
            _graphs[key] = _worked_out(mesh, sends_back)
        return _graphs[key]


def _worked_out(mesh: MeshTopology, sends_back: bool) -> _Graph:
    n, n_joints = 4 * mesh.n_pucs, len(mesh.joints)
    place = _elimination_order(mesh)
    ends = mesh.joints  # shape (J, 2): the two PUC-ports of every joint
    # (wave entering at, wave leaving at that feeds it, factor)
    fed = [(ends[:, 0], ends[:, 1], np.arange(n_joints)), (ends[:, 1], ends[:, 0], np.arange(n_joints))]
    if sends_back:
        fed += [(ends[:, side], ends[:, side], n_joints * (1 + side) + np.arange(n_joints)) for side in (0, 1)]
        ports = mesh.port_puc_port
        fed += [(ports, ports, 3 * n_joints + np.arange(mesh.n_ports))]
    into, leaving, factor = (np.concatenate(part) for part in zip(*fed, strict=True))
    wave, element = _made_of(leaving)
    equations = WaveEquations.compile(
        place[np.repeat(into, 2)],
        place[wave],
        element,
        np.repeat(factor, 2),
        n_waves=n,
        entry=np.empty(0, dtype=np.int64),
    )
    out_wave, out_element = _made_of(mesh.port_puc_port)
    return _Graph(place, equations, out_wave, out_element)


def _made_of(leaving: Integers) -> tuple[Integers, Integers]:
    """Return the two waves that a leaving one is made of, and the elements of T: those of T, or of its transpose."""
    puc, end, rail = leaving // 4, leaving // 2 % 2, leaving % 2
    waves, elements = [], []
    for other in (0, 1):
        waves.append(4 * puc + 2 * (1 - end) + other)
        # Leaving at B: T[rail, other]. Leaving at A, on the way back: T[other, rail].
        elements.append(4 * puc + np.where(end == 1, 2 * rail + other, 2 * other + rail))
    return np.stack(waves, axis=1).ravel(), np.stack(elements, axis=1).ravel()


def _elimination_order(mesh: MeshTopology) -> Integers:
    """Return the place of every wave: light from outside first, which fills in nothing, then as PUCs are dissected."""
    rank = np.empty(mesh.n_pucs, dtype=np.int64)
    rank[dissect(mesh)] = np.arange(mesh.n_pucs)
    waves = np.arange(4 * mesh.n_pucs)
    place = np.empty_like(waves)
    place[np.lexsort((waves, rank[waves // 4], mesh.mate >= 0))] = waves
    return place
