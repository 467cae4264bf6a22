"""Schedules on a mesh: every step traced by its states alone, kept circuits over the same PUCs, few extra settings."""

from __future__ import annotations

import pytest

from lumion_hw.errors import ConfigError, NoPathError
from lumion_hw.mesh import HexMesh
from lumion_hw.schedules.collectives import make_schedule
from lumion_hw.schedules.on_mesh import MeshRouter, MeshSchedule, _fewest_parts, on_mesh, split
from lumion_hw.schedules.schedule import Schedule

MESH = HexMesh.rings(2) if hasattr(HexMesh, "rings") else None


def assert_right(router: MeshRouter, schedule: Schedule, found: MeshSchedule) -> None:
    """Follow light through every step by its states, and compare with the rounds."""
    served: dict[int, set[tuple[int, int]]] = {}
    ways: dict[tuple[int, int], tuple[int, ...]] = {}
    for step in found.steps:
        served.setdefault(step.number, set()).update(step.circuits)
        assert all(ways[pair] == path.pucs for pair, path in zip(step.circuits, step.routing.paths, strict=True)
                   if pair in step.kept)  # fmt: skip
        for (a, b), path in zip(step.circuits, step.routing.paths, strict=True):
            trace = router.mesh.trace(router.inputs[a], step.routing.states)
            assert trace.port == router.outputs[b]
            assert trace.pucs == path.pucs
        ways = {pair: path.pucs for pair, path in zip(step.circuits, step.routing.paths, strict=True)}
    assert [served[number] for number in range(found.rounds)] == [set(each.circuits) for each in schedule.rounds]
    assert 0 <= found.least_extra <= found.extra
