"""A plan in words: for each circuit why this way, how polarization is dealt with, and its budget line by line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lumion_hw.circuits.budget import (
    DARK_DB,
    MAX_CROSSTALK_DB,
    MAX_EXCLUSIVE_CROSSTALK_DB,
    MAX_IDLE_LIGHT_DB,
    MAX_IMBALANCE_DB,
)
from lumion_hw.circuits.planned import CircuitArm, CircuitPlan, PlannedCircuit


@dataclass(frozen=True)
class BudgetLine:
    """One line of a budget.

    Attributes:
        what: What it is, in words.
        value: The number; ``None`` where there is none.
        unit: Its unit.
        limit: What it has to keep, in words; empty if nothing.
    """

    what: str
    value: float | None
    unit: str
    limit: str = ""

    def __str__(self) -> str:
        told = "none" if self.value is None else f"{self.value:+.2f} {self.unit}"
        return f"{self.what:<38}{told:>14}" + (f"   {self.limit}" if self.limit else "")


def budget_lines(circuit: PlannedCircuit) -> tuple[BudgetLine, ...]:
    """Return the budget of a circuit from launch to receiver, then what else is predicted of it."""
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
        BudgetLine("margin over sensitivity", budget.margin_db, "dB", _least(request.min_margin_db, "dB")),
        BudgetLine("margin below overload", budget.overload_margin_db, "dB", _least(request.min_margin_db, "dB")),
    ]
    if budget.osnr_db is not None:
        limit = _least(None if budget.required_osnr_db is None else budget.required_osnr_db + budget.penalty_db, "dB")
        lines.append(BudgetLine("signal to noise in 0.1 nm", budget.osnr_db, "dB", limit))
    if len(circuit.arms) > 1:
        lines += [
            BudgetLine("loss between the arms", budget.imbalance_db, "dB", f"at most {MAX_IMBALANCE_DB:g} dB wanted"),
            BudgetLine("standard error of that", budget.imbalance_sigma_db, "dB"),
            BudgetLine("the same with strays (PDL)", budget.pdl_db, "dB", _most(budget.max_pdl_db, "dB")),
            BudgetLine("delay between the arms (DGD)", budget.dgd_ps, "ps", _most(budget.max_dgd_ps, "ps")),
        ]
    if budget.crosstalk_db > DARK_DB:
        lines.append(BudgetLine("light of others at its end", budget.crosstalk_db, "dB", _most(crosstalk_db, "dB")))
    for leak in budget.leakage:
        state = "idle" if leak.is_idle else "in use"
        too_bright = leak in budget.idle_above(MAX_IDLE_LIGHT_DB)
        wanted = f"at most {MAX_IDLE_LIGHT_DB:g} dB wanted, no way found is darker" if too_bright else ""
        what = f"its light at {leak.receiver} ({state}, port {leak.port})"
        lines.append(BudgetLine(what, leak.level_db, "dB", wanted))
    return (*lines, BudgetLine("heat of the PUCs on its way", budget.heater_mw, "mW"))


def _least(limit: float | None, unit: str) -> str:
    return "" if limit is None else f"at least {limit:.4g} {unit}"


def _most(limit: float | None, unit: str) -> str:
    return "" if limit is None else f"at most {limit:.4g} {unit}"


def explain(plan: CircuitPlan) -> str:
    """Return a plan in words: for each circuit why this way, the strategy, and the lines of its budget."""
    return "\n".join(line for circuit in plan.everything for line in (*_circuit(plan, circuit), "")) + _whole(plan)


def _circuit(plan: CircuitPlan, circuit: PlannedCircuit) -> Iterator[str]:
    stands = ", which stands already and keeps its way" if circuit in plan.standing else ""
    line = circuit.budget.format
    yield f"{circuit.request} ({line.name}, {line.rate_gbps:g} Gb/s){stands}"
    yield f"  polarization: {circuit.strategy}. {circuit.reason}"
    for arm in circuit.arms:
        yield from (f"  {line}" for line in _way(circuit, arm))
    yield from _lengths(circuit)
    for each in budget_lines(circuit):
        yield f"    {each}"


def _way(circuit: PlannedCircuit, arm: CircuitArm) -> Iterator[str]:
    path, name = arm.path, "way" if len(circuit.arms) == 1 else f"arm {arm.entry.tributary}"
    pucs = " ".join(map(str, path.pucs))
    yield (
        f"{name}: port {path.source} to {path.target}, {path.hops} hops over PUCs {pucs}, {arm.loss_db:.2f} dB ± "
        f"{arm.loss_sigma_db:.2f}"
    )
    longer = path.hops - arm.shortest_hops
    if longer:
        matched = ", or does not match the other arm" if len(circuit.arms) > 1 else ""
        yield (
            f"  {longer} more than the shortest there is between these ports: that one loses more, is in use or cannot "
            f"be set{matched}"
        )
    else:
        yield "  no way between these ports is shorter"
    if arm.trim is not None:
        where = "inside the mesh" if arm.trim.stray_port is None else f"out of port {arm.trim.stray_port}"
        taken = f"takes {arm.trim.loss_db:.2f} dB off it, {where}"
        yield f"  PUC {arm.trim.puc} couples {arm.trim.coupling:.3f} and {taken}"


def _lengths(circuit: PlannedCircuit) -> Iterator[str]:
    if len(circuit.arms) < 2:
        return
    hops = [arm.path.hops for arm in circuit.arms]
    if hops[0] == hops[1]:
        yield "  both arms are equally long: no delay between them"
    else:
        yield (
            f"  the arms differ by {abs(hops[0] - hops[1])} hop: between these ports every way has an odd number of "
            "PUCs on one arm and an even one on the other (parity); wire one tributary to a neighbouring port"
        )


def _whole(plan: CircuitPlan) -> str:
    routing = plan.routing
    best = (
        "proven to lose the least together"
        if routing.outcome == "optimal"
        else f"together at most {100.0 * routing.gap:.1f} % more loss than a proven bound"
    )
    return f"all circuits: {best}; {plan.heat_mw:.1f} mW of heat in the mesh"
