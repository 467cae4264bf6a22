"""Text that explains a circuit plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lumion_hw.circuits.plan.budget import (
    DARK_DB,
    MAX_CROSSTALK_DB,
    MAX_EXCLUSIVE_CROSSTALK_DB,
    MAX_IDLE_LIGHT_DB,
    MAX_IMBALANCE_DB,
)
from lumion_hw.circuits.plan.planned import CircuitArm, CircuitPlan, PlannedCircuit


@dataclass(frozen=True)
class BudgetLine:
    """One line of a link budget.

    Attributes:
        name: Description of the value.
        value: The value; ``None`` if there is none.
        limit: Limit of the value as text; empty without a limit.
    """

    name: str
    value: float | None
    unit: str
    limit: str = ""

    def __str__(self) -> str:
        value = "none" if self.value is None else f"{self.value:+.2f} {self.unit}"
        return f"{self.name:<38}{value:>14}" + (f"   {self.limit}" if self.limit else "")


def budget_lines(circuit: PlannedCircuit) -> tuple[BudgetLine, ...]:
    """Return the lines of a link budget: powers and losses from launch to receiver, then other predictions."""
    budget, request = circuit.budget, circuit.request
    crosstalk_db = MAX_EXCLUSIVE_CROSSTALK_DB if request.exclusive else MAX_CROSSTALK_DB
    ceiling = "" if request.max_loss_db is None else f"at most {request.max_loss_db:g} dB"
    low, high = budget.sensitivity_dbm + request.min_margin_db, budget.overload_dbm - request.min_margin_db
    lines = [
        BudgetLine("launch", budget.launch_dbm, "dBm"),
        BudgetLine("booster", budget.gain_db, "dB"),
        BudgetLine("fibres, connectors, tap", -budget.fixed_loss_db, "dB"),
        BudgetLine("mesh, fibre to fibre", -budget.mesh_loss_db, "dB", ceiling),
        BudgetLine("received", budget.received_dbm, "dBm", f"{low:g} to {high:g} dBm"),
        BudgetLine("standard error of the mesh", budget.loss_sigma_db, "dB"),
        BudgetLine("margin over sensitivity", budget.margin_db, "dB", _minimum_text(request.min_margin_db, "dB")),
        BudgetLine(
            "margin below overload", budget.overload_margin_db, "dB", _minimum_text(request.min_margin_db, "dB")
        ),
    ]
    for lane in budget.lanes:
        limit = f"received {lane.received_dbm:.2f} dBm, margin {lane.margin_db:.2f} dB"
        if not lane.is_calibrated:
            limit += "; the calibration is not valid at this wavelength"
        lines.append(
            BudgetLine(f"mesh for lane {lane.lane}, {lane.wavelength_nm:.2f} nm", -lane.mesh_loss_db, "dB", limit)
        )
    if budget.osnr_db is not None:
        limit = _minimum_text(
            None if budget.required_osnr_db is None else budget.required_osnr_db + budget.penalty_db, "dB"
        )
        lines.append(BudgetLine("signal to noise in 0.1 nm", budget.osnr_db, "dB", limit))
    if len(circuit.arms) > 1:
        lines += [
            BudgetLine("loss between the arms", budget.imbalance_db, "dB", f"at most {MAX_IMBALANCE_DB:g} dB wanted"),
            BudgetLine("standard error of this loss", budget.imbalance_sigma_db, "dB"),
            BudgetLine("the same with stray light (PDL)", budget.pdl_db, "dB", _maximum_text(budget.max_pdl_db, "dB")),
            BudgetLine("delay between the arms (DGD)", budget.dgd_ps, "ps", _maximum_text(budget.max_dgd_ps, "ps")),
        ]
    if budget.crosstalk_db > DARK_DB:
        lines.append(
            BudgetLine("light of others at this end", budget.crosstalk_db, "dB", _maximum_text(crosstalk_db, "dB"))
        )
    for leak in budget.leakage:
        state = "idle" if leak.is_idle else "in use"
        too_bright = leak in budget.idle_leaks_above(MAX_IDLE_LIGHT_DB)
        limit = f"at most {MAX_IDLE_LIGHT_DB:g} dB wanted, found no better path" if too_bright else ""
        name = f"leakage to {leak.receiver} ({state}, port {leak.port})"
        lines.append(BudgetLine(name, leak.level_db, "dB", limit))
    return (*lines, BudgetLine("heat of the PUCs on its path", budget.heater_mw, "mW"))


def _minimum_text(limit: float | None, unit: str) -> str:
    return "" if limit is None else f"at least {limit:.4g} {unit}"


def _maximum_text(limit: float | None, unit: str) -> str:
    return "" if limit is None else f"at most {limit:.4g} {unit}"


def explain(plan: CircuitPlan) -> str:
    """Return a text that lists for each circuit of a plan its path, polarization strategy and link budget."""
    return "\n".join(line for circuit in plan.all_circuits for line in (*_circuit_lines(plan, circuit), "")) + _summary(
        plan
    )


def _circuit_lines(plan: CircuitPlan, circuit: PlannedCircuit) -> Iterator[str]:
    state = ", already active, keeps its path" if circuit in plan.active else ""
    line = circuit.budget.format
    yield f"{circuit.request} ({line.name}, {line.rate_gbps:g} Gb/s){state}"
    yield f"  polarization: {circuit.strategy}. {circuit.reason}"
    for arm in circuit.arms:
        yield from (f"  {line}" for line in _path_lines(circuit, arm))
    yield from _length_lines(circuit)
    for budget_line in budget_lines(circuit):
        yield f"    {budget_line}"


def _path_lines(circuit: PlannedCircuit, arm: CircuitArm) -> Iterator[str]:
    path, name = arm.path, "path" if len(circuit.arms) == 1 else f"arm {arm.entry.tributary}"
    pucs = " ".join(map(str, path.pucs))
    yield (
        f"{name}: port {path.source} to {path.target}, {path.hops} hops, PUCs {pucs}, {arm.loss_db:.2f} ± "
        f"{arm.loss_sigma_db:.2f} dB"
    )
    longer = path.hops - arm.shortest_hops
    if longer:
        matched = ", or does not match the other arm" if len(circuit.arms) > 1 else ""
        yield (
            f"  {longer} more than the shortest path between these ports, which has more loss, is in use or cannot "
            f"be set{matched}"
        )
    else:
        yield "  no path between these ports is shorter"
    if arm.trim is not None:
        where = "inside the mesh" if arm.trim.stray_port is None else f"out of port {arm.trim.stray_port}"
        effect = f"diverts light {where}, which costs the arm {arm.trim.loss_db:.2f} dB"
        yield f"  PUC {arm.trim.puc} couples {arm.trim.coupling:.3f} and {effect}"


def _length_lines(circuit: PlannedCircuit) -> Iterator[str]:
    if len(circuit.arms) < 2:
        return
    hops = [arm.path.hops for arm in circuit.arms]
    if hops[0] == hops[1]:
        yield "  both arms have equal length, so there is no delay between them"
    else:
        yield (
            f"  the arms differ by {abs(hops[0] - hops[1])} hop: between these ports every path has an odd number of "
            "PUCs on one arm and an even number on the other (parity); wire one tributary to a neighbouring port"
        )


def _summary(plan: CircuitPlan) -> str:
    routing = plan.routing
    best = (
        "proven to have the lowest total loss"
        if routing.outcome == "optimal"
        else f"total loss at most {100.0 * routing.gap:.1f} % above a proven bound"
    )
    return f"all circuits: {best}; {plan.heat_mw:.1f} mW of heat in the mesh"
