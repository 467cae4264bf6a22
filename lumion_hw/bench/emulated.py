"""Builds an emulated bench from a bench file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from lumion_hw.bench.file.devices import DeviceModel, HeaterDriverModel, is_several
from lumion_hw.bench.file.known_kinds import kind_named
from lumion_hw.bench.file.model import BenchModel, MeshSection
from lumion_hw.clock import Clock
from lumion_hw.emulator.assembly import ControllerShare, DeviceSpec, EmulatedBench, EmulationSpec
from lumion_hw.emulator.optics.physics_parameters import PhysicsParameters
from lumion_hw.interfaces.wiring import NO_ENDS, FibreEnds


def emulated_bench(
    model: BenchModel,
    clock: Clock,
    seed: int,
    *,
    warm: bool = True,
    aged_s: float = 0.0,
    ends: FibreEnds = NO_ENDS,
) -> EmulatedBench:
    """Build the emulated bench of a bench file.

    Args:
        model: The checked bench file.
        clock: Clock of all devices.
        seed: Random seed.
        warm: Whether the modules are warmed up; otherwise they have just been powered on.
        aged_s: Age of the emulated chip in seconds.
        ends: Ports with fibres to other meshes.
    """
    # A bench without a mesh gets the smallest mesh, with nothing wired to it, because the optical model needs one.
    section = model.mesh or MeshSection.model_validate({"controller": "none", "columns": (2,)})
    controller = model.devices.get(section.controller)
    nominal_nm = (getattr(device, "nominal_nm", None) for device in model.devices.values())  # only modules have one
    heater_channels = section.channels()
    spec = EmulationSpec(
        mesh=section.laid_out(),
        wiring=ends.added_to(model.to_wiring()),
        ends=ends,
        devices=tuple(device_spec(name, device) for name, device in model.devices.items() if not is_several(device)),
        controllers=_shares(model, section, heater_channels),
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
    """Serve an emulated bench over TCP on the wall clock while the ``with`` block runs.

    Several threads may use the devices at the same time.

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
    """Return the specification for emulating a device with this name and entry in the bench file.

    Raises:
        KeyError: The kind of device does not exist.
    """
    kind = kind_named(device.kind)
    if kind is None:
        raise KeyError(device.kind)
    emulate = kind.emulate
    make = None if emulate is None else lambda bench: emulate(bench, name, device)
    return DeviceSpec(name, device.kind, make, kind.faults, device.container)


def _shares(model: BenchModel, section: MeshSection, heater_channels: Sequence[int]) -> dict[str, ControllerShare]:
    """Return the channels and monitors of each emulated controller: equal shares for several controllers."""
    drivers = section.drivers
    needed, n_monitors = max(heater_channels) + 1, len(model.monitors())
    shares, first = {}, 0
    for number, name in enumerate(drivers):
        device, left = model.devices.get(name), len(drivers) - number
        wanted = -(-max(needed - first, 0) // left)
        n_heaters = device.emulated_channels(wanted) if isinstance(device, HeaterDriverModel) else wanted
        monitors = range(number * n_monitors // len(drivers), (number + 1) * n_monitors // len(drivers))
        shares[name] = ControllerShare(range(first, first + n_heaters), monitors)
        first += n_heaters
    return shares


def _physics(model: BenchModel, mesh: MeshSection, controller: DeviceModel | None) -> PhysicsParameters:
    return model.emulation.physics_parameters(
        puc_loss_db=mesh.typical.puc_loss_db,
        access_loss_db=mesh.typical.access_loss_db,
        p_pi_range_mw=(mesh.typical.p_pi_min_mw, mesh.typical.p_pi_max_mw),
        heater_ohm=controller.heater_ohm if isinstance(controller, HeaterDriverModel) else PhysicsParameters.heater_ohm,
    )
