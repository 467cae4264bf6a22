"""Attenuation of a path: one PUC couples only part of the light; the rest leaves by another port."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lumion_hw.circuits.plan.planned import ArmTrim
from lumion_hw.circuits.plan.planning_mesh import PlanningMesh, Real
from lumion_hw.interfaces.wiring import Wiring
from lumion_hw.mesh.layout.topology import EXIT_XOR, MeshTopology, State
from lumion_hw.mesh.routing import Path
from lumion_hw.mesh.routing.request import STATES, opposite_state
from lumion_hw.mesh.routing.result import to_wave_path

MAX_TRIM_DB = 15.0
"""Largest loss to add; above it, imperfections of the couplers would dominate."""
_HARMLESS_DB = -40.0
"""Stray light at receivers below this level, relative to the attenuated arm, is harmless."""


@dataclass(frozen=True)
class Trimmer:
    """Chooses PUCs that add loss to a path with the least stray light.

    Attributes:
        wiring: Fibres at the ports.
        states: State of every PUC.
        currents_ma: Heater currents for these states.
        paths: All paths.
    """

    mesh: MeshTopology
    planning: PlanningMesh
    wiring: Wiring
    states: Mapping[int, State]
    currents_ma: Real
    paths: Sequence[Path]

    def options(self, path: Path, loss_db: float) -> list[ArmTrim]:
        """Return the PUC settings that add a given loss to a path, those with the least stray light first."""
        if not 0.0 < loss_db <= MAX_TRIM_DB:
            return []
        power_share = 10.0 ** (-loss_db / 10.0)
        candidates = []
        receivers = [output.port for output in self.wiring.outputs if output.port != path.target]
        power_at_receivers = self.planning.power_fractions(self.currents_ma, receivers).max(axis=1, initial=0.0)
        for wave, state in self.unshared_passes(path):
            puc = wave // 4
            low, high = self.planning.calibrated.coupler(puc).interval
            # The remaining light is a share of the light that the full state passes, which imperfect couplers limit to
            # `high` in cross and `1 - low` in bar.
            coupling = high * power_share if state == "cross" else 1.0 - (1.0 - low) * power_share
            if low <= coupling <= high:
                port = self._stray_port(wave, opposite_state(state))
                # Diverted over remaining power, times the part that reaches a receiver.
                harm = (
                    (1.0 - power_share)
                    / power_share
                    * float(power_at_receivers[wave ^ EXIT_XOR[opposite_state(state)]])
                )
                candidates.append((self._harm_rank(harm, port), ArmTrim(puc, coupling, loss_db, port)))
        return [trim for _, trim in sorted(candidates, key=lambda item: item[0])]

    def unshared_passes(self, path: Path) -> Iterator[tuple[int, State]]:
        """Yield entry PUC-port and state of each PUC that a path passes once and no other path uses."""
        shared = {puc for other in self.paths if other is not path for puc in other.pucs}
        wave_path = to_wave_path(self.mesh, path)
        for wave, state in zip(wave_path.waves, wave_path.states, strict=True):
            if wave // 4 not in shared and path.pucs.count(wave // 4) == 1:
                yield wave, state

    def _harm_rank(self, harm: float, port: int | None) -> tuple[float, int]:
        harm_db = 10.0 * math.log10(harm) if harm > 0.0 else -math.inf
        sources = {entry.port for entry in self.wiring.inputs}
        # Harmless trims tie, so that of these a trim into a free port precedes one into a source or into a ring.
        return max(harm_db, _HARMLESS_DB), 2 if port is None else int(port in sources)

    def _stray_port(self, wave: int, state: State) -> int | None:
        node = int(self.mesh.successors[wave, STATES.index(state)])
        # The mesh has this many directed waves; light that passes more has come back to one of them and circulates.
        for _ in range(4 * self.mesh.n_pucs):
            if node < 0:
                return -1 - node
            node = int(self.mesh.successors[node, STATES.index(self.states.get(node // 4, "cross"))])
        return None
