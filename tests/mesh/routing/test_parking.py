"""Parking of unused PUCs: explicit states, open ways for strays, no closed ring that can be helped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topology import EXIT_XOR, State
from lumion_hw.mesh.routing import RouteRequest, route
from lumion_hw.mesh.routing.parking import park_unused_pucs
from tests.effort import examples

MESH = HexMesh.rings(3)


def closed_waves(mesh: HexMesh, states: dict[int, State]) -> set[int]:
    """Return the waves that no port's light ever reaches, by following every port."""
    left = set(range(4 * mesh.n_pucs))
    for entry in mesh.port_puc_port.tolist():
        node = entry
        while node >= 0:
            left.discard(node)
            node = int(mesh.mate[node ^ EXIT_XOR[states[node // 4]]])
    return left


def test_an_idle_mesh_is_parked_in_cross_without_rings(smartlight: HexMesh) -> None:
    parked = park_unused_pucs(smartlight, {})
    assert parked.states == dict.fromkeys(range(72), "cross")
    assert (parked.rings, parked.n_opened) == ((), 0)
    assert not closed_waves(smartlight, parked.states)


def test_a_mesh_that_rests_in_bar_has_every_cell_opened(smartlight: HexMesh) -> None:
    """All bar would be 17 closed cells; heaters that are off in bar make it the cheaper rest."""
    power_mw = np.tile([0.0, 1.0], (72, 1))
    parked = park_unused_pucs(smartlight, {}, heater_power_mw=power_mw)
    assert not closed_waves(smartlight, parked.states)
    assert parked.rings == ()
    assert list(parked.states.values()).count("cross") == parked.n_opened <= 17


def test_a_ring_of_pucs_in_use_is_reported_and_left(smartlight: HexMesh) -> None:
    """PUCs 1 6 10 11 7 2 in bar are one cell; nothing may be changed, so the ring stays and is named."""
    cell = (1, 6, 10, 11, 7, 2)
    parked = park_unused_pucs(smartlight, dict.fromkeys(cell, "bar"))
    assert [sorted(ring) for ring in parked.rings] == [sorted(cell)]
    assert {wave // 4 for wave in closed_waves(smartlight, parked.states)} == set(cell)


def test_states_that_cannot_be_set_are_not_chosen(smartlight: HexMesh) -> None:
    unusable: list[tuple[int, State]] = [(3, "cross"), (4, "bar"), (4, "cross")]
    parked = park_unused_pucs(smartlight, {}, unusable=unusable)
    assert parked.states[3] == "bar"
    assert 4 not in parked.states
    assert len(parked.states) == 71


@examples(60)
@given(seed=st.integers(0, 2**32 - 1))
def test_whatever_is_in_use_stays_and_no_ring_with_a_free_puc_is_left(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(MESH.n_pucs)[: int(rng.integers(0, 50))].tolist()
    used: dict[int, State] = {puc: "bar" if rng.random() < 0.7 else "cross" for puc in chosen}
    parked = park_unused_pucs(MESH, used)
    assert {puc: parked.states[puc] for puc in used} == used
    assert len(parked.states) == MESH.n_pucs
    for ring in parked.rings:
        alone = [puc for puc in ring if puc not in used and ring.count(puc) == 1]
        assert not alone
    assert {wave // 4 for wave in closed_waves(MESH, parked.states)} == {puc for ring in parked.rings for puc in ring}


def test_strays_of_a_routing_leave_through_unused_ports(smartlight: HexMesh) -> None:
    """What leaks at a PUC takes its other output; to first order it must end at no port of any circuit."""
    pairs = [(0, 20), (39, 9)]
    routing = route(smartlight, RouteRequest(pairs))
    parked = park_unused_pucs(smartlight, routing.states)
    assert parked.rings == ()
    busy = {port for pair in pairs for port in pair}
    shared = [puc for path in routing.paths for puc in path.pucs]
    ends = []
    for source, _ in pairs:
        node = int(smartlight.port_puc_port[source])
        while node >= 0:
            state = parked.states[node // 4]
            astray = node ^ EXIT_XOR["cross" if state == "bar" else "bar"]
            if shared.count(node // 4) == 1:  # a PUC that two circuits share leaks from one into the other
                ends.append(follow(smartlight, astray, parked.states))
            node = int(smartlight.mate[node ^ EXIT_XOR[state]])
    assert ends
    assert not busy & set(ends)


def follow(mesh: HexMesh, leaving: int, states: dict[int, State]) -> int:
    """Return the port where light that leaves a PUC-port ends."""
    while mesh.mate[leaving] >= 0:
        node = int(mesh.mate[leaving])
        leaving = node ^ EXIT_XOR[states[node // 4]]
    return int(mesh.port_at[leaving])


def test_what_does_not_exist_cannot_be_parked(smartlight: HexMesh) -> None:
    with pytest.raises(ConfigError, match="PUC 72 cannot be in state 'bar'"):
        park_unused_pucs(smartlight, {72: "bar"})
    with pytest.raises(ConfigError, match="heater powers have the wrong shape"):
        park_unused_pucs(smartlight, {}, heater_power_mw=np.zeros(72))
