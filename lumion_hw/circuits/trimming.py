"""Trimming: a PUC on an arm couples only partly, and what the arm has too much leaves by another port."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lumion_hw.circuits.planned import ArmTrim
from lumion_hw.circuits.planning_mesh import PlanningMesh, Real
from lumion_hw.interfaces.wiring import Wiring
from lumion_hw.mesh.layout.topology import EXIT_XOR, MeshTopology, State
from lumion_hw.mesh.routing import Path
from lumion_hw.mesh.routing.request import STATES, opposite_state
from lumion_hw.mesh.routing.result import to_wave_path

MAX_TRIM_DB = 15.0
"""More is no trimming: the couplers' own imperfections would decide."""
_HARMLESS_DB = -40.0
"""Of strays that bring less than this to a receiver, over what the arm keeps, none is better than another."""


@dataclass(frozen=True)
class Trimmer:
    """Chooses PUCs that take light off arms, so that it ends where it harms least.

    Attributes:
        mesh: The mesh.
        planning: What is known of it.
        wiring: Who is at the ports.
        states: State of every PUC.
        currents_ma: Heater currents that make them.
        paths: Ways of all arms.
    """

    mesh: MeshTopology
    planning: PlanningMesh
    wiring: Wiring
    states: Mapping[int, State]
    currents_ma: Real
    paths: Sequence[Path]

    def options(self, path: Path, loss_db: float) -> list[ArmTrim]:
        """Return the PUCs that can take so much light off a path, those first whose stray harms least.

        Args:
            path: The arm to trim.
            loss_db: What it is to lose.
        """
        if not 0.0 < loss_db <= MAX_TRIM_DB:
            return []
        kept = 10.0 ** (-loss_db / 10.0)
        found = []
        receivers = [out.port for out in self.wiring.outputs if out.port != path.target]
        reach = self.planning.reach(self.currents_ma, receivers).max(axis=1, initial=0.0)
        for wave, state in self.unshared_waves(path):
            puc = wave // 4
            low, high = self.planning.known.coupler(puc).interval
            coupling = high * kept if state == "cross" else 1.0 - (1.0 - low) * kept
            if low <= coupling <= high:
                port = self._end_of(wave, opposite_state(state))
                # What strays over what is kept, and how much of it a receiver gets.
                harm = (1.0 - kept) / kept * float(reach[wave ^ EXIT_XOR[opposite_state(state)]])
                found.append((self._harm_rank(harm, port), ArmTrim(puc, coupling, loss_db, port)))
        return [trim for _, trim in sorted(found, key=lambda each: each[0])]

    def unshared_waves(self, path: Path) -> Iterator[tuple[int, State]]:
        """Yield where a path enters PUCs that no other path passes, and itself once, with their states."""
        shared = {puc for each in self.paths if each is not path for puc in each.pucs}
        way = to_wave_path(self.mesh, path)
        for wave, state in zip(way.waves, way.states, strict=True):
            if wave // 4 not in shared and path.pucs.count(wave // 4) == 1:
                yield wave, state

    def _harm_rank(self, harm: float, port: int | None) -> tuple[float, int]:
        """Return what to sort strays by: light at a receiver, then light that goes round or back into a source."""
        harm_db = 10.0 * math.log10(harm) if harm > 0.0 else -math.inf
        sources = {entry.port for entry in self.wiring.inputs}
        return max(harm_db, _HARMLESS_DB), 2 if port is None else int(port in sources)

    def _end_of(self, wave: int, state: State) -> int | None:
        """Return the port where light ends that passes one PUC in another state; ``None`` if it goes round."""
        node = int(self.mesh.successors[wave, STATES.index(state)])
        for _ in range(4 * self.mesh.n_pucs):
            if node < 0:
                return -1 - node
            node = int(self.mesh.successors[node, STATES.index(self.states.get(node // 4, "cross"))])
        return None
