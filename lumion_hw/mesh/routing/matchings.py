"""All-to-all by matchings: the fewest configurations in which every port is once joined to every other it can reach.

With n ports a configuration joins n / 2 pairs at best, so n - 1 configurations are needed at least (n if n is odd, one
port being idle in each). A set of n - 1 is a 1-factorisation of the complete graph whose every factor can be routed;
there are many factorisations, and not every matching can be routed on a given mesh (PipSwitch 2025).
Where no such set is found, further configurations carry the pairs that are left.

A circuit and its reverse share one path, so a pair serves both directions. Where light never turns back, as in a
rectangular mesh, ports of one side cannot be joined at all: every one on the left then meets every one on the right,
and as many configurations are needed as the busiest port has partners.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import ArrayLike

from lumion_hw.errors import ConfigError, NoPathError, VerifyError
from lumion_hw.mesh.layout.faults import MeshFaults
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.routing.matching_search import Matcher
from lumion_hw.mesh.routing.negotiation import Negotiation
from lumion_hw.mesh.routing.reasons import check_limits, no_path_alone
from lumion_hw.mesh.routing.request import RouteRequest, RoutingProblem, check_ports, problem_for
from lumion_hw.mesh.routing.result import Path, WavePath, traced_paths
from lumion_hw.mesh.routing.search import SearchBudgetExceeded


@dataclass(frozen=True)
class Configuration:
    """One setting of the mesh.

    Attributes:
        paths: One circuit per pair, traced through the states.
        states: State of every PUC in use.
    """

    paths: tuple[Path, ...]
    states: dict[int, State]

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The pairs of ports joined, smaller port first."""
        return tuple((path.source, path.target) for path in self.paths)


@dataclass(frozen=True)
class AllToAll:
    """Configurations that join every port with every other that it can reach exactly once.

    Attributes:
        ports: The ports.
        configurations: The settings.
    """

    ports: tuple[int, ...]
    configurations: tuple[Configuration, ...]

    @property
    def lower_bound(self) -> int:
        """No fewer configurations can do: n - 1 for an even number of ports that all reach each other, n for odd."""
        return min_configurations([pair for each in self.configurations for pair in each.pairs])

    @property
    def longest_hops(self) -> int:
        """PUCs of the longest path."""
        return max((path.hops for each in self.configurations for path in each.paths), default=0)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, strings and lists, ready for JSON."""
        return {
            "ports": list(self.ports),
            "lower_bound": self.lower_bound,
            "longest_hops": self.longest_hops,
            "configurations": [
                {
                    "pairs": [list(pair) for pair in each.pairs],
                    "paths": [list(path.pucs) for path in each.paths],
                    "states": {str(puc): state for puc, state in sorted(each.states.items())},
                }
                for each in self.configurations
            ],
        }


def min_configurations(pairs: Collection[tuple[int, int]]) -> int:
    """Return the lower bound of the number of configurations for these pairs, each once.

    A port has one partner in each, and half of the ports, rounded down, is the most pairs of one.
    """
    partners = Counter(port for pair in pairs for port in pair)
    return max(*partners.values(), math.ceil(len(pairs) / (len(partners) // 2))) if pairs else 0


def all_to_all(
    mesh: MeshTopology,
    ports: Sequence[int],
    *,
    max_hops: int | None = None,
    puc_loss_db: ArrayLike = 0.5,
    faults: MeshFaults | None = None,
    unusable: Collection[tuple[int, State]] = (),
    seed: int = 0,
    steps: int = 1000,
) -> AllToAll:
    """Join every port with every other that it can reach in as few configurations as are found, each traced.

    Args:
        mesh: The mesh.
        ports: The ports, each once.
        max_hops: Most PUCs of a path.
        puc_loss_db: Loss per PUC in dB, one number or shape ``(n_pucs,)``.
        faults: What is wrong with the mesh.
        unusable: ``(puc, state)`` that may not be used.
        seed: The same seed gives the same configurations.
        steps: How long to try to do with fewer configurations, once the quick ways have left pairs over.

    Raises:
        ConfigError: The request itself is wrong.
        NoPathError: A port cannot be used, none reaches another, or two that a sound mesh joins cannot be joined even
            alone (proven).
    """
    ports = tuple(int(port) for port in ports)
    if len(ports) < 2:
        raise ConfigError(f"all-to-all between {len(ports)} ports", hint="Give two ports or more.")
    check_ports(mesh, ports, faults or MeshFaults())
    pairs = [(a, b) for a in sorted(ports) for b in sorted(ports) if a < b and mesh.reaches(a, b)]
    if not pairs:
        raise NoPathError(f"none of ports {list(ports)} reaches another (proven)", ports=ports)
    request = problem_for(
        mesh,
        RouteRequest(
            pairs,
            objective="hops",
            puc_loss_db=puc_loss_db,
            faults=faults or MeshFaults(),
            unusable=unusable,
            max_hops=max_hops,
        ),
    )
    _check_each_alone(request)
    routed = Matcher(request, ports, random.Random(seed), steps).solve()
    covered = sorted(pair for ways in routed for pair in ways)
    if covered != sorted(pairs):
        raise VerifyError("configurations do not join every pair once", wrote=len(pairs), read=len(covered))
    return AllToAll(ports, tuple(_configuration(request, ways) for ways in routed))


def _check_each_alone(request: RoutingProblem) -> None:
    """Refuse ports of which two cannot be joined at all."""
    try:
        alone = Negotiation(request).alone()
    except SearchBudgetExceeded:
        return
    for index, cost in enumerate(alone):
        if cost is None:
            raise no_path_alone(request, index)


def _configuration(request: RoutingProblem, ways: Mapping[tuple[int, int], WavePath]) -> Configuration:
    """Trace one matching through the states of its ways, and check it."""
    pairs = sorted(ways)
    states = {w // 4: s for way in ways.values() for w, s in zip(way.waves, way.states, strict=True)}
    paths = traced_paths(request.mesh, pairs, states, request.loss_db)
    check_limits(replace(request, limits=request.limits[: len(paths)]), paths, states)
    return Configuration(paths, states)
