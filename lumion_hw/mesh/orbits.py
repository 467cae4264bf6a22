"""Walks over the directed waves of a mesh: closed orbits of a full setting, and distances to the ports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from lumion_hw.mesh.topology import MeshTopology, State


def followers(mesh: MeshTopology, states: Sequence[State]) -> list[int]:
    """Return the wave that follows each wave in a full setting, or ``-1 - port`` where it leaves.

    Args:
        mesh: The mesh.
        states: State of every PUC.
    """
    crossed = np.repeat(np.array([state == "cross" for state in states], dtype=np.int64), 4)
    following: list[int] = mesh.successors[np.arange(4 * mesh.n_pucs), crossed].tolist()
    return following


def closed_orbits(mesh: MeshTopology, states: Sequence[State]) -> tuple[tuple[int, ...], ...]:
    """Return the rings in which light would go round for ever, as the waves passed in order.

    Every ring comes twice, once for each sense of rotation.

    Args:
        mesh: The mesh.
        states: State of every PUC.
    """
    following = followers(mesh, states)
    open_ended = bytearray(len(following))
    for start in mesh.port_puc_port.tolist():
        node = start
        while node >= 0:
            open_ended[node] = 1
            node = following[node]
    orbits: list[tuple[int, ...]] = []
    for start in range(len(following)):
        if open_ended[start]:
            continue
        orbit, node = [], start
        while not open_ended[node]:
            open_ended[node] = 1
            orbit.append(node)
            node = following[node]
        orbits.append(tuple(orbit))
    return tuple(orbits)


def hops_to_port(mesh: MeshTopology) -> NDArray[np.int64]:
    """Return the fewest PUCs from entering each PUC-port to leaving at each port, shape ``(n_ports, 4 n_pucs)``.

    All ports at once, one more PUC per step; ``n_pucs * 8`` (further than any walk) where there is no way.
    """
    successors = mesh.successors
    never = 8 * mesh.n_pucs
    # Columns after the waves stand for the ports; -1 - port picks them from the end.
    reached = np.full((mesh.n_ports, 4 * mesh.n_pucs + mesh.n_ports), never, dtype=np.int64)
    reached[np.arange(mesh.n_ports), -1 - np.arange(mesh.n_ports)] = 0
    waves = reached[:, : 4 * mesh.n_pucs]
    while True:
        nearer = np.minimum(reached[:, successors[:, 0]], reached[:, successors[:, 1]]) + 1
        if np.array_equal(np.minimum(nearer, never), waves):
            break
        waves[:] = np.minimum(nearer, never)
    hops = waves.copy()
    hops.setflags(write=False)
    return hops


def wave_colours(mesh: MeshTopology) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[bool, ...]]:
    """Colour waves and ports with 0 and 1 so that every PUC passed flips the colour, as far as that goes.

    On a bipartite lattice (honeycomb, squares) it goes everywhere, and the parity of every path is known beforehand;
    where waveguides pass PUCs by, paths of both parities join the same ports, and it does not.

    Returns:
        Shape ``(4 n_pucs + n_ports,)`` each: the connected part every wave or port (as the end of a path) belongs to,
        and its colour; then whether each part could be coloured.
    """
    size = 4 * mesh.n_pucs
    neighbours: list[list[int]] = [[] for _ in range(size + mesh.n_ports)]
    for wave, following in enumerate(np.where(mesh.successors < 0, size - 1 - mesh.successors, mesh.successors)):
        for node in following.tolist():
            neighbours[wave].append(node)
            neighbours[node].append(wave)
    part = np.full(len(neighbours), -1, dtype=np.int64)
    colour = np.zeros(len(neighbours), dtype=np.int64)
    fits: list[bool] = []
    for start in range(len(neighbours)):
        if part[start] >= 0:
            continue
        part[start] = len(fits)
        fits.append(True)
        todo = [start]
        while todo:
            node = todo.pop()
            for other in neighbours[node]:
                if part[other] < 0:
                    part[other], colour[other] = part[start], colour[node] ^ 1
                    todo.append(other)
                elif colour[other] == colour[node]:
                    fits[part[start]] = False
    return part, colour, tuple(fits)
