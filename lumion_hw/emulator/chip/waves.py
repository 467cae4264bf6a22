"""Wave equations of the emulated chip, with reflections at facets and at joints (waveguides between PUCs).

Every PUC has four ports, numbered u = 4·PUC + 2·end + rail. At each of them a wave a_u enters the PUC and a wave b_u
leaves it. The unknowns of the linear system are all a_u.
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
    """Reflected and transmitted amplitudes of the chip's facets, and of the joints (waveguides) between PUCs.

    Attributes:
        facet: Shape ``(n_ports,)``; reflected amplitude at each port of the mesh.
        joint: Shape ``(2 J,)`` for J joints; reflected amplitude at the first end of every joint, then at the second
            end of every joint.
        passed: Shape ``(J,)``; transmitted amplitude of each joint.
    """

    facet: Complex
    joint: Complex
    passed: Complex


class Waves:
    """Solver for the waves on a mesh.

    Args:
        sends_back: Whether facets and joints reflect light.
    """

    def __init__(self, mesh: MeshTopology, *, sends_back: bool) -> None:
        self._mesh, self.n_pucs = mesh, mesh.n_pucs
        self._engine = choose_engine(None)
        self._graph = _shared_graph(mesh, sends_back)

    def output_fields(
        self, transfer: Complex, joint_phase: Real, sample: Integers, port: Integers, mirrors: Mirrors | None = None
    ) -> Complex:
        """Return the fields at all ports for n calculations with unit power into one port, shape ``(n, n_ports)``.

        Args:
            transfer: Shape ``(s, E, 2, 2)``; transfer matrices of all E PUCs in s states of the chip.
            joint_phase: Shape ``(s, J)``; phases of all J joints in rad, for each state.
            sample: Shape ``(n,)``; index of the state for each calculation.
            port: Shape ``(n,)``; input port of each calculation.
            mirrors: Reflections; required with ``sends_back``.
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
        output_fields: Complex = parts[:, 0::2] + parts[:, 1::2]
        return output_fields


@dataclass(frozen=True, eq=False)
class _Graph:
    """Wave equations of a mesh, which all chips with this mesh share.

    Attributes:
        place: Place of each PUC-port's wave in the elimination order.
        out_wave: Waves that leave at each port, two per port.
        out_element: Cell element that each of these waves passes.
    """

    place: Integers
    equations: WaveEquations
    out_wave: Integers
    out_element: Integers


_graphs: dict[tuple[bytes, bool], _Graph] = {}
_graphs_lock = threading.Lock()


def _shared_graph(mesh: MeshTopology, sends_back: bool) -> _Graph:
    key = b"".join(part.tobytes() for part in (mesh.mate, mesh.port_puc_port, mesh.corners)), sends_back
    with _graphs_lock:
        if key not in _graphs:
            _graphs[key] = _build_graph(mesh, sends_back)
        return _graphs[key]


def _build_graph(mesh: MeshTopology, sends_back: bool) -> _Graph:
    n, n_joints = 4 * mesh.n_pucs, len(mesh.joints)
    position = _elimination_order(mesh)
    ends = mesh.joints  # shape (J, 2): the two PUC-ports of each joint
    # (PUC-port of the entering wave, PUC-port of the leaving wave that feeds it, factor)
    feeds = [(ends[:, 0], ends[:, 1], np.arange(n_joints)), (ends[:, 1], ends[:, 0], np.arange(n_joints))]
    if sends_back:
        feeds += [(ends[:, side], ends[:, side], n_joints * (1 + side) + np.arange(n_joints)) for side in (0, 1)]
        ports = mesh.port_puc_port
        feeds += [(ports, ports, 3 * n_joints + np.arange(mesh.n_ports))]
    into, output_fields, factor = (np.concatenate(part) for part in zip(*feeds, strict=True))
    wave, element = _incident_waves(output_fields)
    equations = WaveEquations.compile(
        position[np.repeat(into, 2)],
        position[wave],
        element,
        np.repeat(factor, 2),
        n_waves=n,
        entry=np.empty(0, dtype=np.int64),
    )
    out_wave, out_element = _incident_waves(mesh.port_puc_port)
    return _Graph(position, equations, out_wave, out_element)


def _incident_waves(output_fields: Integers) -> tuple[Integers, Integers]:
    puc, end, rail = output_fields // 4, output_fields // 2 % 2, output_fields % 2
    waves, elements = [], []
    for other in (0, 1):
        waves.append(4 * puc + 2 * (1 - end) + other)
        # Leaving at B: T[rail, other]. Leaving at A, in the reverse direction: T[other, rail].
        elements.append(4 * puc + np.where(end == 1, 2 * rail + other, 2 * other + rail))
    return np.stack(waves, axis=1).ravel(), np.stack(elements, axis=1).ravel()


def _elimination_order(mesh: MeshTopology) -> Integers:
    rank = np.empty(mesh.n_pucs, dtype=np.int64)
    rank[dissect(mesh)] = np.arange(mesh.n_pucs)
    waves = np.arange(4 * mesh.n_pucs)
    position = np.empty_like(waves)
    position[np.lexsort((waves, rank[waves // 4], mesh.mate >= 0))] = waves
    return position
