"""Parking: a state for every PUC that no circuit uses, so that strays leave the mesh and no ring keeps light.

With all PUCs in bar or cross the waves fall into ways from port to port and closed rings. Light that leaks from a
circuit enters such a way or ring; a way ends at an unused port, a ring with little loss stores what leaks into it
(Zand 2020). Changing the state of a PUC that a ring passes on one side only joins the ring to whatever passes on the
other side, so every ring with such a free PUC can be opened.
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
    """A full setting of a mesh.

    Attributes:
        states: State of every PUC that can be set, those in use included.
        rings: PUCs of the closed rings that are left, because every PUC on them is in use or cannot be set otherwise.
        n_opened: How many rings were opened.
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
    """Park the PUCs that are not in use.

    A PUC is parked in its cooler state where heater powers are given, else in cross, and in the other one if that
    opens a ring. A PUC with neither state usable is left out and counts as whatever it is: rings through it are taken
    to be open.

    Args:
        mesh: The mesh.
        used: States in use; they stay.
        unusable: ``(puc, state)`` that cannot be set.
        heater_power_mw: Shape ``(n_pucs, 2)``; power that holds each PUC in bar and in cross.

    Raises:
        ConfigError: A PUC or state does not exist, or heater powers are of another shape.
    """
    check_states(mesh, {*used.items(), *unusable})
    power = np.zeros((mesh.n_pucs, 2)) if heater_power_mw is None else np.asarray(heater_power_mw, dtype=np.float64)
    if power.shape != (mesh.n_pucs, 2):
        raise ConfigError(f"heater powers of shape {power.shape}", hint=f"Give shape {(mesh.n_pucs, 2)}: bar, cross.")
    states: dict[int, State] = dict(used)
    free: set[int] = set()
    for puc in set(range(mesh.n_pucs)) - set(used):
        options = [state for state in STATES if (puc, state) not in unusable]
        if options:
            states[puc] = min(options, key=lambda state: (power[puc, STATES.index(state)], state == "bar"))
        if len(options) == 2:
            free.add(puc)
    return _opened(mesh, states, free, power.tolist())


def _opened(mesh: MeshTopology, states: dict[int, State], free: set[int], power: Sequence[Sequence[float]]) -> Parking:
    """Open every ring that has a free PUC."""
    opened = 0
    while True:
        rings = _rings(mesh, states)
        # Each opened ring becomes part of a way or of another ring: there is one less every time, so this ends.
        found = next((ring for ring in rings if _gates(ring, free)), None)
        if found is None:
            return Parking(
                dict(sorted(states.items())), tuple(tuple(wave // 4 for wave in ring) for ring in rings), opened
            )

        def extra_mw(puc: int) -> float:
            now = STATES.index(states[puc])
            return power[puc][1 - now] - power[puc][now]

        gate = min(_gates(found, free), key=lambda puc: (extra_mw(puc), puc))
        states[gate] = opposite_state(states[gate])
        opened += 1


def _rings(mesh: MeshTopology, states: Mapping[int, State]) -> list[tuple[int, ...]]:
    """Return one sense of rotation of every closed ring whose PUCs all have a state."""
    full: list[State] = [states.get(puc, "cross") for puc in range(mesh.n_pucs)]
    kept: list[tuple[int, ...]] = []
    seen: set[frozenset[int]] = set()
    for ring in closed_rings(mesh, full):
        # The other sense of rotation passes the same joints.
        joints = frozenset(min(wave, int(mesh.mate[wave])) for wave in ring)
        if joints not in seen and all(wave // 4 in states for wave in ring):
            seen.add(joints)
            kept.append(ring)
    return kept


def _gates(ring: Sequence[int], free: set[int]) -> list[int]:
    """Return the free PUCs that a ring passes once: changing one joins the ring to what passes on the other side."""
    passed = [wave // 4 for wave in ring]
    return [puc for puc in passed if puc in free and passed.count(puc) == 1]
