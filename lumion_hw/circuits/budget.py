"""Link budgets: what should arrive at the end of a circuit, how sure that is, and what it leaves to others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lumion_hw.bench.file.module_optics import ModuleFormat
from lumion_hw.circuits.request import CircuitRequest

DARK_DB = -200.0
"""Light below this is reported as this: nothing at all has no decibels."""
MAX_CROSSTALK_DB = -20.0
"""Light of other circuits at the end of one, over its own (assumed)."""
MAX_EXCLUSIVE_CROSSTALK_DB = -30.0
"""The same where the request is exclusive."""
MAX_IDLE_LIGHT_DB = -25.0
"""A circuit's light at a receiver that nobody sends to, over its own at its end."""
MAX_IMBALANCE_DB = 0.5
"""Loss of one arm over that of the other."""
_PDL_PENALTY = (0.8, 2.5)
"""Penalty of 0.8 dB at 2.5 dB of polarization-dependent loss, with its square (product page 02313LHH)."""
_DGD_PENALTY = (0.5, 10.0)
"""Penalty of 0.5 dB at 10 ps of delay between the polarizations, with its square (same page)."""


@dataclass(frozen=True)
class Leakage:
    """Light of a circuit at a receiver that it is not for.

    Attributes:
        receiver: Device name of the module.
        port: Mesh port before it.
        level_db: Power there over the circuit's own power at its end, both in the fibre behind the mesh.
        is_idle: No circuit ends at this receiver.
    """

    receiver: str
    port: int
    level_db: float
    is_idle: bool


@dataclass(frozen=True)
class LinkBudget:
    """What should arrive, from launch to receiver. With two arms, what both bring together.

    Attributes:
        launch_dbm: Launch power the bench file states for the module.
        gain_db: Booster amplifier.
        fixed_loss_db: Fibre, controller and connectors on both sides, and the tap.
        mesh_loss_db: Fibre to fibre over the mesh, predicted from the calibration; what is trimmed away is part of it.
        received_dbm: Power at the receiver.
        sensitivity_dbm: Least power that counts as a link.
        overload_dbm: Largest power that counts as a link.
        loss_sigma_db: Standard error of ``mesh_loss_db``, from the record's own.
        format: Line format of both ends.
        osnr_db: Signal to noise in 0.1 nm: as sent, of the booster, and of other circuits' light; ``None`` where
            nothing is known to make noise.
        required_osnr_db: What the receiver needs of it at this power; ``None`` if it needs none.
        imbalance_db: Loss of one arm over that of the other; 0 with one arm.
        imbalance_sigma_db: Standard error of that.
        pdl_db: Loss of the dimmest polarization over the brightest, light that changes arms included; 0 with one arm.
        dgd_ps: Delay between the arms; 0 with one arm.
        max_pdl_db: What the receiver takes; ``None`` if it is no limit.
        max_dgd_ps: What the receiver takes; ``None`` if it is no limit.
        crosstalk_db: Light of all other circuits at this one's end, over its own.
        leakage: This circuit's light at every other receiver.
        heater_mw: Heat of the heaters of the PUCs on its way.
    """

    launch_dbm: float
    gain_db: float
    fixed_loss_db: float
    mesh_loss_db: float
    received_dbm: float
    sensitivity_dbm: float
    overload_dbm: float
    loss_sigma_db: float
    format: ModuleFormat
    osnr_db: float | None
    required_osnr_db: float | None
    imbalance_db: float
    imbalance_sigma_db: float
    pdl_db: float
    dgd_ps: float
    max_pdl_db: float | None
    max_dgd_ps: float | None
    crosstalk_db: float
    leakage: tuple[Leakage, ...]
    heater_mw: float

    @property
    def margin_db(self) -> float:
        """Predicted margin over the receiver's sensitivity."""
        return self.received_dbm - self.sensitivity_dbm

    @property
    def overload_margin_db(self) -> float:
        """Predicted margin below the receiver's overload."""
        return self.overload_dbm - self.received_dbm

    def idle_above(self, level_db: float) -> tuple[Leakage, ...]:
        """Return idle receivers that get more of this circuit's light than a level over its own at its end."""
        return tuple(leak for leak in self.leakage if leak.is_idle and leak.level_db > level_db)

    @property
    def darkness_db(self) -> float:
        """Most light where it does not belong: of others at this end, or its own at an idle receiver."""
        return max((self.crosstalk_db, *(leak.level_db for leak in self.leakage if leak.is_idle)))

    @property
    def penalty_db(self) -> float:
        """Signal to noise that the difference of the arms costs a receiver of two polarizations."""
        return sum(
            cost * (value / at) ** 2 for (cost, at), value in ((_PDL_PENALTY, self.pdl_db), (_DGD_PENALTY, self.dgd_ps))
        )

    @property
    def osnr_margin_db(self) -> float | None:
        """Predicted margin over the signal to noise needed, penalties counted; ``None`` where none is needed."""
        if self.osnr_db is None or self.required_osnr_db is None:
            return None
        return self.osnr_db - self.required_osnr_db - self.penalty_db


@dataclass(frozen=True)
class BudgetViolation:
    """A number of a budget that is not what it has to be.

    Attributes:
        what: What it is, in words.
        found: Its value.
        limit: What it may be at the most, or has to be at least.
        unit: Unit of both.
        is_ceiling: Whether ``limit`` is the largest allowed, else the least.
        field: Field of the request that asks for it, if one does.
        is_of_length: Whether a shorter way would help.
        is_of_others: Whether it is what other circuits do to this one.
    """

    what: str
    found: float
    limit: float
    unit: str
    is_ceiling: bool
    field: str | None = None
    is_of_length: bool = False
    is_of_others: bool = False

    def __str__(self) -> str:
        side = "at most" if self.is_ceiling else "at least"
        found = f"{self.found:.4g} {self.unit}".rstrip()
        return f"{self.what} is {found}, expected {side} {self.limit:.4g}"


def violations(request: CircuitRequest, budget: LinkBudget, hops: int) -> Iterator[BudgetViolation]:
    """Yield every number of a budget that fails, the most telling first.

    Args:
        request: What was asked for.
        budget: What should arrive.
        hops: PUCs on the longest arm.
    """
    kept = f", {request.min_margin_db:g} dB of margin kept" if request.min_margin_db else ""
    asked = "min_margin_db" if request.min_margin_db else None
    crosstalk_db = MAX_EXCLUSIVE_CROSSTALK_DB if request.exclusive else MAX_CROSSTALK_DB
    low, high = budget.sensitivity_dbm + request.min_margin_db, budget.overload_dbm - request.min_margin_db
    osnr, needed = budget.osnr_db, budget.required_osnr_db
    ceilings = (
        ("number of PUCs on the way", hops, request.max_hops, "", "max_hops", True),
        ("loss over the mesh", budget.mesh_loss_db, request.max_loss_db, "dB", "max_loss_db", True),
        (f"received power (overload{kept})", budget.received_dbm, high, "dBm", asked, False),
        ("loss of one polarization over the other (PDL)", budget.pdl_db, budget.max_pdl_db, "dB", None, False),
        ("delay between the arms (DGD)", budget.dgd_ps, budget.max_dgd_ps, "ps", None, False),
    )
    for what, found, most, unit, field, shorter in ceilings:
        if most is not None and found > most:
            yield BudgetViolation(what, found, most, unit, True, field, shorter)
    if budget.crosstalk_db > crosstalk_db:
        what = "light of other circuits at its end"
        yield BudgetViolation(what, budget.crosstalk_db, crosstalk_db, "dB", True, is_of_others=True)
    if budget.received_dbm < low:
        what = f"received power (sensitivity{kept})"
        yield BudgetViolation(what, budget.received_dbm, low, "dBm", False, asked, True)
    if osnr is not None and needed is not None and osnr < needed + budget.penalty_db:
        what = "signal to noise (OSNR)"
        of_others = -budget.crosstalk_db < osnr + 3.0  # more than half of the noise
        yield BudgetViolation(what, osnr, needed + budget.penalty_db, "dB", False, None, True, of_others)
