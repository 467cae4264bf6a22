"""The router's inner loop: compiled or not, it finds the same, and what it finds is cheapest."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from lumion_hw.errors import RoutingError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.routing import RouteRequest, Routing, route, search
from lumion_hw.mesh.routing.search import walker, wave_graph


@pytest.mark.parametrize("compiled", [False, True])
def test_a_walk_costs_what_dijkstra_says(smartlight: HexMesh, compiled: bool) -> None:
    rng = np.random.default_rng(1)
    graph, walks = wave_graph(smartlight), walker(smartlight, compiled=compiled)
    size = graph.n_waves + smartlight.n_ports
    for _ in range(20):
        price, use, pressure = rng.uniform(0.1, 2.0, 144), rng.integers(0, 3, 144), float(rng.uniform(0.0, 3.0))
        whole = (price + pressure * use[np.arange(144) ^ 1]).reshape(72, 2)
        tails = np.repeat(np.arange(288, dtype=np.int32), 2)
        heads = np.array([graph.bar, graph.cross], dtype=np.int32).T.reshape(-1)
        arcs = csr_array((np.repeat(whole, 4, axis=0).reshape(-1), (tails, heads)), shape=(size, size))
        source, target = rng.choice(smartlight.n_ports, 2, replace=False).tolist()
        start, goal = graph.entry[source], graph.n_waves + target
        expected = float(dijkstra(arcs, indices=start)[goal])
        nothing_known = np.where(np.arange(size) < graph.n_waves, 0.0, math.inf)  # but that other ports lead nowhere
        nothing_known[goal] = 0.0
        packed = [walks.packed(each) for each in (price, use, nothing_known)]
        cost, nodes = walks.cheapest(packed[0], packed[1], pressure, packed[2], start, goal)
        assert cost == pytest.approx(expected)
        assert (nodes[0], nodes[-1]) == (start, goal)


def test_where_there_is_no_way_the_price_is_infinite(smartlight: HexMesh) -> None:
    walks = walker(smartlight, compiled=False)
    shut = [math.inf] * 144
    left = [0.0] * (288 + smartlight.n_ports)
    assert walks.cheapest(shut, [0] * 144, 0.0, left, wave_graph(smartlight).entry[0], 288 + 20)[0] == math.inf


def test_compiled_or_not_a_request_has_the_same_routing(smartlight: HexMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    def routed(seed: int) -> Routing | None:
        ports = np.random.default_rng(seed).permutation(smartlight.fibre_ports)[:10].tolist()
        try:
            return route(
                smartlight, RouteRequest(list(zip(ports[::2], ports[1::2], strict=True)), exact_search="never")
            )
        except RoutingError:
            return None

    answers = []
    for compiled in (False, True):
        monkeypatch.setattr(search, "should_compile", lambda n_pucs, compiled=compiled: compiled)
        answers.append([routed(seed) for seed in range(8)])
    assert answers[0] == answers[1]
    assert any(answers[0])
