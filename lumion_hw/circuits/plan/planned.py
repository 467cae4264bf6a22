"""Planned circuits: paths through the mesh, budgets, PUC states and heater currents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.circuits.plan.budget import LinkBudget
from lumion_hw.circuits.plan.request import CircuitRequest
from lumion_hw.interfaces.wiring import InputPath, OutputPath
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.routing import Path, Routing

Strategy = Literal["controller", "diversity", "none", "dual"]
"""How the light reaches the mesh as TE.

``controller``: a polarization controller at the input. ``diversity``: a splitter-rotator divides the light into two
parts, each with its own path. ``none``: no such device. ``dual``: the signal has two polarizations, each with its own
path.
"""


@dataclass(frozen=True)
class ArmTrim:
    """Loss added to an arm (path of one polarization): one PUC couples only part of the light.

    Attributes:
        puc: The PUC; no other arm uses it.
        coupling: Power coupling of the PUC: 0 bar, 1 cross.
        stray_port: Port where the diverted light leaves the mesh; ``None`` if it circulates inside.
    """

    puc: int
    coupling: float
    loss_db: float
    stray_port: int | None


@dataclass(frozen=True)
class CircuitArm:
    """One path of a circuit through the mesh; a circuit has two if its polarizations are separate.

    Attributes:
        entry: Fibre from the transmitter to the mesh.
        exit: Fibre from the mesh to the receiver.
        loss_db: Predicted loss of the mesh from fibre to fibre, including ``trim``.
        loss_sigma_db: Standard error of this loss.
        trim: Loss added to the arm, or ``None``.
        shortest_hops: Number of PUCs on the shortest path between these ports in an empty mesh.
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
        """Loss outside the mesh: fibres, connectors and tap."""
        return self.entry.loss_db + self.exit.loss_db - 10.0 * math.log10(self.exit.receiver_fraction)

    @property
    def total_loss_db(self) -> float:
        """Loss from module to module, minus the booster's gain."""
        return self.loss_db + self.fixed_loss_db - self.entry.gain_db


@dataclass(frozen=True)
class PlannedCircuit:
    """One circuit of a plan.

    Attributes:
        arms: Paths of the circuit through the mesh; with two, that of x polarization first.
        budget: The expected power and signal quality.
        strategy: How the polarization is handled.
        reason: Reason for this strategy, as a sentence.
    """

    request: CircuitRequest
    arms: tuple[CircuitArm, ...]
    budget: LinkBudget
    strategy: Strategy
    reason: str

    def __repr__(self) -> str:
        """Return a one-line summary of the planned circuit."""
        budget = self.budget
        ends = self.request.name
        return (
            f"<PlannedCircuit {ends}, {self.hops} hops, {budget.mesh_loss_db:.2f} dB, margin {budget.margin_db:.2f} dB>"
        )

    def with_arms(self, arms: Sequence[CircuitArm]) -> PlannedCircuit:
        """Return the circuit with changed arms."""
        # The budget is that of all arms together; a constant share of power per arm cancels in the difference.
        before, after = (
            10.0 * math.log10(sum(10.0 ** (-arm.total_loss_db / 10.0) for arm in arm_group))
            for arm_group in (self.arms, arms)
        )
        budget = replace(
            self.budget,
            mesh_loss_db=self.budget.mesh_loss_db + before - after,
            received_dbm=self.budget.received_dbm + after - before,
            lanes=tuple(lane.weakened(before - after) for lane in self.budget.lanes),
        )
        return replace(self, arms=tuple(arms), budget=budget)

    @property
    def entry(self) -> InputPath:
        """Fibre from the transmitter to the mesh, of the circuit's first arm."""
        return self.arms[0].entry

    @property
    def exit(self) -> OutputPath:
        """Fibre from the mesh to the receiver, of the circuit's first arm."""
        return self.arms[0].exit

    @property
    def path(self) -> Path:
        """Path of the circuit's first arm through the mesh."""
        return self.arms[0].path

    @property
    def hops(self) -> int:
        """Number of PUCs on the circuit's longest arm."""
        return max(arm.path.hops for arm in self.arms)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of all arms of the circuit."""
        return tuple(arm.path for arm in self.arms)


@dataclass(frozen=True)
class CircuitPlan:
    """A conflict-free set of circuits and the mesh setting for them.

    Attributes:
        circuits: One circuit per request, in order.
        routing: Paths and PUC states of all circuits, and how close their cost is to the optimum.
        states: State of every PUC that can be set; for a PUC that couples partly, the nearer of bar and cross.
        currents_ma: Heater currents, shape ``(2 n_pucs,)``.
        active: Circuits that were active before and keep their paths; their budgets include the new circuits.
        heat_mw: Heat of all heaters together.
    """

    circuits: tuple[PlannedCircuit, ...]
    routing: Routing
    states: dict[int, State]
    currents_ma: NDArray[np.float64]
    active: tuple[PlannedCircuit, ...] = ()
    heat_mw: float = 0.0

    def __repr__(self) -> str:
        """Return a one-line summary of the plan."""
        ends = ", ".join(circuit.request.name for circuit in self.all_circuits)
        return f"<CircuitPlan of {len(self.all_circuits)} circuits, {self.heat_mw:.3g} mW of heat: {ends}>"

    def _repr_html_(self) -> str:
        from lumion_hw.files.html import html_table

        rows = [
            (
                f"{circuit.request.source} → {circuit.request.target}",
                "; ".join(" ".join(map(str, arm.path.pucs)) for arm in circuit.arms),
                circuit.budget.mesh_loss_db,
                circuit.budget.received_dbm,
                circuit.budget.margin_db,
            )
            for circuit in self.all_circuits
        ]
        headers = ("circuit", "PUCs", "loss dB", "received dBm", "margin dB")
        return html_table(f"Plan of {len(rows)} circuits, {self.heat_mw:.3g} mW of heat", headers, rows)

    @property
    def all_circuits(self) -> tuple[PlannedCircuit, ...]:
        """All circuits: those that were active before, then the planned ones."""
        return (*self.active, *self.circuits)

    @property
    def couplings(self) -> Mapping[int, float]:
        """Power coupling of every PUC that couples only partly."""
        trims = (arm.trim for circuit in self.all_circuits for arm in circuit.arms)
        return {trim.puc: trim.coupling for trim in trims if trim is not None}
