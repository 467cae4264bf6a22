"""What a plan of circuits holds: ways through the mesh, budgets, states and heater currents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.circuits.budget import LinkBudget
from lumion_hw.circuits.request import CircuitRequest
from lumion_hw.interfaces.wiring import InputPath, OutputPath
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.routing import Path, Routing

Strategy = Literal["controller", "diversity", "none", "dual"]
"""How the polarization reaches the mesh as TE: a controller at the input turns it; a splitter-rotator sends both parts
their own ways; nothing does; or the signal has two polarizations, each with a way of its own."""


@dataclass(frozen=True)
class ArmTrim:
    """A PUC on an arm that couples only partly, so that the arm loses what it has too much.

    Attributes:
        puc: The PUC; light of no other arm passes it.
        coupling: Power coupling it is set to: 0 bar, 1 cross.
        loss_db: What the arm loses by it.
        stray_port: Port where the light taken away leaves the mesh; ``None`` if it goes round inside.
    """

    puc: int
    coupling: float
    loss_db: float
    stray_port: int | None


@dataclass(frozen=True)
class CircuitArm:
    """One way through the mesh: one for a single polarization, two for two.

    Attributes:
        entry: From the transmitter to the mesh.
        exit: From the mesh to the receiver.
        path: PUCs on the way.
        loss_db: Fibre to fibre over the mesh, predicted, with what is trimmed away.
        loss_sigma_db: Standard error of that.
        trim: What is trimmed away, if anything is.
        shortest_hops: Fewest PUCs that any way between its ports has, in a mesh of its own.
    """

    entry: InputPath
    exit: OutputPath
    path: Path
    loss_db: float
    loss_sigma_db: float
    trim: ArmTrim | None = None
    shortest_hops: int = 0

    @property
    def fixed_loss_db(self) -> float:
        """What it loses outside the mesh: fibres, connectors, and what the tap takes from the receiver."""
        return self.entry.loss_db + self.exit.loss_db - 10.0 * math.log10(self.exit.receiver_fraction)

    @property
    def total_loss_db(self) -> float:
        """From module to module, the booster's gain taken off."""
        return self.loss_db + self.fixed_loss_db - self.entry.gain_db


@dataclass(frozen=True)
class PlannedCircuit:
    """One circuit of a plan.

    Attributes:
        request: What was asked for.
        arms: Its ways through the mesh; with two of them, that of tributary x first.
        budget: What should arrive.
        strategy: How the polarization is dealt with.
        reason: Why so, in words.
    """

    request: CircuitRequest
    arms: tuple[CircuitArm, ...]
    budget: LinkBudget
    strategy: Strategy
    reason: str

    def __repr__(self) -> str:
        """Return one line."""
        budget = self.budget
        ends = f"{self.request.source}:{self.request.target}"
        return (
            f"<PlannedCircuit {ends}, {self.hops} hops, {budget.mesh_loss_db:.2f} dB, margin {budget.margin_db:.2f} dB>"
        )

    def with_arms(self, arms: Sequence[CircuitArm]) -> PlannedCircuit:
        """Return the circuit with other trims: its loss and what it receives change by what all arms bring together."""
        before, after = (
            10.0 * math.log10(sum(10.0 ** (-arm.total_loss_db / 10.0) for arm in each)) for each in (self.arms, arms)
        )
        budget = replace(
            self.budget,
            mesh_loss_db=self.budget.mesh_loss_db + before - after,
            received_dbm=self.budget.received_dbm + after - before,
        )
        return replace(self, arms=tuple(arms), budget=budget)

    @property
    def entry(self) -> InputPath:
        """From the transmitter to the mesh, of the first arm."""
        return self.arms[0].entry

    @property
    def exit(self) -> OutputPath:
        """From the mesh to the receiver, of the first arm."""
        return self.arms[0].exit

    @property
    def path(self) -> Path:
        """PUCs on the way of the first arm."""
        return self.arms[0].path

    @property
    def hops(self) -> int:
        """PUCs on the longest arm."""
        return max(arm.path.hops for arm in self.arms)

    @property
    def paths(self) -> tuple[Path, ...]:
        """PUCs on the way of every arm."""
        return tuple(arm.path for arm in self.arms)


@dataclass(frozen=True)
class CircuitPlan:
    """A conflict-free set of circuits and the setting that makes them.

    Attributes:
        circuits: One per request, in order.
        routing: States of the PUCs used, and how far the set is from the best there is.
        states: State of every PUC that can be set, parked ones included; of a PUC that couples only partly the nearer.
        currents_ma: Heater currents, shape ``(2 n_pucs,)``.
        standing: Circuits that stood before and keep their ways, their budgets reckoned anew beside the others.
        heat_mw: Heat of all heaters together.
    """

    circuits: tuple[PlannedCircuit, ...]
    routing: Routing
    states: dict[int, State]
    currents_ma: NDArray[np.float64]
    standing: tuple[PlannedCircuit, ...] = ()
    heat_mw: float = 0.0

    def __repr__(self) -> str:
        """Return one line."""
        ends = ", ".join(f"{circuit.request.source}:{circuit.request.target}" for circuit in self.everything)
        return f"<CircuitPlan of {len(self.everything)} circuits, {self.heat_mw:.3g} mW of heat: {ends}>"

    def _repr_html_(self) -> str:
        """Return the circuits as a table for a notebook."""
        from lumion_hw.files.html import html_table

        rows = [
            (
                f"{circuit.request.source} → {circuit.request.target}",
                "; ".join(" ".join(map(str, arm.path.pucs)) for arm in circuit.arms),
                circuit.budget.mesh_loss_db,
                circuit.budget.received_dbm,
                circuit.budget.margin_db,
            )
            for circuit in self.everything
        ]
        headers = ("circuit", "PUCs", "loss dB", "received dBm", "margin dB")
        return html_table(f"Plan of {len(rows)} circuits, {self.heat_mw:.3g} mW of heat", headers, rows)

    @property
    def everything(self) -> tuple[PlannedCircuit, ...]:
        """All circuits that the setting makes: those that stood before, then the planned ones."""
        return (*self.standing, *self.circuits)

    @property
    def couplings(self) -> Mapping[int, float]:
        """Power coupling of every PUC that couples only partly."""
        trims = (arm.trim for circuit in self.everything for arm in circuit.arms)
        return {trim.puc: trim.coupling for trim in trims if trim is not None}
