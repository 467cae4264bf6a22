"""Refusing a circuit by the number that fails, with the nearest alternative that would do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from lumion_hw.circuits.budget import BudgetViolation
from lumion_hw.circuits.planned import PlannedCircuit
from lumion_hw.circuits.request import CircuitRequest
from lumion_hw.errors import CircuitError
from lumion_hw.interfaces.wiring import BLOCKED_DB


class BudgetError(CircuitError):
    """A circuit is not set up because a number of its budget fails; nothing was changed.

    Args:
        message: Which circuit, and what fails.
        request: What was asked for.
        violations: Every number that fails.
        nearest: The request that the nearest plan found would meet; ``None`` where no request helps.
        hint: What to do, in words.
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
    "received power (overload": "Lower gain_db or tx_power_dbm: no PUC on the way can take so much light off it",
    "loss of one polarization": "Wire both tributaries with equal losses",
    "delay between the arms": "Wire both tributaries to ports of equal parity",
    "light of other circuits": "Plan it with fewer circuits beside it, or without exclusive",
    "signal to noise": "Raise the power before the booster, or use one of a lower noise_figure_db",
}
"""What helps against a number that no request asks for, by how it begins."""


def refused(circuit: PlannedCircuit, found: Sequence[BudgetViolation]) -> BudgetError:
    """Return the error for a circuit, given the nearest plan that was found for it.

    Args:
        circuit: The circuit as it could be.
        found: What fails of it.
    """
    request, budget = circuit.request, circuit.budget
    relaxed = {each.field: _relaxed(each, request) for each in found if each.field is not None}
    rest = [each for each in found if each.field is None]
    told = f"{circuit.hops} hops, {budget.mesh_loss_db:.1f} dB over the mesh, {budget.received_dbm:.1f} dBm received"
    if blocked := _blocking(circuit):
        hint, nearest = f"No light passes {', '.join(blocked)}: a shutter, a connection or a pump is off.", None
    elif rest:
        remedy = next((words for start, words in _REMEDIES.items() if rest[0].what.startswith(start)), "Ask for less")
        hint, nearest = f"The nearest found: {told}. {remedy}.", None
    else:
        nearest = replace(request, **relaxed)  # type: ignore[arg-type] # each field keeps its own type
        asked = ", ".join(f"{name}={value:g}" for name, value in relaxed.items())
        hint = f"Feasible with {asked}: {told}."
    failing = "; ".join(str(each) for each in found)
    return BudgetError(
        f"circuit {request} is refused: {failing}", request=request, violations=found, nearest=nearest, hint=hint
    )


def _blocking(circuit: PlannedCircuit) -> list[str]:
    """Return the devices on a circuit's way that let no light pass."""
    paths = [path for arm in circuit.arms for path in (arm.entry, arm.exit)]
    found = [
        part.device
        for path in paths
        for part, loss_db in zip(path.through, path.inline_losses_db, strict=False)  # of a file nobody has asked them
        if loss_db >= 0.5 * BLOCKED_DB
    ]
    return list(dict.fromkeys(found))


def _relaxed(violation: BudgetViolation, request: CircuitRequest) -> float:
    """Return the value of a request's field that what was found would meet."""
    if violation.field == "min_margin_db":
        short = abs(violation.found - violation.limit)
        return max(math.floor((request.min_margin_db - short) * 10.0) / 10.0, 0.0)
    if violation.field == "max_hops":
        return int(violation.found)
    return math.ceil(violation.found * 10.0) / 10.0
