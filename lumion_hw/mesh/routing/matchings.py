"""All-to-all connectivity with the fewest configurations: each pair of ports is connected in exactly one of them.

With n ports at least n - 1 configurations are needed (n if n is odd). The smallest solutions are 1-factorisations of
the complete graph (PipSwitch 2025). If none can be routed, extra configurations connect the remaining pairs. In a
rectangular mesh, only ports on different sides can be connected.
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
from lumion_hw.mesh.routing.reasons import check_limits, no_path_error
from lumion_hw.mesh.routing.request import RouteRequest, RoutingProblem, check_ports, problem_for
from lumion_hw.mesh.routing.result import Path, WavePath, traced_paths
from lumion_hw.mesh.routing.search import SearchBudgetExceeded


@dataclass(frozen=True)
class Configuration:
    """One setting of the mesh that connects some pairs of ports.

    Attributes:
        states: State of every PUC in use.
    """

    paths: tuple[Path, ...]
    states: dict[int, State]

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs of ports that are connected, smaller port first."""
        return tuple((path.source, path.target) for path in self.paths)


@dataclass(frozen=True)
class AllToAll:
    """Configurations that connect every port with every other port it can reach, each pair exactly once."""

    ports: tuple[int, ...]
    configurations: tuple[Configuration, ...]

    @property
    def lower_bound(self) -> int:
        """Lower bound of the number of configurations.

        It is n - 1 for an even number n of ports that all reach each other, n for an odd number.
        """
        return min_configurations([pair for configuration in self.configurations for pair in configuration.pairs])

    @property
    def longest_hops(self) -> int:
        """Number of PUCs on the longest path."""
        return max((path.hops for configuration in self.configurations for path in configuration.paths), default=0)

    def to_dict(self) -> dict[str, Any]:
        """Return the configurations as plain numbers, strings and lists, ready for JSON."""
        return {
            "ports": list(self.ports),
            "lower_bound": self.lower_bound,
            "longest_hops": self.longest_hops,
            "configurations": [
                {
                    "pairs": [list(pair) for pair in configuration.pairs],
                    "paths": [list(path.pucs) for path in configuration.paths],
                    "states": {str(puc): state for puc, state in sorted(configuration.states.items())},
                }
                for configuration in self.configurations
            ],
        }


def min_configurations(pairs: Collection[tuple[int, int]]) -> int:
    """Return a lower bound of the number of configurations that together contain each of these pairs once."""
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
    """Connect every port with every other port it can reach, in as few configurations as possible.

    Args:
        mesh: The mesh.
        ports: The ports, each once.
        max_hops: Largest number of PUCs on a path.
        puc_loss_db: Loss per PUC in dB, one number or shape ``(n_pucs,)``.
        faults: Known faults of the mesh.
        unusable: ``(puc, state)`` pairs that may not be used.
        seed: Random seed; the same seed gives the same configurations.
        steps: Largest number of attempts to add a remaining pair by displacing others.

    Raises:
        ConfigError: The request is invalid.
        NoPathError: A port cannot be used, no port reaches another, or two ports that a fault-free mesh connects cannot
            be connected even alone (proven).
    """
    ports = tuple(int(port) for port in ports)
    if len(ports) < 2:
        raise ConfigError(f"all-to-all needs at least two ports, not {len(ports)}", hint="Give two ports or more.")
    check_ports(mesh, ports, faults or MeshFaults())
    pairs = [(a, b) for a in sorted(ports) for b in sorted(ports) if a < b and mesh.reaches(a, b)]
    if not pairs:
        raise NoPathError(f"none of the ports {list(ports)} can reach another one (proven)", ports=ports)
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
    _check_each_pair(request)
    routed = Matcher(request, ports, random.Random(seed), steps).solve()
    covered = sorted(pair for wave_paths in routed for pair in wave_paths)
    if covered != sorted(pairs):
        raise VerifyError(
            "the configurations do not connect every pair of ports exactly once", wrote=len(pairs), read=len(covered)
        )
    return AllToAll(ports, tuple(_configuration(request, wave_paths) for wave_paths in routed))


def _check_each_pair(request: RoutingProblem) -> None:
    try:
        separate_costs = Negotiation(request).route_separately()
    except SearchBudgetExceeded:
        return
    for index, cost in enumerate(separate_costs):
        if cost is None:
            raise no_path_error(request, index)


def _configuration(request: RoutingProblem, wave_paths: Mapping[tuple[int, int], WavePath]) -> Configuration:
    pairs = sorted(wave_paths)
    states = {
        w // 4: s for wave_path in wave_paths.values() for w, s in zip(wave_path.waves, wave_path.states, strict=True)
    }
    paths = traced_paths(request.mesh, pairs, states, request.loss_db)
    check_limits(replace(request, limits=request.limits[: len(paths)]), paths, states)
    return Configuration(paths, states)
