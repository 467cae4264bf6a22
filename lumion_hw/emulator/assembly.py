"""A whole emulated bench: one optical world, and every device of the bench file speaking its bytes into it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.emulator.faults.bench_faults import BenchFaults
from lumion_hw.emulator.faults.fault_table import ScriptedFault
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.optics.polarization import Jones
from lumion_hw.emulator.optics.slow_drift import SlowDrift
from lumion_hw.emulator.optics.truth import PhysicsParameters, draw_chains, draw_mesh, truth_id
from lumion_hw.emulator.optics.world import OpticalWorld
from lumion_hw.emulator.wires.mains import Switchable
from lumion_hw.errors import ConfigError
from lumion_hw.interfaces.wiring import Wiring
from lumion_hw.links.base import Link
from lumion_hw.links.memory import MemoryLink
from lumion_hw.mesh.layout.topology import MeshTopology

if TYPE_CHECKING:
    from lumion_hw.emulator.transponders.cmis.coherent_light import CoherentLight
    from lumion_hw.emulator.transponders.i2c_bridge import I2cBridge, I2cTarget

_BRIDGE_BAUD = 115_200


@dataclass(frozen=True)
class DeviceSpec:
    """One device to emulate.

    Attributes:
        name: Device name of the bench file.
        kind: Kind as in the bench file, for messages.
        make: Makes it on its bench; ``None`` if it cannot be emulated.
        faults: Returns what can go wrong with it, besides supply and cable.
        inside: Name of the device that this one is plugged into; it has no body of its own.
    """

    name: str
    kind: str
    make: Callable[[EmulatedBench], Switchable] | None
    faults: Callable[[], Sequence[ScriptedFault]] = tuple
    inside: str | None = None


@dataclass(frozen=True)
class EmulationSpec:
    """A bench to emulate.

    Attributes:
        mesh: The mesh.
        wiring: Which module's light goes where.
        devices: Every device.
        controller: Name of the device that drives the heaters of the mesh; others of its kind drive nothing.
        heater_channels: Drive channel of every heater, by 2·PUC + arm.
        monitor_ports: Port of every monitor channel.
        responsivity_a_per_w: Nominal responsivity of the monitors.
        nominal_nm: Nominal wavelength of the modules.
        physics: Spreads from which the hidden truth is drawn.
        temperature: Name of the device that holds the chip's temperature; ``None`` for a chip that is held anyway.
    """

    mesh: MeshTopology
    wiring: Wiring
    devices: tuple[DeviceSpec, ...]
    controller: str
    heater_channels: tuple[int, ...]
    monitor_ports: tuple[int, ...]
    responsivity_a_per_w: float
    nominal_nm: float
    physics: PhysicsParameters
    temperature: str | None = None


class EmulatedBench:
    """Emulated devices on one clock, from one seed.

    Args:
        spec: What to emulate.
        clock: Virtual for tests and demonstrations, the wall clock when served to other programs.
        seed: Seed of everything random; the same seed gives the same bench and the same noise.
        warm: Modules have been powered for long; otherwise they start up as they would.
        aged_s: Time that has passed since the chip was as the seed draws it.

    Attributes:
        spec: What is emulated.
        clock: Clock of all devices.
        warm: Modules have been powered for long.
        world: The light. Its hidden truth is for tests only.
        slow_drift: What time does to the chip; it knows the age of the bench.
        chip_id: Name of the hidden chip: another seed, mesh or physics is another chip.
        faults: Scripted faults.
        devices: The emulated devices by name; of a module it is what stands between it and the host.
        transponders: The emulated modules themselves by device name, with faults and pins of their own.
    """

    def __init__(self, spec: EmulationSpec, clock: Clock, seed: int, *, warm: bool = True, aged_s: float = 0.0) -> None:
        self.spec = spec
        self.clock = clock
        self._seed = seed
        physics = spec.physics
        effects_rng = self.rng("chip effects")
        truth = draw_mesh(spec.mesh, physics, self.rng("mesh truth"), effects_rng, spec.heater_channels)
        self.chip_id = truth_id(truth, physics)
        self.slow_drift = SlowDrift(truth, physics, clock.now, self.rng("slow drift"), aged_s)
        self.world = OpticalWorld(
            spec.mesh,
            spec.wiring,
            truth,
            draw_chains(spec.wiring, spec.nominal_nm, physics, self.rng("chain truth")),
            physics,
            spec.nominal_nm,
            clock,
            self.rng("world noise"),
            self.slow_drift,
            self.rng("photodiode offsets"),
        )
        self.warm = warm
        self._trigger_inputs: dict[str, list[Callable[[NDArray[np.float64]], None]]] = {}
        self.transponders: dict[str, Any] = {}
        bodies: dict[str, Switchable] = {}
        for device in spec.devices:
            if device.make is None:
                raise ConfigError(f"devices of kind {device.kind} cannot be emulated", device=device.name)
            if device.inside is None:  # what is plugged into another device has no body of its own
                bodies[device.name] = device.make(self)
        self.devices = {device.name: bodies[device.inside or device.name] for device in spec.devices}
        # Whoever talks to a device then lets happen what is due on the whole bench.
        for body in bodies.values():
            body.bench_time = self.world.time
        self.faults = BenchFaults(
            self.world,
            self.transponders,
            self.devices,
            {device.name: device.kind for device in spec.devices},
            {device.name: device.faults for device in spec.devices},
            spec.monitor_ports,
            self.world.time,
        )
        self.world.leaving_w()  # loads the solver now: a device that did so while it is served would miss deadlines

    def link(self, device: str) -> Link:
        """Return a new in-memory link to a device. Raises ``ConfigError`` if there is no such device."""
        return MemoryLink(self.faults.device(device).connect, self.clock, f"emulated {device}")

    # -- for the kinds of devices, which make themselves ---------------------------------------------------------------

    def rng(self, purpose: str) -> np.random.Generator:
        """Return a random stream of its own for each purpose: adding a device does not change the others."""
        return np.random.default_rng(np.random.SeedSequence([self._seed, zlib.crc32(purpose.encode())]))

    @property
    def n_channels(self) -> int:
        """Drive channels that the mesh needs."""
        return max(self.spec.heater_channels) + 1

    def driving(self, name: str) -> Callable[[NDArray[np.float64], float], None]:
        """Return what the outputs of a controller do: they heat the mesh, unless they are wired to something else."""
        channels = np.array(self.spec.heater_channels)

        def drive(currents_ma: NDArray[np.float64], at_s: float) -> None:
            if name == self.spec.controller:
                self.world.drive_heaters(currents_ma[channels], at_s)

        return drive

    def launch(self, name: str) -> Callable[[Light], None]:
        """Return what the light of a laser does: it enters the mesh where the wiring says so, if it does."""
        return lambda light: self.world.set_source(name, light.power_w, light.wavelength_nm)

    def trigger_output(self, name: str) -> Callable[[NDArray[np.float64]], None]:
        """Return what takes the times of the pulses at a device's trigger output: they go where cables lead them."""

        def pulses(times_s: NDArray[np.float64]) -> None:
            for take in self._trigger_inputs.get(name, ()):
                take(times_s)

        return pulses

    def trigger_cable(self, source: str, take: Callable[[NDArray[np.float64]], None]) -> None:
        """Lead the pulses of a device's trigger output to another one's trigger input."""
        self._trigger_inputs.setdefault(source, []).append(take)

    def turn(self, name: str) -> Callable[[Jones], None]:
        """Return what a polarization controller does to the light: that of the input the wiring names."""
        return lambda jones: self.world.set_polarization(name, jones)

    @cached_property
    def coherent_light(self) -> CoherentLight:
        """Light of all coherent modules."""
        # A tenth of a second of tables, which benches without such modules need not load.
        from lumion_hw.emulator.transponders.cmis.coherent_light import CoherentLight

        return CoherentLight(self.world, self.spec.physics.fibre_drift_rad2_per_s)

    def on_i2c(self, name: str, module: Any, target: I2cTarget) -> I2cBridge:
        """Put a pluggable module behind an I2C bridge, and return the bridge.

        Args:
            name: Device name of the bench file.
            module: The module; it has ``advance``, and faults act on it.
            target: How the bus sees it.
        """
        from lumion_hw.emulator.transponders.i2c_bridge import I2cBridge

        self.transponders[name] = module
        bridge = I2cBridge(name, self.clock, [target], baud=_BRIDGE_BAUD)
        self.world.before_reading += [module.advance, bridge.advance]
        return bridge
