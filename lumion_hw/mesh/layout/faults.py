"""Faults of a mesh: stuck PUCs, excess losses and dead ports."""

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
    """Known faults of a mesh.

    A PUC stuck in bar can still carry light in bar. A PUC stuck between bar and cross carries none.

    Attributes:
        stuck: By PUC: ``"bar"``, ``"cross"``, or the power coupling k at which it is stuck (0 bar, 1 cross).
        excess_loss_db: By PUC: loss in addition to that of a healthy PUC; not negative.
        dead_ports: Ports where no circuit may start or end.
    """

    stuck: Mapping[int, State | float] = field(default_factory=dict)
    excess_loss_db: Mapping[int, float] = field(default_factory=dict)
    dead_ports: frozenset[int] = frozenset()

    def check(self, mesh: MeshTopology) -> None:
        """Check the faults against a mesh.

        Raises:
            ConfigError: A PUC or port does not exist, a state is unknown, a coupling is outside 0 … 1, or a loss is
                negative.
        """
        if unknown := sorted(puc for puc in {*self.stuck, *self.excess_loss_db} if not 0 <= puc < mesh.n_pucs):
            raise ConfigError(f"faulty PUCs {unknown} do not exist", hint=f"This mesh has PUCs 0 to {mesh.n_pucs - 1}.")
        if unknown := sorted(port for port in self.dead_ports if not 0 <= port < mesh.n_ports):
            raise ConfigError(
                f"dead ports {unknown} do not exist", hint=f"This mesh has ports 0 to {mesh.n_ports - 1}."
            )
        for puc, stuck in self.stuck.items():
            if stuck not in _STATES and not (isinstance(stuck, int | float) and 0.0 <= stuck <= 1.0):
                raise ConfigError(
                    f"PUC {puc} cannot be stuck at {stuck!r}", hint="Give 'bar', 'cross' or a power coupling 0 … 1."
                )
        for puc, loss_db in self.excess_loss_db.items():
            if not (np.isfinite(loss_db) and loss_db >= 0.0):
                raise ConfigError(f"PUC {puc} cannot have an excess loss of {loss_db} dB", hint="Give 0 dB or more.")

    def unusable_states(self, split_tolerance: float = 0.0) -> frozenset[tuple[int, State]]:
        """Return the ``(puc, state)`` pairs that the faults make unusable.

        Args:
            split_tolerance: Fraction of the power that a stuck PUC may send to the wrong output. With 0, a PUC stuck
                between bar and cross is unusable.
        """
        wrong_output_fraction = {"bar": {"bar": 0.0, "cross": 1.0}, "cross": {"bar": 1.0, "cross": 0.0}}
        return frozenset(
            (puc, state)
            for puc, stuck in self.stuck.items()
            for state in _STATES
            if (wrong_output_fraction[stuck][state] if isinstance(stuck, str) else abs(stuck - (state == "cross")))
            > split_tolerance
        )

    def loss_db(self, mesh: MeshTopology) -> NDArray[np.float64]:
        """Return the excess loss of every PUC in dB, shape ``(n_pucs,)``."""
        loss = np.zeros(mesh.n_pucs)
        for puc, excess in self.excess_loss_db.items():
            loss[puc] = excess
        return loss

    def to_dict(self) -> dict[str, Any]:
        """Return the faults as plain numbers, strings and lists for JSON."""
        return {
            "stuck": {str(puc): stuck for puc, stuck in self.stuck.items()},
            "excess_loss_db": {str(puc): loss for puc, loss in self.excess_loss_db.items()},
            "dead_ports": sorted(self.dead_ports),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> MeshFaults:
        """Return the faults that :meth:`to_dict` wrote; missing entries mean no fault.

        Raises:
            ConfigError: A key is unknown, or a value has the wrong type.
        """
        if unknown := sorted(set(document) - {"stuck", "excess_loss_db", "dead_ports"}):
            raise ConfigError(f"unknown keys {unknown} in the faults", hint="Use stuck, excess_loss_db and dead_ports.")
        try:
            return cls(
                {int(puc): stuck for puc, stuck in document.get("stuck", {}).items()},
                {int(puc): float(loss) for puc, loss in document.get("excess_loss_db", {}).items()},
                frozenset(int(port) for port in document.get("dead_ports", ())),
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise ConfigError(f"the faults cannot be read: {error}") from error
