"""Dilated switch fabrics: every permutation is routed, and no switch carries the light of two circuits."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from lumion_hw.mesh.layout.faults import MeshFaults
from lumion_hw.mesh.layout.topologies import build_mesh
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.routing.request import RouteRequest
from lumion_hw.mesh.routing.result import Path
from lumion_hw.mesh.routing.router import route


def permuted(targets: Sequence[int]) -> RouteRequest:
    """Return a request that connects input i to output ``targets[i]``."""
    ports = len(targets)
    return RouteRequest([(source, ports + int(target)) for source, target in enumerate(targets)])


def shared_pucs(paths: Sequence[Path]) -> list[int]:
    """Return the PUCs on more than one path."""
    pucs = np.array([puc for path in paths for puc in path.pucs])
    numbers, counts = np.unique(pucs, return_counts=True)
    return [int(number) for number in numbers[counts > 1]]


@pytest.mark.parametrize("mesh", [build_mesh("dilated-benes", (4,)), build_mesh("spanke", (4,))], ids=repr)
def test_every_permutation_of_four_ports_is_routed_without_a_shared_switch(mesh: MeshTopology) -> None:
    for targets in itertools.permutations(range(4)):
        routing = route(mesh, permuted(targets))
        assert [mesh.trace(source, routing.states).port for source in range(4)] == [4 + target for target in targets]
        assert not shared_pucs(routing.paths)
        assert routing.outcome == "optimal"


@pytest.mark.parametrize("mesh", [build_mesh("dilated-benes", (8,)), build_mesh("spanke", (8,))], ids=repr)
def test_permutations_of_eight_ports_are_routed_without_a_shared_switch(mesh: MeshTopology) -> None:
    rng = np.random.default_rng(1)
    for _ in range(100):
        routing = route(mesh, permuted(rng.permutation(8).tolist()))
        assert len(routing.paths) == 8
        assert not shared_pucs(routing.paths)


def test_circuits_of_a_benes_network_share_switches() -> None:
    assert shared_pucs(route(build_mesh("benes", (4,)), permuted([0, 1, 2, 3])).paths)


def test_constraint_programming_finds_unshared_paths_too() -> None:
    mesh = build_mesh("dilated-benes", (4,))
    for targets in ([0, 1, 2, 3], [2, 0, 3, 1]):
        request = replace(permuted(targets), rounds=0, exact_search="always")
        assert not shared_pucs(route(mesh, request).paths)


def test_a_new_circuit_uses_no_switch_of_an_active_one() -> None:
    mesh = build_mesh("dilated-benes", (4,))
    for first, second in itertools.product(itertools.product((0,), range(4, 8)), itertools.product((1,), range(4, 8))):
        if first[1] == second[1]:
            continue
        active = route(mesh, RouteRequest([first])).paths
        routing = route(mesh, RouteRequest([second], active=active))
        assert not shared_pucs((*routing.paths, *active))


def test_active_circuits_move_if_a_new_one_needs_their_switches() -> None:
    mesh = build_mesh("dilated-benes", (4,))
    active: tuple[Path, ...] = ()
    for source, target in ((0, 4), (2, 7), (1, 6), (3, 5)):
        routing = route(mesh, RouteRequest([(source, target)], active=active, move_price=1.0))
        active = (*routing.paths, *routing.active)
        assert not shared_pucs(active)


def test_circuits_share_switches_if_a_fault_leaves_no_other_paths() -> None:
    """Light of input 0 can only take the upper half, and so can that of input 1, whose first switch is broken too."""
    mesh = build_mesh("dilated-benes", (4,))
    faults = MeshFaults(stuck={0: "bar", 1: "bar"})
    routing = route(mesh, replace(permuted([0, 1, 2, 3]), faults=faults))
    assert [path.target for path in routing.paths] == [4, 5, 6, 7]
    assert shared_pucs(routing.paths)
