"""Circuits of modules that have to be brought up, and what accepts a signal of two polarizations.

Of such a signal each arm leaves the mesh at an exit of its own, where its power is measured while both tributaries run.
What the receiver makes of both together only the receiver can tell: its lock, PDL, DGD, SOP rate and bit error ratio
before correction. Power cannot guide its polarization: it does not change when the signal is turned.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from lumion_hw.bench.bench import Bench
from lumion_hw.circuits.budget import LinkBudget
from lumion_hw.circuits.planned import PlannedCircuit
from lumion_hw.circuits.request import CircuitRequest
from lumion_hw.errors import CircuitError, ConfigError
from lumion_hw.interfaces import CoherentTransponder, LockReport
from lumion_hw.quantities import db_from_ratio, frequency_hz_from_wavelength_m, ratio_from_db

LOCK_TIMEOUT_S = 60.0
"""A coherent receiver locks within a second; its data path may have to come up before."""
PDL_WITHIN_DB = 0.5
"""Measured against predicted loss between the polarizations; modules resolve 0.1 dB."""
DGD_WITHIN_PS = 2.0
"""Measured against predicted delay between the polarizations; modules resolve 1 ps."""
MAX_SOP_KRAD_PER_S = 50.0
"""Rate at which a receiver follows the polarization with 0.3 dB of penalty (product page 02313LHH)."""
_FEC_LIMIT_BER: Mapping[str, float] = {"400ZR": 1.25e-2, "ZR400-OFEC": 2e-2}
_SYMBOL_RATE_GBD = 60.0
_OSNR_BAND_GHZ = 12.5


@dataclass(frozen=True)
class Acceptance:
    """What a receiver of two polarizations says of its signal; ``None`` where it does not tell.

    Attributes:
        lock: Whether it has locked, and if not, what holds it up.
        pdl_db: Loss between the polarizations.
        dgd_ps: Delay between them.
        sop_krad_per_s: Rate at which they turn.
        prefec_ber: Bit error ratio before correction.
        most_ber: The largest that a module which just meets its specification would have here.
        failures: Why it is not accepted, one clause each.
    """

    lock: LockReport
    pdl_db: float | None = None
    dgd_ps: float | None = None
    sop_krad_per_s: float | None = None
    prefec_ber: float | None = None
    max_ber: float | None = None
    failures: tuple[str, ...] = ()


def transmitters_of(circuits: Sequence[PlannedCircuit]) -> list[str]:
    """Return the modules whose transmitters circuits need: a coherent receiver mixes with its own laser's light."""
    names = [
        name
        for circuit in circuits
        for name in (circuit.request.source, *((circuit.request.target,) if circuit.strategy == "dual" else ()))
    ]
    return list(dict.fromkeys(names))


def light_up(bench: Bench, circuits: Sequence[PlannedCircuit], lit: Collection[str]) -> None:
    """Switch the transmitters of circuits on that are dark, side by side; modules that need it are brought up first.

    Args:
        bench: The bench.
        circuits: The circuits.
        lit: Modules that are on already, and stay as they are.

    Raises:
        LumionError: What a module raises.
    """
    found = {name: circuit for circuit in circuits for name in transmitters_of([circuit])}
    work = [(name, functools.partial(_bring_up, bench, name, circuit)) for name, circuit in found.items()]
    bench.run_parallel([(name, job) for name, job in work if name not in lit])


def _bring_up(bench: Bench, name: str, circuit: PlannedCircuit) -> None:
    """Bring one module from whatever it does to light in the circuit's format, at its frequency."""
    module = bench.transponders[name]
    if isinstance(module, CoherentTransponder):
        module.power_up()
        capabilities = module.capabilities()
        line = circuit.budget.format
        numbers = [each.number for each in capabilities.applications if line.media_id in (None, each.media_id)]
        if not numbers:
            offered = ", ".join(each.media_interface for each in capabilities.applications)
            raise ConfigError(
                f"circuit {circuit.request} needs {line.name}, the module offers {offered or 'nothing'}",
                device=name,
                hint="Check 'profile' in the bench file, or which module is plugged in.",
            )
        module.select_application(numbers[0])
        optics = bench.model.devices[circuit.request.source].optics
        if capabilities.tunable and optics is not None:
            module.tune(round(frequency_hz_from_wavelength_m(optics.emits_nm * 1e-9) * 1e-12, 6))
    module.enable()


def refuse_power_feedback(circuit: PlannedCircuit) -> None:
    """Refuse to search a polarization by power where power does not tell it.

    Raises:
        CircuitError: The signal has two polarizations; the message says why that rules it out.
    """
    if circuit.strategy == "dual":
        raise CircuitError(
            f"circuit {circuit.request}: its signal has two polarizations of equal power, and the power behind a "
            "polarizer is the same half whichever way they are turned: there is nothing to search by",
            device=circuit.entry.polarization,
            hint="Its receiver undoes any turn; use the controller for signals of one polarization.",
        )


def max_ber(budget: LinkBudget) -> float | None:
    """Return the bit error ratio before correction of a receiver that just meets its specification.

    At the OSNR it needs, such a receiver is at the limit of its error correction. That tells its own noise, to which
    that of this OSNR is added; penalties of PDL and DGD are taken off in dB (16QAM in Gaussian noise:
    3/8·erfc(√(SNR/10))). ``None`` where OSNR or limit are not known.
    """
    limit = _FEC_LIMIT_BER.get(budget.format.name)
    if limit is None or budget.osnr_db is None or budget.required_osnr_db is None:
        return None
    own = 1.0 / _snr_of_ber(limit) - 1.0 / _snr_of_osnr(budget.required_osnr_db)
    snr_db = db_from_ratio(1.0 / (own + 1.0 / _snr_of_osnr(budget.osnr_db))) - budget.penalty_db
    return _ber_of_snr(ratio_from_db(snr_db))


def _snr_of_osnr(osnr_db: float) -> float:
    return ratio_from_db(osnr_db) * _OSNR_BAND_GHZ / _SYMBOL_RATE_GBD


def _ber_of_snr(snr: float) -> float:
    return 0.375 * math.erfc(math.sqrt(snr / 10.0))


def _snr_of_ber(ber: float) -> float:
    low, high = 1.0, 1e3
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _ber_of_snr(middle) > ber else (low, middle)
    return low


def accepted(bench: Bench, circuit: PlannedCircuit, timeout_s: float = LOCK_TIMEOUT_S) -> Acceptance:
    """Ask the receiver of a circuit of two polarizations what it makes of the signal.

    Args:
        bench: The bench.
        circuit: The circuit, its light on.
        timeout_s: How long to wait for the lock.

    Raises:
        LumionError: What the module raises.
    """
    module = _receiver(bench, circuit)
    lock = module.wait_for_lock(timeout_s)
    if not lock.locked:
        return Acceptance(lock, failures=(f"the receiver has not locked: {lock.detail}",))
    quantities = module.performance().quantities

    def value(name: str) -> float | None:
        found = quantities[name].best if name in quantities else None
        return None if found is None else found.value

    told = {name: value(name) for name in ("pdl", "dgd", "sop_rate", "prefec_ber")}
    budget = circuit.budget
    bound = max_ber(budget)
    limits = (
        ("PDL", told["pdl"], budget.pdl_db + PDL_WITHIN_DB, "dB"),
        ("DGD", told["dgd"], budget.dgd_ps + DGD_WITHIN_PS, "ps"),
        ("SOP rate", told["sop_rate"], MAX_SOP_KRAD_PER_S, "krad/s"),
        ("BER before correction", told["prefec_ber"], bound, ""),
    )
    failures = tuple(
        f"its {name} is {found:.3g} {unit}, expected at most {most:.3g}".replace("  ", " ")
        for name, found, most, unit in limits
        if found is not None and most is not None and found > most
    )
    return Acceptance(lock, told["pdl"], told["dgd"], told["sop_rate"], told["prefec_ber"], bound, failures)


def await_locks(
    bench: Bench,
    circuits: Sequence[PlannedCircuit],
    timeout_s: float = LOCK_TIMEOUT_S,
    locked: Callable[[CircuitRequest], None] = lambda request: None,
) -> None:
    """Wait, side by side, until the receivers of circuits of two polarizations have locked; others have no lock.

    Args:
        bench: The bench.
        circuits: The circuits, their light on.
        timeout_s: How long to wait.
        locked: Told of each circuit whose receiver has locked, when it has.

    Raises:
        CircuitError: A receiver has not locked; the message says which, and what holds it up.
        LumionError: What a module raises.
    """

    def wait(circuit: PlannedCircuit) -> str:
        report = _receiver(bench, circuit).wait_for_lock(timeout_s)
        if not report.locked:
            return f"{circuit.request}: the receiver has not locked within {timeout_s:g} s: {report.detail}"
        locked(circuit.request)
        return ""

    dual = [circuit for circuit in circuits if circuit.strategy == "dual"]
    told = bench.run_parallel([(each.request.target, functools.partial(wait, each)) for each in dual])
    if failures := [each for each in told if each]:
        raise CircuitError("; ".join(failures), hint="`lumion transponder status` shows what the module sees.")


def _receiver(bench: Bench, circuit: PlannedCircuit) -> CoherentTransponder:
    module = bench.transponders[circuit.request.target]
    if not isinstance(module, CoherentTransponder):
        raise ConfigError("the receiver is no coherent module", device=circuit.request.target)
    return module
