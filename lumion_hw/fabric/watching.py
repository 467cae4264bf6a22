"""What the detectors of a fabric watch, and what a transmitter reports about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lumion_hw.bench.bench import Bench
from lumion_hw.circuits import CircuitService
from lumion_hw.circuits.output_power import OutputPowerReader
from lumion_hw.errors import LumionError
from lumion_hw.fabric.detectors import WatchTargets
from lumion_hw.fabric.evidence import CircuitSender
from lumion_hw.fabric.servers import units
from lumion_hw.quantities import w_from_dbm

# A transmitter that reports less than this counts as off.
_DARK_W = w_from_dbm(-25.0)


def watch_targets(service: CircuitService, names: Sequence[str]) -> tuple[WatchTargets, Mapping[str, CircuitSender]]:
    """Return what detectors watch, and the sender of each circuit.

    Args:
        service: The active circuits.
        names: Servers and accelerators in service, and spares.
    """
    setup = service.setup
    bench, active = setup.bench, setup.active
    circuits = () if active is None else active.circuits
    all_units = units(bench.model)
    sender = {nic: name for name in names for nic in all_units[name].nics}
    # Only circuits whose sender is known: darkness of the others could blame nobody.
    senders = {
        circuit.request.name: CircuitSender(sender[circuit.request.source], circuit.request.source)
        for circuit in circuits
        if circuit.request.source in sender
    }
    exits = OutputPowerReader(bench, setup.record)
    promised = {circuit.request.name: exits.budgeted_photocurrent_ma(circuit) for circuit in circuits}
    targets = WatchTargets(
        bench,
        tuple(circuit for circuit in circuits if circuit.request.name in senders),
        tuple(names),
        {name: promised_ma for name, promised_ma in promised.items() if promised_ma is not None},
    )
    return targets, senders


def transmitter_state(bench: Bench, module: str) -> tuple[bool | None, str]:
    """Return whether a transmitter reports light (``None`` if it does not answer), and a description."""
    try:
        device = bench.transponders[module]
        status, power_dbm = device.status(), device.monitors().tx_power_dbm
    except LumionError as error:
        return None, str(error)
    if status.tx_fault or status.tx_disabled:
        return False, f"{module}: {'fault' if status.tx_fault else 'switched off'}"
    # A module can be enabled and still emit nothing.
    if power_dbm is None or w_from_dbm(power_dbm) < _DARK_W:
        return False, f"{module} sends no light"
    return True, f"{module} sends {power_dbm:.1f} dBm"
