"""Faults of a mesh as data: what is stuck, what loses more than it should, which ports are dead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.topology import MeshTopology, State

_STATES: tuple[State, State] = ("bar", "cross")


@dataclass(frozen=True)
class MeshFaults:
    """What is wrong with a mesh.

    A fault belongs to a state, not to a PUC: a PUC stuck in bar still carries light in bar, one with excess loss
    carries it in both states, and one stuck in between carries none without splitting it.

    Attributes:
        stuck: ``"bar"``, ``"cross"`` or the power coupling k (0 bar, 1 cross) at which a PUC is stuck, by PUC.
        excess_loss_db: Loss beyond that of a sound PUC, by PUC; not negative.
        dead_ports: Ports that no circuit may begin or end at.
    """

    stuck: Mapping[int, State | float] = field(default_factory=dict)
    excess_loss_db: Mapping[int, float] = field(default_factory=dict)
    dead_ports: frozenset[int] = frozenset()

    def check(self, mesh: MeshTopology) -> None:
        """Refuse faults that this mesh cannot have.

        Raises:
            ConfigError: A PUC or port does not exist, a state is none, a coupling leaves 0 … 1 or a loss is negative.
        """
        if unknown := sorted(puc for puc in {*self.stuck, *self.excess_loss_db} if not 0 <= puc < mesh.n_pucs):
            raise ConfigError(f"faults at PUCs {unknown}", hint=f"This mesh has PUCs 0 to {mesh.n_pucs - 1}.")
        if unknown := sorted(port for port in self.dead_ports if not 0 <= port < mesh.n_ports):
            raise ConfigError(
                f"dead ports {unknown} do not exist", hint=f"This mesh has ports 0 to {mesh.n_ports - 1}."
            )
        for puc, stuck in self.stuck.items():
            if stuck not in _STATES and not (isinstance(stuck, int | float) and 0.0 <= stuck <= 1.0):
                raise ConfigError(
                    f"PUC {puc} cannot be stuck at {stuck!r}", hint="Say 'bar', 'cross' or a power coupling 0 … 1."
                )
        for puc, loss_db in self.excess_loss_db.items():
            if not (np.isfinite(loss_db) and loss_db >= 0.0):
                raise ConfigError(f"PUC {puc} cannot have an excess loss of {loss_db} dB", hint="Give 0 dB or more.")

    def unusable_states(self, split_tolerance: float = 0.0) -> frozenset[tuple[int, State]]:
        """Return the ``(puc, state)`` that cannot be taken.

        Args:
            split_tolerance: Share of the power that may go the wrong way in a PUC stuck in between; with the default
                neither state of such a PUC can be used unless it is stuck at exactly 0 or 1.
        """
        astray = {"bar": {"bar": 0.0, "cross": 1.0}, "cross": {"bar": 1.0, "cross": 0.0}}
        return frozenset(
            (puc, state)
            for puc, stuck in self.stuck.items()
            for state in _STATES
            if (astray[stuck][state] if isinstance(stuck, str) else abs(stuck - (state == "cross"))) > split_tolerance
        )

    def loss_db(self, mesh: MeshTopology) -> NDArray[np.float64]:
        """Return the excess loss of every PUC, shape ``(n_pucs,)``."""
        loss = np.zeros(mesh.n_pucs)
        for puc, excess in self.excess_loss_db.items():
            loss[puc] = excess
        return loss

    def to_dict(self) -> dict[str, Any]:
        """Return the faults as plain numbers, strings and lists, ready for JSON (whose keys are strings)."""
        return {
            "stuck": {str(puc): stuck for puc, stuck in self.stuck.items()},
            "excess_loss_db": {str(puc): loss for puc, loss in self.excess_loss_db.items()},
            "dead_ports": sorted(self.dead_ports),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> MeshFaults:
        """Return the faults that :meth:`to_dict` wrote; whatever is missing is sound.

        Raises:
            ConfigError: A key is unknown or a number is none. Whether a mesh can have them is for :meth:`check`.
        """
        if unknown := sorted(set(document) - {"stuck", "excess_loss_db", "dead_ports"}):
            raise ConfigError(f"faults know nothing of {unknown}", hint="Say stuck, excess_loss_db or dead_ports.")
        try:
            return cls(
                {int(puc): stuck for puc, stuck in document.get("stuck", {}).items()},
                {int(puc): float(loss) for puc, loss in document.get("excess_loss_db", {}).items()},
                frozenset(int(port) for port in document.get("dead_ports", ())),
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise ConfigError(f"faults that cannot be read: {error}") from error
