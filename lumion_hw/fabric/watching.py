"""What the detectors of a fabric watch, and where a circuit loses its light: at a transmitter, a receiver, the mesh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lumion_hw.bench.bench import Bench
from lumion_hw.circuits import CircuitService
from lumion_hw.circuits.fault_location import BROKEN_DB
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


def receiver_state(service: CircuitService, circuit: str) -> tuple[bool | None, str]:
    """Return whether the receiver of a circuit has its light (``None`` if it does not answer), and a description."""
    bench, recorded = service.setup.bench, service.state.circuit(circuit)
    module, expected_dbm = recorded.request.target, recorded.proof.get("received_dbm")
    try:
        device = bench.circuit_module(module)
        status, power_dbm = device.status(), device.monitors().rx_power_dbm
    except LumionError as error:
        return None, str(error)
    if status.rx_los:
        return False, f"{module} reports loss of signal"
    # Stray light can be enough for a receiver.
    if power_dbm is None or (expected_dbm is not None and power_dbm < expected_dbm - BROKEN_DB):
        return False, f"{module} receives {'no light' if power_dbm is None else f'{power_dbm:.1f} dBm'}"
    return True, f"{module} receives {power_dbm:.1f} dBm"


def leaves_the_mesh(service: CircuitService, circuit: str) -> bool:
    """Return whether the photodiode at the exit of a circuit shows its light; false without a photodiode there."""
    setup = service.setup
    planned = next(each for each in setup.active.circuits if each.request.name == circuit) if setup.active else None
    if planned is None:
        return False
    promised_ma = OutputPowerReader(setup.bench, setup.record).budgeted_photocurrent_ma(planned)
    if promised_ma is None:
        return False
    monitors = dict(zip(setup.bench.mesh.monitor_ports, setup.bench.mesh.monitors_ma().tolist(), strict=True))
    return bool(monitors[planned.exit.port] > promised_ma * 10.0 ** (-BROKEN_DB / 10.0))
