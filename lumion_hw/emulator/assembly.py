"""A complete emulated bench: an optical model, and every device of the bench file."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.emulator.faults.bench_faults import BenchFaults
from lumion_hw.emulator.faults.fault_table import ScriptedFault
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.optics.physics_parameters import PhysicsParameters
from lumion_hw.emulator.optics.polarization import Jones
from lumion_hw.emulator.optics.slow_drift import SlowDrift
from lumion_hw.emulator.optics.truth import draw_chains, draw_mesh, truth_id
from lumion_hw.emulator.optics.world import OpticalWorld
from lumion_hw.emulator.wires.mains import Switchable
from lumion_hw.errors import ConfigError
from lumion_hw.interfaces.wiring import NO_ENDS, FibreEnds, Wiring
from lumion_hw.links.base import Link
from lumion_hw.links.memory import MemoryLink
from lumion_hw.mesh.layout.cells import NO_CHANNEL
from lumion_hw.mesh.layout.topology import MeshTopology

if TYPE_CHECKING:
    from lumion_hw.emulator.transponders.cmis.light import CmisLight, CoherentLight
    from lumion_hw.emulator.transponders.i2c_bridge import I2cBridge, I2cTarget

_BRIDGE_BAUD = 115_200


@dataclass(frozen=True)
class DeviceSpec:
    """One device to emulate.

    Attributes:
        make: Creates the device on a bench; ``None`` if the device cannot be emulated.
        faults: Returns the faults of this kind of device, besides power loss and unplugged cable.
        container: Name of the device that contains this one and shares its connection.
    """

    name: str
    kind: str
    make: Callable[[EmulatedBench], Switchable] | None
    faults: Callable[[], Sequence[ScriptedFault]] = tuple
    container: str | None = None


@dataclass(frozen=True)
class ControllerShare:
    """Heaters and monitors of a mesh that are wired to one of its controllers.

    Attributes:
        heaters: Numbers of its drive channels among those of all controllers.
        monitors: Numbers of its monitors among those of all controllers.
    """

    heaters: range
    monitors: range


@dataclass(frozen=True)
class EmulationSpec:
    """A bench to emulate.

    Attributes:
        controllers: Heaters and monitors of each device that drives the mesh, by name.
        heater_channels: Drive channel of each heater. The heater of a PUC and arm (0 upper, 1 lower) has index 2·PUC +
            arm.
        monitor_ports: Port of each monitor channel.
        nominal_nm: Nominal wavelength of the pluggable modules.
        temperature: Name of the device that controls the chip's temperature; ``None`` for a constant temperature.
        ends: Ports with fibres to other meshes, which ``wiring`` includes.
    """

    mesh: MeshTopology
    wiring: Wiring
    devices: tuple[DeviceSpec, ...]
    controllers: Mapping[str, ControllerShare]
    heater_channels: tuple[int, ...]
    monitor_ports: tuple[int, ...]
    responsivity_a_per_w: float
    nominal_nm: float
    physics: PhysicsParameters
    temperature: str | None = None
    ends: FibreEnds = NO_ENDS


class EmulatedBench:
    """All emulated devices of a bench.

    Args:
        clock: A virtual clock for tests; the wall clock for a bench that other programs use.
        seed: Random seed; the same seed gives the same bench and the same noise.
        warm: Whether pluggable modules have already started up.
        aged_s: Age of the chip in seconds, which determines its slow drift.

    Attributes:
        world: Optical model with the true chip parameters; for tests only.
        chip_id: Name of the emulated chip; different for every combination of seed, mesh and physics.
        devices: Emulated devices by name. For a pluggable module this is the I2C bridge that connects it to the host.
        transponders: Emulated pluggable modules by device name.
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
            draw_chains(spec.wiring, spec.nominal_nm, physics, self.rng("chain truth"), spec.ends),
            physics,
            spec.nominal_nm,
            clock,
            self.rng("world noise"),
            self.slow_drift,
            self.rng("photodiode offsets"),
            self.rng("pluggings"),
        )
        self.warm = warm
        stops = [share.heaters.stop for share in spec.controllers.values()]
        self._driven_ma = np.zeros(max([*stops, *(channel + 1 for channel in spec.heater_channels)]))
        self._trigger_inputs: dict[str, list[Callable[[NDArray[np.float64]], None]]] = {}
        self.transponders: dict[str, Any] = {}
        bodies: dict[str, Switchable] = {}
        for device in spec.devices:
            if device.make is None:
                raise ConfigError(f"the emulator does not support devices of kind {device.kind}", device=device.name)
            if device.container is None:  # a device inside another one shares its connection
                bodies[device.name] = device.make(self)
        self.devices = {device.name: bodies[device.container or device.name] for device in spec.devices}
        # Any exchange with a device then runs the events that are due on the whole bench.
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
        self.world.mesh_output_w()  # loads the solver now, so that no served device misses a deadline by it

    def link(self, device: str) -> Link:
        """Return a new in-memory link to a device. Raises ``ConfigError`` if the device does not exist."""
        return MemoryLink(self.faults.device(device).connect, self.clock, f"emulated {device}")

    # -- for the kinds of devices, which make themselves ---------------------------------------------------------------

    def rng(self, purpose: str) -> np.random.Generator:
        """Return the random number generator for one purpose, such as the noise of one device."""
        return np.random.default_rng(np.random.SeedSequence([self._seed, zlib.crc32(purpose.encode())]))

    def share_of(self, name: str) -> ControllerShare:
        """Return the heaters and monitors that are wired to a controller: all, unless ``spec`` assigns a share."""
        whole = ControllerShare(range(max(self.spec.heater_channels) + 1), range(len(self.spec.monitor_ports)))
        return self.spec.controllers.get(name, whole)

    def driving(self, name: str) -> Callable[[NDArray[np.float64], float], None]:
        """Return a function that applies a controller's currents to the heaters, if ``spec`` assigns them to it."""
        channels, share = np.array(self.spec.heater_channels), self.share_of(name)
        wired = channels != NO_CHANNEL

        def drive(currents_ma: NDArray[np.float64], at_s: float) -> None:
            if name in self.spec.controllers:
                self._driven_ma[share.heaters.start : share.heaters.stop] = currents_ma
                heater_ma = np.zeros(len(channels))
                heater_ma[wired] = self._driven_ma[channels[wired]]
                self.world.drive_heaters(heater_ma, at_s)

        return drive

    def sensing(self, name: str) -> Callable[[int, float], NDArray[np.float64]]:
        """Return a function that reads the photodiodes that are wired to a controller, from scans and time to mA."""
        ports, own = np.array(self.spec.monitor_ports), np.array(self.share_of(name).monitors, dtype=np.intp)

        def sense_ma(n_avg: int, at_s: float) -> NDArray[np.float64]:
            # All are read, because offsets drift and light leaks between them, whoever converts them.
            return self.world.monitor_ma(ports, self.spec.responsivity_a_per_w, n_avg, at_s)[own]

        return sense_ma

    def launch(self, name: str) -> Callable[[Light], None]:
        """Return a function that sends a laser's light into its fibre."""
        return lambda light: self.world.set_source(name, light.power_w, light.wavelength_nm)

    def trigger_output(self, name: str) -> Callable[[NDArray[np.float64]], None]:
        """Return a function that passes trigger times of a device to the inputs connected to its trigger output."""

        def pulses(times_s: NDArray[np.float64]) -> None:
            for trigger_input in self._trigger_inputs.get(name, ()):
                trigger_input(times_s)

        return pulses

    def trigger_cable(self, source: str | None, trigger_input: Callable[[NDArray[np.float64]], None]) -> None:
        """Connect a device's trigger output to ``trigger_input``, a function that receives the trigger times.

        ``None`` as source stands for an input without a cable.
        """
        if source is not None:
            self._trigger_inputs.setdefault(source, []).append(trigger_input)

    def add_swept_laser(self, name: str, advance: Callable[[], None], light_at: Callable[[float], Light]) -> None:
        """Add a laser that can sweep.

        ``advance`` brings its light up to date before a reading; ``light_at`` returns its light at an earlier instant.
        """
        self.world.before_reading.append(advance)
        self.world.swept_lasers[name] = light_at

    def turn(self, name: str) -> Callable[[Jones], None]:
        """Return a function that sets the Jones matrix of a polarization controller."""
        return lambda jones: self.world.set_polarization(name, jones)

    @cached_property
    def coherent_light(self) -> CoherentLight:
        """Return the sent and received light of all coherent modules."""
        # Loading its tables takes 0.1 s, so benches without coherent modules do not.
        from lumion_hw.emulator.transponders.cmis.light import CoherentLight

        return CoherentLight(self.world, self.spec.physics.fibre_drift_rad2_per_s)

    @cached_property
    def cmis_light(self) -> CmisLight:
        """Return the sent and received light of all CMIS modules of one polarization."""
        from lumion_hw.emulator.transponders.cmis.light import CmisLight

        return CmisLight(self.world)

    def on_i2c(self, name: str, module: Any, target: I2cTarget) -> I2cBridge:
        """Connect a pluggable module to a new I2C bridge, and return the bridge.

        Args:
            name: Device name in the bench file.
            module: The module.
            target: The same module as a device on the I2C bus.
        """
        from lumion_hw.emulator.transponders.i2c_bridge import I2cBridge

        self.transponders[name] = module
        bridge = I2cBridge(name, self.clock, [target], baud=_BRIDGE_BAUD)
        self.world.before_reading += [module.advance, bridge.advance]
        return bridge
