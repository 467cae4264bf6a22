"""Pictures for the page: the mesh, and the time spans of the last recovery."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

from lumion_hw.circuits import CircuitPlan
from lumion_hw.errors import ConfigError
from lumion_hw.fabric import RecoveryStatus
from lumion_hw.fabric.spans import timeline_svg
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.picture.drawing import PicturePath, mesh_svg
from lumion_hw.serving.page.updates import picture_key
from lumion_hw.serving.state import ServedMesh, ServedPath


class MeshPicture:
    """The picture of a mesh, drawn again only when its content changes. Thread-safe."""

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
    """Draw a mesh; if its PUC states do not match the paths, leave the paths out."""
    content: dict[str, Any] = {"states": mesh.states, "failed": mesh.dead, "parked": mesh.parked}
    try:
        return mesh_svg(topology, paths=_picture_paths(mesh.paths), **content)
    except ConfigError:
        return mesh_svg(topology, title=f"Mesh {topology.label}: paths are being changed", **content)


def _picture_paths(paths: Sequence[ServedPath]) -> list[PicturePath]:
    n_arms = Counter(path.circuit for path in paths)
    line_counts: Counter[str] = Counter()
    pictures = []
    for path in paths:
        line_counts[path.circuit] += 1
        label = path.circuit if n_arms[path.circuit] == 1 else f"{path.circuit} arm {line_counts[path.circuit]}"
        source, _, target = path.circuit.partition(":")
        pictures.append(
            PicturePath(
                label,
                path.source,
                path.pucs,
                loss_db=_loss_db(path.power_dbm),
                source_name=source,
                target_name=target or source,
                power_dbm=path.power_dbm,
            )
        )
    return pictures


def _loss_db(power_dbm: Sequence[float | None]) -> float | None:
    ends = (power_dbm[0], power_dbm[-1]) if power_dbm else (None, None)
    return None if ends[0] is None or ends[1] is None else ends[0] - ends[1]


def plan_svg(topology: MeshTopology, plan: CircuitPlan) -> str:
    """Draw the mesh with the active and the planned circuits."""
    used = {puc for circuit in plan.all_circuits for path in circuit.paths for puc in path.pucs}
    paths = [
        PicturePath(
            circuit.request.name + (" (active)" if circuit in plan.active else ""),
            arm.path.source,
            arm.path.pucs,
            loss_db=arm.loss_db,
            source_name=circuit.request.source,
            target_name=circuit.request.target,
        )
        for circuit in plan.all_circuits
        for arm in circuit.arms
    ]
    return mesh_svg(topology, states=plan.states, paths=paths, parked=set(plan.states) - used, title="Planned circuits")


def recovery_svg(recovery: RecoveryStatus) -> str:
    """Draw the time spans of a recovery."""
    spans = recovery.spans
    title = f"{recovery.failed or 'a path'} replaced by {recovery.spare or 'another path'}"
    return timeline_svg(
        title, [span.name for span in spans], [span.at_ms for span in spans], [span.source for span in spans]
    )
