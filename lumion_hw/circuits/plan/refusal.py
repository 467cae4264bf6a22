"""Errors for circuits that violate limits of their link budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from lumion_hw.circuits.plan.budget import BudgetViolation
from lumion_hw.circuits.plan.planned import PlannedCircuit
from lumion_hw.circuits.plan.request import CircuitRequest
from lumion_hw.errors import CircuitError
from lumion_hw.interfaces.wiring import BLOCKED_DB


class BudgetError(CircuitError):
    """A circuit is not set up because a value of its link budget violates a limit; nothing was changed.

    Args:
        message: Name of the circuit and the violated limits.
        violations: All values out of their limits.
        nearest: The request with limits that the best plan would meet; ``None`` if other limits do not help.
        hint: Recommended action.
    """

    def __init__(
        self,
        message: str,
        *,
        request: CircuitRequest,
        violations: Sequence[BudgetViolation],
        nearest: CircuitRequest | None,
        hint: str,
    ) -> None:
        super().__init__(message, hint=hint)
        self.request = request
        self.violations = tuple(violations)
        self.nearest = nearest


_REMEDIES = {
    "received power (sensitivity": "Raise tx_power_dbm or gain_db, or use ports nearer to each other",
    "received power (overload": "Lower gain_db or tx_power_dbm: no PUC on the path can trim that much light",
    "loss of one polarization": "Wire both tributaries with equal losses",
    "delay between the arms": "Wire both tributaries to ports of equal parity",
    "light of other circuits": "Plan it with fewer other circuits, or without exclusive",
    "signal to noise": "Raise the power before the booster, or use a booster with a lower noise_figure_db",
}
"""Recommended actions for values that no field of a request controls, by the beginning of the value's description."""


def budget_error(circuit: PlannedCircuit, problems: Sequence[BudgetViolation]) -> BudgetError:
    """Return the error for a circuit that violates limits of its link budget."""
    request, budget = circuit.request, circuit.budget
    relaxed: dict[str, float] = {}
    for violation in problems:
        if violation.field is not None:
            limit = _relaxed_limit(violation)
            # A field may be violated several times, such as the margin at both ends of the receiver's range.
            easier = min if violation.field == "min_margin_db" else max
            relaxed[violation.field] = easier(relaxed.get(violation.field, limit), limit)
    general = [violation for violation in problems if violation.field is None]
    result = f"{circuit.hops} hops, {budget.mesh_loss_db:.1f} dB over the mesh, {budget.received_dbm:.1f} dBm received"
    if blocked := _blocking_devices(circuit):
        hint, nearest = f"{', '.join(blocked)} blocks the light: switch its shutter, connection or pump on.", None
    elif general:
        # No field of a request would help, so suggest a change of the bench.
        remedy = next(
            (text for start, text in _REMEDIES.items() if general[0].quantity.startswith(start)), "Ask for less"
        )
        hint, nearest = f"The nearest plan has {result}. {remedy}.", None
    else:
        nearest = replace(request, **relaxed)  # type: ignore[arg-type] # each field keeps its own type
        fields = ", ".join(f"{name}={value:g}" for name, value in relaxed.items())
        hint = f"Feasible with {fields}: {result}."
    failing = "; ".join(str(violation) for violation in problems)
    return BudgetError(
        f"circuit {request} cannot be set up: {failing}",
        request=request,
        violations=problems,
        nearest=nearest,
        hint=hint,
    )


def _blocking_devices(circuit: PlannedCircuit) -> list[str]:
    paths = [path for arm in circuit.arms for path in (arm.entry, arm.exit)]
    names = [
        part.device
        for path in paths
        for part, loss_db in zip(path.through, path.inline_losses_db, strict=False)  # a bench file has no readings
        if loss_db >= 0.5 * BLOCKED_DB
    ]
    return list(dict.fromkeys(names))


def _relaxed_limit(violation: BudgetViolation) -> float:
    # Rounded towards the easier value, so that a request with this limit succeeds.
    if violation.field == "min_margin_db":
        return max(math.floor(violation.value * 10.0) / 10.0, 0.0)
    if violation.field == "max_hops":
        return int(violation.value)
    return math.ceil(violation.value * 10.0) / 10.0
