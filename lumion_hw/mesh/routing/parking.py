"""Parking: states of unused PUCs that let stray light leave the mesh.

In a closed ring of PUCs, stray light would build up (Zand 2020). A ring is opened by changing the state of a PUC that
it passes once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.topology import MeshTopology, State, closed_rings
from lumion_hw.mesh.routing.request import STATES, check_states, opposite_state


@dataclass(frozen=True)
class Parking:
    """States of all PUCs of a mesh, in which unused PUCs guide stray light out.

    Attributes:
        states: State of every PUC that can be set, including PUCs in use.
        rings: PUCs of each closed ring that could not be opened.
        n_opened: Number of rings that were opened.
    """

    states: dict[int, State]
    rings: tuple[tuple[int, ...], ...]
    n_opened: int


def park_unused_pucs(
    mesh: MeshTopology,
    used: Mapping[int, State],
    *,
    unusable: Collection[tuple[int, State]] = (),
    heater_power_mw: ArrayLike | None = None,
) -> Parking:
    """Set every unused PUC so that stray light leaves the mesh and closed rings are opened.

    Where the choice is free, a PUC takes the state with less heater power, or cross if no heater powers are given. PUCs
    without a usable state are omitted.

    Args:
        mesh: The mesh.
        used: States in use; they are not changed.
        unusable: ``(puc, state)`` pairs that cannot be set.
        heater_power_mw: Shape ``(n_pucs, 2)``; heater power of each PUC in bar and in cross.

    Raises:
        ConfigError: A PUC or state does not exist, or the heater powers have the wrong shape.
    """
    check_states(mesh, {*used.items(), *unusable})
    power = np.zeros((mesh.n_pucs, 2)) if heater_power_mw is None else np.asarray(heater_power_mw, dtype=np.float64)
    if power.shape != (mesh.n_pucs, 2):
        raise ConfigError(
            f"heater powers have the wrong shape, {power.shape}", hint=f"Give shape {(mesh.n_pucs, 2)}: bar, cross."
        )
    states: dict[int, State] = dict(used)
    free: set[int] = set()
    for puc in set(range(mesh.n_pucs)) - set(used):
        options = [state for state in STATES if (puc, state) not in unusable]
        if options:
            # An unheated balanced PUC is in cross, so cross wins a tie.
            states[puc] = min(options, key=lambda state: (power[puc, STATES.index(state)], state == "bar"))
        if len(options) == 2:
            free.add(puc)
    return _open_rings(mesh, states, free, power.tolist())


def _open_rings(
    mesh: MeshTopology, states: dict[int, State], free: set[int], power: Sequence[Sequence[float]]
) -> Parking:
    opened = 0
    while True:
        rings = _rings(mesh, states)
        # Each opened ring joins a path or another ring. The number of rings falls by one each time, so the loop ends.
        free_ring = next((ring for ring in rings if _gates(ring, free)), None)
        if free_ring is None:
            return Parking(
                dict(sorted(states.items())), tuple(tuple(wave // 4 for wave in ring) for ring in rings), opened
            )

        def extra_mw(puc: int) -> float:
            index = STATES.index(states[puc])
            return power[puc][1 - index] - power[puc][index]

        gate = min(_gates(free_ring, free), key=lambda puc: (extra_mw(puc), puc))
        states[gate] = opposite_state(states[gate])
        opened += 1


def _rings(mesh: MeshTopology, states: Mapping[int, State]) -> list[tuple[int, ...]]:
    full: list[State] = [states.get(puc, "cross") for puc in range(mesh.n_pucs)]
    one_direction: list[tuple[int, ...]] = []
    checked: set[frozenset[int]] = set()
    for ring in closed_rings(mesh, full):
        # The opposite direction of rotation passes the same joints.
        joints = frozenset(min(wave, int(mesh.mate[wave])) for wave in ring)
        if joints not in checked and all(wave // 4 in states for wave in ring):
            checked.add(joints)
            one_direction.append(ring)
    return one_direction


def _gates(ring: Sequence[int], free: set[int]) -> list[int]:
    passed = [wave // 4 for wave in ring]
    # A ring that uses both rails of a PUC would be split into two rings, or only be reconnected to itself.
    return [puc for puc in passed if puc in free and passed.count(puc) == 1]
