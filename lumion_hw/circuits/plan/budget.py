"""Link budgets: expected power at the end of a circuit, its uncertainty, and light leaking to other receivers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lumion_hw.bench.file.module_optics import ModuleFormat
from lumion_hw.circuits.plan.request import CircuitRequest

DARK_DB = -200.0
"""Lowest light level that is reported."""
MAX_CROSSTALK_DB = -20.0
"""Limit for the light of other circuits at a circuit's end, relative to the circuit's own light (assumed)."""
MAX_EXCLUSIVE_CROSSTALK_DB = -30.0
"""Limit for the light of other circuits at the end of an exclusive circuit."""
MAX_IDLE_LIGHT_DB = -25.0
"""Limit for a circuit's light at a receiver without a circuit, relative to the light at the circuit's end."""
MAX_IMBALANCE_DB = 0.5
"""Limit for the loss of one arm (path of one polarization) relative to the other."""
_PDL_PENALTY = (0.8, 2.5)
"""Penalty of 0.8 dB at 2.5 dB of polarization-dependent loss, growing with its square (product page 02313LHH)."""
_DGD_PENALTY = (0.5, 10.0)
"""Penalty of 0.5 dB at 10 ps of delay between the polarizations, growing with its square (product page 02313LHH)."""


@dataclass(frozen=True)
class Leakage:
    """Light of a circuit at a receiver that is not the circuit's own.

    Attributes:
        receiver: Device name of the module.
        port: Mesh port in front of the module.
        level_db: Power there relative to the power at the circuit's own end, both in the fibre behind the mesh.
        is_idle: Whether no circuit ends at this receiver.
    """

    receiver: str
    port: int
    level_db: float
    is_idle: bool


@dataclass(frozen=True)
class LaneBudget:
    """Expected power of one lane of a module whose lanes share the fibre, each at its own wavelength.

    Attributes:
        lane: Number of the lane, from 1.
        mesh_loss_db: Predicted loss of the mesh from fibre to fibre at this wavelength.
        received_dbm: Power of the lane at the receiver.
        margin_db: Margin over the receiver's sensitivity.
        overload_margin_db: Margin below the receiver's overload power.
        is_calibrated: Whether the calibration record is valid at this wavelength; otherwise the prediction is that for
            the middle of the band or, if the record is not valid there either, for the wavelength of the record.
    """

    lane: int
    wavelength_nm: float
    mesh_loss_db: float
    received_dbm: float
    margin_db: float
    overload_margin_db: float
    is_calibrated: bool

    def weakened(self, loss_db: float) -> LaneBudget:
        """Return the budget with additional loss in the mesh."""
        return replace(
            self,
            mesh_loss_db=self.mesh_loss_db + loss_db,
            received_dbm=self.received_dbm - loss_db,
            margin_db=self.margin_db - loss_db,
            overload_margin_db=self.overload_margin_db + loss_db,
        )


NO_LIMIT_DBM = 90.0
"""Overload power, and with a minus sign the sensitivity, where the light goes on to another mesh."""


@dataclass(frozen=True)
class LinkBudget:
    """Expected power and signal quality of a circuit; for a circuit with two arms, of both together.

    Attributes:
        launch_dbm: Launch power that the bench file states for the module.
        gain_db: Gain of the booster amplifier.
        fixed_loss_db: Loss of fibres, polarization controller, connectors and tap.
        mesh_loss_db: Predicted loss of the mesh from fibre to fibre.
        received_dbm: Power at the receiver.
        sensitivity_dbm: Lowest received power at which the receiver works.
        overload_dbm: Highest received power at which the receiver works.
        loss_sigma_db: Standard error of ``mesh_loss_db``.
        format: Line format of both modules.
        osnr_db: OSNR in 0.1 nm; ``None`` if no source of noise is known.
        required_osnr_db: OSNR that the receiver needs at this power; ``None`` if it needs none.
        imbalance_db: Loss of one arm relative to the other; 0 with one arm.
        imbalance_sigma_db: Standard error of the imbalance.
        pdl_db: Loss of the weakest polarization relative to the strongest, including light that leaks between the arms;
            0 with one arm.
        dgd_ps: Delay between the arms; 0 with one arm.
        max_pdl_db: Largest loss between polarizations that the receiver accepts; ``None`` without a limit.
        max_dgd_ps: Largest delay that the receiver accepts; ``None`` without a limit.
        crosstalk_db: Light of all other circuits at this circuit's end, relative to its own.
        crosstalk_source: Transmitting module of most of this light; empty without such light.
        leakage: Light of this circuit at every other receiver.
        heater_mw: Heat of the heaters of the circuit's PUCs.
        lanes: Power of each lane, if several share the fibre; all other powers are then totals of the lanes.
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
    lanes: tuple[LaneBudget, ...] = ()
    crosstalk_source: str = ""

    @property
    def has_receiver(self) -> bool:
        """Whether the circuit ends at a receiver, which limits its power, and not at a fibre to another mesh."""
        return self.overload_dbm < NO_LIMIT_DBM

    @property
    def margin_db(self) -> float:
        """Predicted margin over the receiver's sensitivity, in dB."""
        return self.received_dbm - self.sensitivity_dbm

    @property
    def overload_margin_db(self) -> float:
        """Predicted margin below the receiver's overload power, in dB."""
        return self.overload_dbm - self.received_dbm

    def idle_leaks_above(self, level_db: float) -> tuple[Leakage, ...]:
        """Return the receivers without a circuit where this circuit's light exceeds a limit.

        Args:
            level_db: The limit, relative to the light at this circuit's end, in dB.
        """
        return tuple(leak for leak in self.leakage if leak.is_idle and leak.level_db > level_db)

    @property
    def darkness_db(self) -> float:
        """Strongest misplaced light in dB: others' light at this end, or this circuit's at an unused receiver."""
        return max((self.crosstalk_db, *(leak.level_db for leak in self.leakage if leak.is_idle)))

    @property
    def penalty_db(self) -> float:
        """Signal-to-noise penalty in dB that unequal arms cause in a dual-polarization receiver."""
        return sum(
            cost * (value / at) ** 2 for (cost, at), value in ((_PDL_PENALTY, self.pdl_db), (_DGD_PENALTY, self.dgd_ps))
        )

    @property
    def osnr_margin_db(self) -> float | None:
        """Predicted margin over the required OSNR in dB, penalties included; ``None`` if no OSNR is required."""
        if self.osnr_db is None or self.required_osnr_db is None:
            return None
        return self.osnr_db - self.required_osnr_db - self.penalty_db


@dataclass(frozen=True)
class BudgetViolation:
    """A value of a link budget that violates a limit.

    Attributes:
        quantity: Description of the value.
        limit: The largest or smallest allowed value.
        is_ceiling: Whether ``limit`` is the largest allowed value; otherwise it is the smallest.
        field: Field of the request that sets the limit, if any.
        is_of_length: Whether a shorter path would help.
        is_from_other_circuits: Whether other circuits cause the violation.
    """

    quantity: str
    value: float
    limit: float
    unit: str
    is_ceiling: bool
    field: str | None = None
    is_of_length: bool = False
    is_from_other_circuits: bool = False

    def __str__(self) -> str:
        side = "at most" if self.is_ceiling else "at least"
        text = f"{self.value:.4g} {self.unit}".rstrip()
        return f"{self.quantity} is {text}, expected {side} {self.limit:.4g}"


def violations(request: CircuitRequest, budget: LinkBudget, hops: int) -> Iterator[BudgetViolation]:
    """Yield every value of a link budget that violates a limit, the most important first."""
    crosstalk_db = MAX_EXCLUSIVE_CROSSTALK_DB if request.exclusive else MAX_CROSSTALK_DB
    osnr, needed = budget.osnr_db, budget.required_osnr_db
    requested = (
        ("number of PUCs on the path", hops, request.max_hops, "", "max_hops"),
        ("loss over the mesh", budget.mesh_loss_db, request.max_loss_db, "dB", "max_loss_db"),
    )
    for quantity, value, maximum, unit, field in requested:
        if maximum is not None and value > maximum:
            yield BudgetViolation(quantity, value, maximum, unit, True, field, is_of_length=True)
    yield from _power_violation(request, budget.received_dbm, budget.overload_dbm, True)
    of_receiver = (
        ("loss of one polarization over the other (PDL)", budget.pdl_db, budget.max_pdl_db, "dB"),
        ("delay between the arms (DGD)", budget.dgd_ps, budget.max_dgd_ps, "ps"),
    )
    for quantity, value, maximum, unit in of_receiver:
        if maximum is not None and value > maximum:
            yield BudgetViolation(quantity, value, maximum, unit, True)
    if budget.crosstalk_db > crosstalk_db:
        quantity = f"light of other circuits at its end, most of it from {budget.crosstalk_source},"
        yield BudgetViolation(quantity, budget.crosstalk_db, crosstalk_db, "dB", True, is_from_other_circuits=True)
    yield from _power_violation(request, budget.received_dbm, budget.sensitivity_dbm, False)
    yield from _lane_violations(request, budget)
    if osnr is not None and needed is not None and osnr < needed + budget.penalty_db:
        quantity = "signal to noise (OSNR)"
        from_other_circuits = -budget.crosstalk_db < osnr + 3.0  # more than half of the noise
        yield BudgetViolation(quantity, osnr, needed + budget.penalty_db, "dB", False, None, True, from_other_circuits)


def _power_violation(
    request: CircuitRequest, received_dbm: float, end_dbm: float, is_overload: bool, lane: str = ""
) -> Iterator[BudgetViolation]:
    """Yield the received power, or the requested margin, if it violates one end of the receiver's range."""
    margin_db = end_dbm - received_dbm if is_overload else received_dbm - end_dbm
    if margin_db >= request.min_margin_db:
        return
    if request.min_margin_db:
        quantity = f"margin {'below the overload' if is_overload else 'above the sensitivity'}{lane}"
        yield BudgetViolation(
            quantity, margin_db, request.min_margin_db, "dB", False, "min_margin_db", is_of_length=not is_overload
        )
    else:
        quantity = f"received power ({'overload' if is_overload else 'sensitivity'}){lane}"
        yield BudgetViolation(quantity, received_dbm, end_dbm, "dBm", is_overload, is_of_length=not is_overload)


def _lane_violations(request: CircuitRequest, budget: LinkBudget) -> Iterator[BudgetViolation]:
    """Yield the weakest and the strongest lane if they violate a limit."""
    weakest = min(budget.lanes, key=lambda lane: lane.margin_db, default=None)
    strongest = min(budget.lanes, key=lambda lane: lane.overload_margin_db, default=None)
    if weakest is not None:
        end_dbm, name = weakest.received_dbm - weakest.margin_db, _lane(weakest)
        yield from _power_violation(request, weakest.received_dbm, end_dbm, False, name)
    if strongest is not None:
        end_dbm, name = strongest.received_dbm + strongest.overload_margin_db, _lane(strongest)
        yield from _power_violation(request, strongest.received_dbm, end_dbm, True, name)


def _lane(lane: LaneBudget) -> str:
    return f" of lane {lane.lane}, {lane.wavelength_nm:.2f} nm"
