"""From a bench file to the emulated bench of the same devices: the one place where the two meet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from lumion_hw.bench.file.devices import DeviceModel, HeaterDriverModel
from lumion_hw.bench.file.known_kinds import kind_named
from lumion_hw.bench.file.model import BenchModel, MeshSection
from lumion_hw.clock import Clock
from lumion_hw.emulator.assembly import DeviceSpec, EmulatedBench, EmulationSpec
from lumion_hw.emulator.optics.physics_parameters import PhysicsParameters


def emulated_bench(
    model: BenchModel, clock: Clock, seed: int, *, warm: bool = True, aged_s: float = 0.0
) -> EmulatedBench:
    """Return the emulated bench of a bench file.

    Args:
        model: The checked bench file.
        clock: Clock of all devices.
        seed: Seed of everything random.
        warm: Modules have been powered for long.
        aged_s: Time that has passed since the chip was as the seed draws it.
    """
    # Instruments on a bench without a mesh stand in the dark, beside the smallest mesh that nothing is wired to.
    section = model.mesh or MeshSection.model_validate({"controller": "none", "columns": (2,)})
    controller = model.devices.get(section.controller)
    nominal_nm = (getattr(device, "nominal_nm", None) for device in model.devices.values())  # of modules that tell it
    heater_channels = tuple(channel for pair in section.heater_table() for channel in pair)
    spec = EmulationSpec(
        mesh=section.laid_out(),
        wiring=model.to_wiring(),
        devices=tuple(device_spec(name, device) for name, device in model.devices.items()),
        controller=section.controller,
        heater_channels=heater_channels,
        monitor_ports=model.monitors(),
        responsivity_a_per_w=(isinstance(controller, HeaterDriverModel) and controller.photodiodes_a_per_w) or 1.0,
        nominal_nm=next((nm for nm in nominal_nm if nm is not None), 1550.0),
        physics=_physics(model, section, controller),
        temperature=section.temperature,
    )
    return EmulatedBench(spec, clock, seed, warm=warm, aged_s=aged_s)


@contextlib.contextmanager
def emulated_on_wires(model: BenchModel, seed: int) -> Iterator[tuple[EmulatedBench, dict[str, str]]]:
    """Serve an emulated bench on TCP from a thread of this process, on the wall clock, for the time of a block.

    Several threads may then talk to its devices, as to real ones.

    Args:
        model: The checked bench file.
        seed: Seed of everything random.

    Yields:
        The emulated bench, and the addresses of its devices by name.
    """
    from lumion_hw.clock import SystemClock
    from lumion_hw.emulator.wires.server import EmulatorServer

    clock = SystemClock()
    bench = emulated_bench(model, clock, seed)
    with EmulatorServer(clock) as server:
        addresses = {name: server.add_tcp(device) for name, device in bench.devices.items()}
        with server.in_thread():
            yield bench, addresses


def device_spec(name: str, device: DeviceModel) -> DeviceSpec:
    """Return what to emulate for one device.

    Args:
        name: Device name of the bench file.
        device: Its entry in the bench file.

    Raises:
        KeyError: There is no such kind; a checked bench file names none of those.
    """
    kind = kind_named(device.kind)
    if kind is None:
        raise KeyError(device.kind)
    emulate = kind.emulate
    make = None if emulate is None else lambda bench: emulate(bench, name, device)
    return DeviceSpec(name, device.kind, make, kind.faults, device.inside)


def _physics(model: BenchModel, mesh: MeshSection, controller: DeviceModel | None) -> PhysicsParameters:
    """Return the parameters of the hidden truth: those in the file, otherwise the defaults."""
    return model.emulation.physics_parameters(
        puc_loss_db=mesh.typical.puc_loss_db,
        access_loss_db=mesh.typical.access_loss_db,
        heater_ohm=controller.heater_ohm if isinstance(controller, HeaterDriverModel) else PhysicsParameters.heater_ohm,
    )
