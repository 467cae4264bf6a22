"""Trimming: a PUC on an arm couples only partly, and what the arm has too much leaves by another port."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lumion_hw.circuits.planned import ArmTrim
from lumion_hw.interfaces.wiring import Wiring
from lumion_hw.mesh.record import CouplerEntry
from lumion_hw.mesh.routing import Path
from lumion_hw.mesh.routing.request import STATES, other
from lumion_hw.mesh.routing.result import way_of
from lumion_hw.mesh.topology import MeshTopology, State

MOST_TRIM_DB = 15.0
"""More is no trimming: the couplers' own imperfections would decide."""


@dataclass(frozen=True)
class _Stray:
    """Where light goes that a PUC sends to its wrong output.

    Attributes:
        puc: The PUC.
        port: Port where it leaves the mesh; ``None`` if it goes round inside.
        badness: 0 where nobody is at that port, 1 at an input of the bench, 2 inside, 3 at an idle receiver.
    """

    puc: int
    port: int | None
    badness: int


def trims_for(
    mesh: MeshTopology,
    wiring: Wiring,
    states: Mapping[int, State],
    path: Path,
    others: Sequence[Path],
    loss_db: float,
    couplers: Mapping[int, CouplerEntry],
) -> Iterator[ArmTrim]:
    """Yield the PUCs of a path that can take so much light off it, those first whose stray harms nobody.

    Args:
        mesh: The mesh.
        wiring: Who is at the ports.
        states: State of every PUC.
        path: The arm to trim.
        others: Ways of all other arms.
        loss_db: What it is to lose.
        couplers: Couplers of the PUCs of the path.
    """
    if not 0.0 < loss_db <= MOST_TRIM_DB:
        return
    kept = 10.0 ** (-loss_db / 10.0)
    for stray in sorted(_strays(mesh, wiring, states, path, others), key=lambda each: each.badness):
        low, high = couplers[stray.puc].interval
        coupling = high * kept if states[stray.puc] == "cross" else 1.0 - (1.0 - low) * kept
        if low <= coupling <= high:
            yield ArmTrim(stray.puc, coupling, loss_db, stray.port)


def _strays(
    mesh: MeshTopology, wiring: Wiring, states: Mapping[int, State], path: Path, others: Sequence[Path]
) -> Iterator[_Stray]:
    """Yield where the light of each PUC would stray to that this path alone passes, and once."""
    shared = {puc for each in others for puc in each.pucs}
    ends = {each.target for each in others}
    badness = {out.port: 3 for out in wiring.outputs} | {entry.port: 1 for entry in wiring.inputs}
    way = way_of(mesh, path)
    for wave, state in zip(way.waves, way.states, strict=True):
        puc = wave // 4
        if puc in shared or path.pucs.count(puc) > 1:
            continue
        port = _end_of(mesh, states, wave, other(state))
        if port in ends or port == path.target:
            continue
        yield _Stray(puc, port, 2 if port is None else badness.get(port, 0))


def _end_of(mesh: MeshTopology, states: Mapping[int, State], wave: int, state: State) -> int | None:
    """Return the port where light ends that passes one PUC in another state; ``None`` if it goes round."""
    node = int(mesh.successors[wave, STATES.index(state)])
    for _ in range(4 * mesh.n_pucs):
        if node < 0:
            return -1 - node
        node = int(mesh.successors[node, STATES.index(states.get(node // 4, "cross"))])
    return None
