"""The pictures of the page: the mesh as ``lumion mesh show`` draws it, and the spans of the last recovery."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from lumion_hw.circuits import CircuitPlan
from lumion_hw.errors import ConfigError
from lumion_hw.fabric.spans import timeline_svg
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.picture.drawing import PicturePath, mesh_svg
from lumion_hw.serving.page.updates import picture_key
from lumion_hw.serving.state import ServedMesh, ServedPath, ServedRecovery


class MeshPicture:
    """The picture of a mesh, drawn again only when there is something else to draw. Thread-safe.

    Args:
        topology: The mesh.
    """

    def __init__(self, topology: MeshTopology) -> None:
        self._topology = topology
        self._guard = threading.Lock()
        self._key: Any = None
        self._svg = ""

    def svg(self, mesh: ServedMesh) -> str:
        """Return the mesh with its states and paths as SVG."""
        key = picture_key(mesh)
        with self._guard:
            if key != self._key:
                self._svg, self._key = draw_mesh(self._topology, mesh), key
            return self._svg


def draw_mesh(topology: MeshTopology, mesh: ServedMesh) -> str:
    """Draw a mesh; its paths are left out, and that is said, while states and paths do not fit each other."""
    told: dict[str, Any] = {"states": mesh.states, "failed": mesh.dead, "parked": mesh.parked}
    try:
        return mesh_svg(topology, paths=_picture_paths(mesh.paths), **told)
    except ConfigError:
        return mesh_svg(topology, title=f"Mesh {topology.label}: paths are being changed", **told)


def _picture_paths(paths: Sequence[ServedPath]) -> list[PicturePath]:
    """Return paths to draw, named as their circuits are, with a number for each arm of those that have two."""
    arms = {each.circuit: sum(other.circuit == each.circuit for other in paths) for each in paths}
    seen: dict[str, int] = {}
    found = []
    for each in paths:
        seen[each.circuit] = arm = seen.get(each.circuit, 0) + 1
        label = each.circuit if arms[each.circuit] == 1 else f"{each.circuit} arm {arm}"
        source, _, target = each.circuit.partition(":")
        found.append(
            PicturePath(
                label,
                each.source,
                each.pucs,
                loss_db=_loss_db(each.power_dbm),
                source_name=source,
                target_name=target or source,
                power_dbm=each.power_dbm,
            )
        )
    return found


def _loss_db(power_dbm: Sequence[float | None]) -> float | None:
    ends = (power_dbm[0], power_dbm[-1]) if power_dbm else (None, None)
    return None if ends[0] is None or ends[1] is None else ends[0] - ends[1]


def plan_svg(topology: MeshTopology, plan: CircuitPlan) -> str:
    """Draw the mesh as it would be with a plan: what stands already, and what would come."""
    used = {puc for circuit in plan.everything for path in circuit.paths for puc in path.pucs}
    paths = [
        PicturePath(
            circuit.request.name + (" (stands)" if circuit in plan.active else ""),
            arm.path.source,
            arm.path.pucs,
            loss_db=arm.loss_db,
            source_name=circuit.request.source,
            target_name=circuit.request.target,
        )
        for circuit in plan.everything
        for arm in circuit.arms
    ]
    return mesh_svg(topology, states=plan.states, paths=paths, parked=set(plan.states) - used, title="What it would be")


def recovery_svg(recovery: ServedRecovery) -> str:
    """Draw where the time of a recovery went."""
    spans = recovery.spans
    title = f"{recovery.failed or 'a path'} replaced by {recovery.spare or 'another path'}"
    return timeline_svg(
        title, [each.name for each in spans], [each.at_ms for each in spans], [each.source for each in spans]
    )
