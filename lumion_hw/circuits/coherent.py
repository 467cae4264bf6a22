"""Start-up of coherent modules, and checks of received dual-polarization signals.

Total power does not depend on the polarization of such a signal, so a polarization search by power is impossible.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from lumion_hw.bench.bench import Bench
from lumion_hw.circuits.plan.budget import LinkBudget
from lumion_hw.circuits.plan.planned import PlannedCircuit
from lumion_hw.circuits.plan.request import CircuitRequest
from lumion_hw.errors import CircuitError, ConfigError
from lumion_hw.interfaces import CoherentTransponder, LockReport
from lumion_hw.quantities import db_from_ratio, frequency_hz_from_wavelength_m, ratio_from_db

LOCK_TIMEOUT_S = 60.0
"""Longest time until a coherent receiver has locked; locking takes a second once its data path is up."""
PDL_TOLERANCE_DB = 0.5
"""Allowed excess of the measured over the predicted loss between the polarizations; modules resolve 0.1 dB."""
DGD_TOLERANCE_PS = 2.0
"""Allowed excess of the measured over the predicted delay between the polarizations; modules resolve 1 ps."""
MAX_SOP_KRAD_PER_S = 50.0
"""Polarization rate that a receiver can follow with 0.3 dB penalty (product page 02313LHH)."""
# Limits of the two codes, each from a single source (docs/transponders.md).
_FEC_LIMIT_BER: Mapping[str, float] = {"400ZR": 1.25e-2, "ZR400-OFEC": 2e-2}
# Rounded from the 59.84 GBd of 400ZR; the next line is 0.1 nm at 1550 nm, the bandwidth of every OSNR.
_SYMBOL_RATE_GBD = 60.0
_OSNR_BAND_GHZ = 12.5


@dataclass(frozen=True)
class Acceptance:
    """Signal quality that a dual-polarization receiver reports; ``None`` for quantities that it does not report.

    Attributes:
        lock: Whether the receiver has locked, and if not, why.
        pdl_db: Loss between the polarizations.
        dgd_ps: Delay between the polarizations.
        sop_krad_per_s: Rate at which the polarizations turn.
        prefec_ber: Bit error ratio before correction.
        max_ber: Bit error ratio of a receiver on this circuit that just meets its specification.
        failures: Reasons why the signal is not accepted, one clause each.
    """

    lock: LockReport
    pdl_db: float | None = None
    dgd_ps: float | None = None
    sop_krad_per_s: float | None = None
    prefec_ber: float | None = None
    max_ber: float | None = None
    failures: tuple[str, ...] = ()


def transmitters_of(circuits: Sequence[PlannedCircuit]) -> list[str]:
    """Return the modules whose lasers circuits need: transmitters and coherent receivers."""
    names = [
        name
        for circuit in circuits
        for name in (circuit.request.source, *((circuit.request.target,) if circuit.strategy == "dual" else ()))
    ]
    return list(dict.fromkeys(names))


def switch_on_transmitters(bench: Bench, circuits: Sequence[PlannedCircuit], transmitting: Collection[str]) -> None:
    """Switch on the transmitters of circuits in parallel, except those in ``transmitting``, which are already on.

    Raises:
        LumionError: A module failed.
    """
    # By name, because a module that two circuits use is brought up only once.
    circuit_of = {name: circuit for circuit in circuits for name in transmitters_of([circuit])}
    work = [
        (name, functools.partial(_switch_on, bench, name, circuit))
        for name, circuit in circuit_of.items()
        if name not in transmitting
    ]
    receivers = {circuit.request.target: circuit for circuit in circuits}
    work += [
        (name, functools.partial(_prepare_receiver, bench, name, circuit))
        for name, circuit in receivers.items()
        if name not in circuit_of and name not in transmitting
    ]
    bench.run_parallel(work)


def _switch_on(bench: Bench, name: str, circuit: PlannedCircuit) -> None:
    module = bench.circuit_module(name)
    if isinstance(module, CoherentTransponder):
        module.power_up()
        module.select_application(_application_of(name, module, circuit))
        # A coherent receiver mixes with its own laser, so both modules are tuned to the frequency of the transmitter.
        optics = bench.model.devices[circuit.request.source].optics
        if module.capabilities().tunable and optics is not None:
            module.tune(round(frequency_hz_from_wavelength_m(optics.emits_nm * 1e-9) * 1e-12, 6))
    module.enable()


def _prepare_receiver(bench: Bench, name: str, circuit: PlannedCircuit) -> None:
    """Let a module receive without switching its transmitter on; a receiver that is ready is left alone."""
    module = bench.circuit_module(name)
    if not isinstance(module, CoherentTransponder):
        return
    module.power_up()
    number = _application_of(name, module, circuit)
    if number not in module.settings().applications.values():
        module.select_application(number)


def _application_of(name: str, module: CoherentTransponder, circuit: PlannedCircuit) -> int:
    """Return the number of the application with the line format of a circuit. Raises ``ConfigError`` without any."""
    applications, line = module.capabilities().applications, circuit.budget.format
    for application in applications:
        if line.media_id in (None, application.media_id):
            return application.number
    offered = ", ".join(application.media_interface for application in applications)
    raise ConfigError(
        f"circuit {circuit.request} needs {line.name}, the module offers {offered or 'nothing'}",
        device=name,
        hint="Check 'profile' in the bench file, or which module is plugged in.",
    )


def refuse_power_feedback(circuit: PlannedCircuit) -> None:
    """Raise an error if the power of a circuit does not depend on polarization.

    Raises:
        CircuitError: The signal has two polarizations, so a polarization search by power is impossible.
    """
    if circuit.strategy == "dual":
        raise CircuitError(
            f"circuit {circuit.request}: its signal has two polarizations of equal power, so the power behind a "
            "polarizer does not depend on their orientation, and a polarization search by power is impossible",
            device=circuit.entry.polarization,
            hint="No search is needed: the coherent receiver corrects the polarization itself.",
        )


def max_ber(budget: LinkBudget) -> float | None:
    """Return the bit error ratio before correction of a receiver that just meets its specification.

    Noise of the receiver at its required OSNR and of the circuit is added; penalties of PDL and DGD are subtracted in
    dB. The result is that of 16QAM in Gaussian noise: 3/8·erfc(√(SNR/10)). ``None`` if the OSNR or the limit is
    unknown.
    """
    limit = _FEC_LIMIT_BER.get(budget.format.name)
    if limit is None or budget.osnr_db is None or budget.required_osnr_db is None:
        return None
    # Powers of independent noise add, and so do inverse signal-to-noise ratios: the total at the limit, minus the noise
    # of the required OSNR, is the receiver's own noise.
    own = 1.0 / _snr_of_ber(limit) - 1.0 / _snr_of_osnr(budget.required_osnr_db)
    snr_db = db_from_ratio(1.0 / (own + 1.0 / _snr_of_osnr(budget.osnr_db))) - budget.penalty_db
    return _ber_of_snr(ratio_from_db(snr_db))


def _snr_of_osnr(osnr_db: float) -> float:
    return ratio_from_db(osnr_db) * _OSNR_BAND_GHZ / _SYMBOL_RATE_GBD


def _ber_of_snr(snr: float) -> float:
    return 0.375 * math.erfc(math.sqrt(snr / 10.0))


def _snr_of_ber(ber: float) -> float:
    # Bisection on a logarithmic scale: the bit error ratio falls steadily with the signal-to-noise ratio.
    low, high = 1.0, 1e3
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _ber_of_snr(middle) > ber else (low, middle)
    return low


def check_receiver(bench: Bench, circuit: PlannedCircuit, timeout_s: float = LOCK_TIMEOUT_S) -> Acceptance:
    """Wait for the lock of a dual-polarization circuit and read its signal quality.

    Raises:
        LumionError: The module failed.
    """
    module = _receiver(bench, circuit)
    lock = module.wait_for_lock(timeout_s)
    if not lock.locked:
        return Acceptance(lock, failures=(f"the receiver has not locked: {lock.detail}",))
    quantities = module.performance().quantities

    def value(name: str) -> float | None:
        number = quantities[name].best if name in quantities else None
        return None if number is None else number.value

    values = {name: value(name) for name in ("pdl", "dgd", "sop_rate", "prefec_ber")}
    budget = circuit.budget
    bound = max_ber(budget)
    limits = (
        ("PDL", values["pdl"], budget.pdl_db + PDL_TOLERANCE_DB, "dB"),
        ("DGD", values["dgd"], budget.dgd_ps + DGD_TOLERANCE_PS, "ps"),
        ("SOP rate", values["sop_rate"], MAX_SOP_KRAD_PER_S, "krad/s"),
        ("BER before correction", values["prefec_ber"], bound, ""),
    )
    # A bit error ratio has no unit, which would leave two spaces.
    failures = tuple(
        f"its {name} is {measured:.3g} {unit}, expected at most {maximum:.3g}".replace("  ", " ")
        for name, measured, maximum, unit in limits
        if measured is not None and maximum is not None and measured > maximum
    )
    return Acceptance(lock, values["pdl"], values["dgd"], values["sop_rate"], values["prefec_ber"], bound, failures)


def await_locks(
    bench: Bench,
    circuits: Sequence[PlannedCircuit],
    timeout_s: float = LOCK_TIMEOUT_S,
    locked: Callable[[CircuitRequest], None] = lambda request: None,
) -> None:
    """Wait until the receivers of all dual-polarization circuits have locked; ignore other circuits.

    ``locked`` is called with each circuit when its receiver has locked.

    Raises:
        CircuitError: A receiver has not locked; the message gives the reason that it reports.
        LumionError: A module failed.
    """

    def wait(circuit: PlannedCircuit) -> str:
        report = _receiver(bench, circuit).wait_for_lock(timeout_s)
        if not report.locked:
            return f"{circuit.request}: the receiver has not locked within {timeout_s:g} s: {report.detail}"
        locked(circuit.request)
        return ""

    dual = [circuit for circuit in circuits if circuit.strategy == "dual"]
    outcomes = bench.run_parallel([(circuit.request.target, functools.partial(wait, circuit)) for circuit in dual])
    if failures := [failure for failure in outcomes if failure]:
        raise CircuitError("; ".join(failures), hint="`lumion transponder status` shows what the module sees.")


def _receiver(bench: Bench, circuit: PlannedCircuit) -> CoherentTransponder:
    module = bench.circuit_module(circuit.request.target)
    if not isinstance(module, CoherentTransponder):
        raise ConfigError("the receiver is not a coherent module", device=circuit.request.target)
    return module
