"""The optical circuit switch of a bench owner: its tables at this moment."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from lumion_hw.errors import ConfigError
from lumion_hw.serving.ocs.ports import OcsPorts
from lumion_hw.serving.ocs.tables import Table, config_tables, loss_table, state_tables
from lumion_hw.serving.owner import BenchOwner

MAX_LOSSES = 1024
"""Maximum number of cross-connects in one request for insertion losses; each is planned."""


class OcsView:
    """Tables of a served bench as an optical circuit switch. Thread-safe."""

    def __init__(self, owner: BenchOwner) -> None:
        self._owner = owner
        self._ports = OcsPorts(owner.bench.wiring)
        self._planning = threading.Lock()

    def config(self) -> dict[str, Table]:
        """Return ports and cross-connects as configured."""
        return config_tables(self._ports, self._owner.ocs, self._owner.state.circuits)

    def state(self) -> dict[str, Table]:
        """Return the condition of ports and cross-connects."""
        state = self._owner.state
        paths = () if state.mesh is None else state.mesh.paths
        return state_tables(self._ports, self._owner.ocs, state.circuits, paths)

    def losses(self, names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Return the insertion losses of cross-connects, by default of all.

        Raises:
            ConfigError: A cross-connect does not exist, there are too many, or the bench has no calibration record.
        """
        record = self._owner.record
        if record is None:
            raise ConfigError(
                "this bench is served without a calibration record, so its losses are unknown",
                hint="Start `lumion serve` with --record RECORD.",
            )
        pairs = [(a_side, b_side) for a_side in self._ports.of_side("A") for b_side in self._ports.of_side("B")]
        wanted = list(dict.fromkeys(names)) or [f"{a_side.port_id}-{b_side.port_id}" for a_side, b_side in pairs]
        if len(wanted) > MAX_LOSSES:
            raise ConfigError(
                f"the request asks for {len(wanted)} losses, at most {MAX_LOSSES} are allowed",
                hint="Name the cross-connects, as in ?cross_connect_id=12A-18B&cross_connect_id=2A-17B.",
            )
        for name in wanted:
            self._ports.ends_of(name)
        with self._planning:
            return loss_table(self._owner.bench.model, record, self._ports, wanted)
