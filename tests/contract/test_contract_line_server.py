"""The line server of the prototype keeps the promises of a mesh that takes states, in memory and over its wire."""

from collections.abc import Iterator

import pytest

from lumion_hw.drivers.mesh.line_server import LineServerMesh
from lumion_hw.emulator.mesh.line_server import LineServer
from lumion_hw.interfaces import PucState
from lumion_hw.testing.contracts import MeshStatesContract, WireFixtures

STATES: dict[str, PucState] = {"x": "cross", "=": "bar"}


class TestLineServerMesh(WireFixtures, MeshStatesContract):
    deadline_s = 10.0  # one whole exchange

    @pytest.fixture
    def cells(self) -> dict[int, PucState]:
        return {}

    @pytest.fixture
    def device(self, clock, cells) -> LineServer:
        def apply(states: dict[int, str]) -> None:
            cells.clear()
            cells.update({puc: STATES[word] for puc, word in states.items()})

        return LineServer("unit0", clock, apply_states=apply)

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[LineServerMesh]:
        link = wire.link()  # opened anew for every configuration
        mesh = LineServerMesh(lambda: link, clock, device="unit0")
        yield mesh
        mesh.close()

    @pytest.fixture
    def actual_states(self, cells):
        return lambda: cells
