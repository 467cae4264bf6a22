"""A whole emulated bench: one optical world, and every device of the bench file speaking its bytes into it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.emulator.emulation_spec import DeviceSpec, EmulationSpec
from lumion_hw.emulator.faults.bench_faults import BenchFaults
from lumion_hw.emulator.lasers.itla import Itla
from lumion_hw.emulator.lasers.keysight_laser import EmulatedKeysightLaser
from lumion_hw.emulator.lasers.santec_tsl import EmulatedSantecTsl
from lumion_hw.emulator.mesh.line_server import LineServer
from lumion_hw.emulator.mesh.lumion import BoardProfile, MeshBoard
from lumion_hw.emulator.mesh.photonic_unit import unit_currents_ma
from lumion_hw.emulator.mesh.qontrol import BAUD, OPEN, ChainProfile, HeaterLoad, ModuleSpec, QontrolChain, ReplyMode
from lumion_hw.emulator.meters.keysight_816x import DUAL_SENSORS, EmulatedKeysight816x, ports_of
from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx
from lumion_hw.emulator.meters.santec_mpm import EmulatedSantecMpm
from lumion_hw.emulator.meters.thorlabs_pm import ThorlabsPm100
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.optics.polarization import Jones, Squeezers, sphere_turn
from lumion_hw.emulator.optics.slow_drift import SlowDrift
from lumion_hw.emulator.optics.truth import draw_chains, draw_mesh, random_unitary
from lumion_hw.emulator.optics.world import OpticalWorld
from lumion_hw.emulator.polarization.keysight_n778x import EmulatedKeysightN7785C
from lumion_hw.emulator.polarization.novoptel_pm1000 import Pm1000
from lumion_hw.emulator.polarization.oz_epc04 import Epc04
from lumion_hw.emulator.polarization.thorlabs_mpc import Mpc320
from lumion_hw.emulator.transponders.i2c_bridge import I2cBridge
from lumion_hw.emulator.transponders.sfp import SfpModule, SfpProfile
from lumion_hw.emulator.wires.mains import Switchable
from lumion_hw.errors import ConfigError
from lumion_hw.links.base import Link
from lumion_hw.links.memory import MemoryLink

if TYPE_CHECKING:
    from lumion_hw.emulator.transponders.cmis import CmisModule
    from lumion_hw.emulator.transponders.cmis.coherent_light import CoherentLight

DRIVE_FULL_SCALE_UA = 3_000
MONITOR_FULL_SCALE_NA = 5_000_000
"""Full scale of a monitor, 5 mA: an amplified input a hop away must not saturate it."""

_BRIDGE_BAUD = 115_200


class EmulatedBench:
    """Emulated devices on one clock, from one seed.

    Args:
        spec: What to emulate.
        clock: Virtual for tests and demonstrations, the wall clock when served to other programs.
        seed: Seed of everything random; the same seed gives the same bench and the same noise.
        warm: Modules have been powered for long; otherwise they start up as they would.
        aged_s: Time that has passed since the chip was as the seed draws it.

    Attributes:
        world: The light. Its hidden truth is for tests only.
        slow_drift: What time does to the chip; it knows the age of the bench.
        faults: Scripted faults.
        transponders: The CMIS modules by device name, with faults and pins of their own.
    """

    def __init__(self, spec: EmulationSpec, clock: Clock, seed: int, *, warm: bool = True, aged_s: float = 0.0) -> None:
        self.spec = spec
        self.clock = clock
        self._seed = seed
        physics = spec.physics
        truth = draw_mesh(spec.mesh, physics, self._rng("mesh truth"))
        self.slow_drift = SlowDrift(truth, physics, clock.now, self._rng("slow drift"), aged_s)
        self.world = OpticalWorld(
            spec.mesh,
            spec.wiring,
            truth,
            draw_chains(spec.wiring, spec.nominal_nm, physics, self._rng("chain truth")),
            physics,
            spec.nominal_nm,
            clock,
            self._rng("world noise"),
            self.slow_drift,
        )
        self._warm = warm
        self._modules: dict[str, SfpModule] = {}
        self.transponders: dict[str, CmisModule] = {}
        self._coherent: CoherentLight | None = None
        makers: dict[str, Callable[[DeviceSpec], Switchable]] = {
            "lumion-mesh": self._mesh_board,
            "qontrol-q8": self._qontrol_chain,
            "smartlight-line-server": self._line_server,
            "keysight-n77xx": self._power_meter,
            "thorlabs-pm": self._thorlabs_meter,
            "keysight-816x": self._mainframe,
            "itla-laser": self._itla,
            "keysight-laser": self._keysight_laser,
            "santec-tsl": self._santec_laser,
            "santec-mpm": self._santec_meter,
            "sfp-8472": self._module,
            "cmis": self._coherent_module,
            "oz-epc04": self._polarization_controller,
            "thorlabs-mpc": self._paddles,
            "keysight-n7785c": self._stabilizer,
            "novoptel-pm1000": self._polarimeter,
        }
        bodies: dict[str, Switchable] = {}
        for device in spec.devices:
            if device.kind not in makers:
                raise ConfigError(f"devices of kind {device.kind} cannot be emulated", device=device.name)
            if device.mainframe is None:
                bodies[device.name] = makers[device.kind](device)
        self.devices = {device.name: bodies[device.mainframe or device.name] for device in spec.devices}
        for body in bodies.values():
            body.bench_time = self.world.time
        kinds = {device.name: device.kind for device in spec.devices}
        self.faults = BenchFaults(
            self.world, {**self._modules, **self.transponders}, self.devices, kinds, spec.monitor_ports, self.world.time
        )
        self.world.leaving_w()  # loads the solver now: a device that did so while it is served would miss deadlines

    def link(self, device: str) -> Link:
        """Return a new in-memory link to a device. Raises ``ConfigError`` if there is no such device."""
        return MemoryLink(self.faults.device(device).connect, self.clock, f"emulated {device}")

    def _rng(self, purpose: str) -> np.random.Generator:
        """Return a random stream of its own for each purpose: adding a device does not change the others."""
        return np.random.default_rng(np.random.SeedSequence([self._seed, zlib.crc32(purpose.encode())]))

    def _mesh_board(self, device: DeviceSpec) -> Switchable:
        spec = self.spec
        ports = np.array(spec.monitor_ports)

        def sense_ma(n_avg: int, at_s: float) -> NDArray[np.float64]:
            return self.world.monitor_ma(ports, spec.responsivity_a_per_w, n_avg, at_s)

        board = MeshBoard(
            device.name,
            self.clock,
            self._rng(device.name),
            drive=self._driving(device),
            sense_ma=sense_ma,
            profile=BoardProfile(
                n_dac=self._n_channels,
                n_adc=len(ports),
                dac_full_scale=DRIVE_FULL_SCALE_UA,
                adc_full_scale=MONITOR_FULL_SCALE_NA,
                serial=device.serial,
            ),
        )
        rest_c = board.core.profile.chip_temp_c

        def warm(temperature_k: float) -> None:
            board.core.set_chip_temp(round(100.0 * (rest_c + temperature_k)), self.clock.now())

        self.slow_drift.on_change.append(warm)
        self.world.before_reading.append(board.advance)
        return board

    def _driving(self, device: DeviceSpec) -> Callable[[NDArray[np.float64], float], None]:
        """Return what the outputs of a controller do: they heat the mesh, unless they are wired to something else."""
        channels = np.array(self.spec.heater_channels)

        def drive(currents_ma: NDArray[np.float64], at_s: float) -> None:
            if device.name == self.spec.controller:
                self.world.drive_heaters(currents_ma[channels], at_s)

        return drive

    @property
    def _n_channels(self) -> int:
        """Drive channels that the mesh needs."""
        return max(self.spec.heater_channels) + 1

    def _qontrol_chain(self, device: DeviceSpec) -> Switchable:
        names = device.serial.split(",")
        modules = [ModuleSpec(kind, _number(text)) for kind, _, text in (name.partition("-") for name in names)]
        loads = [OPEN] * sum(module.n_channels for module in modules)
        if device.name == self.spec.controller:
            truth = self.world.truth
            for heater, channel in enumerate(self.spec.heater_channels):
                ohm, rise = float(truth.heater_ohm[heater]), float(truth.nonlinearity_per_mw[heater])
                loads[channel] = HeaterLoad(ohm, rise)
        chain = QontrolChain(
            device.name,
            self.clock,
            self._rng(device.name),
            drive=self._driving(device),
            modules=modules,
            loads=loads,
            profile=ChainProfile(reply_mode=ReplyMode.USB1, baud=BAUD),
        )
        self.world.before_reading.append(chain.advance)
        return chain

    def _line_server(self, device: DeviceSpec) -> Switchable:
        def apply(states: dict[int, str]) -> None:
            if device.name == self.spec.controller:
                self.world.drive_heaters(unit_currents_ma(self.world.truth, states), self.clock.now())

        server = LineServer(device.name, self.clock, apply_states=apply)
        self.world.before_reading.append(server.advance)
        return server

    def _power_meter(self, device: DeviceSpec) -> Switchable:
        return EmulatedKeysightN77xx(
            device.name,
            self.clock,
            self._rng(device.name),
            lambda channel: self.world.tapped_w(device.name, channel),
            model=device.model,
            serial=device.serial,
            n_ports=4 if "44" in device.model else 8,
        )

    def _thorlabs_meter(self, device: DeviceSpec) -> Switchable:
        def light() -> Light:
            return self.world.tapped(device.name, 1)

        return ThorlabsPm100(
            device.name, self.clock, self._rng(device.name), light, serial=device.serial, model=device.model or "PM100D"
        )

    def _mainframe(self, device: DeviceSpec) -> Switchable:
        """Channels are numbered from 1 in the order of slots and inputs; the laser is a device of its own name."""
        modules = DUAL_SENSORS if device.modules is None else device.modules
        channels = {port: number for number, port in enumerate(ports_of(modules), start=1)}

        def light(slot: int, channel: int, _at_s: float) -> Light:
            return self.world.tapped(device.name, channels[slot, channel])

        laser = next((each for each in self.spec.devices if each.mainframe == device.name), device)
        mainframe = EmulatedKeysight816x(
            device.name,
            self.clock,
            self._rng(device.name),
            light,
            serial=device.serial,
            model=device.model or "8164B",
            modules=modules,
            emit=self._launch(laser),
        )
        if mainframe.laser is not None:
            self.world.before_reading.append(mainframe.advance)
        return mainframe

    def _santec_meter(self, device: DeviceSpec) -> Switchable:
        """One module: channels 1 to 4 are its ports."""

        def light(module: int, port: int, _at_s: float) -> Light:
            return self.world.tapped(device.name, 4 * module + port)

        return EmulatedSantecMpm(device.name, self.clock, self._rng(device.name), light, serial=device.serial)

    def _launch(self, device: DeviceSpec) -> Callable[[Light], None]:
        """Return what the light of a laser does: it enters the mesh where the wiring says so, if it does."""
        return lambda light: self.world.set_source(device.name, light.power_w, light.wavelength_nm)

    def _keysight_laser(self, device: DeviceSpec) -> Switchable:
        if device.modules is not None:
            return self._mainframe(device)
        laser = EmulatedKeysightLaser(
            device.name,
            self.clock,
            self._rng(device.name),
            serial=device.serial,
            model=device.model or "N7776C",
            emit=self._launch(device),
        )
        self.world.before_reading.append(laser.advance)
        return laser

    def _santec_laser(self, device: DeviceSpec) -> Switchable:
        laser = EmulatedSantecTsl(
            device.name,
            self.clock,
            self._rng(device.name),
            serial=device.serial,
            model=device.model or "TSL-570",
            emit=self._launch(device),
        )
        self.world.before_reading.append(laser.advance)
        return laser

    def _itla(self, device: DeviceSpec) -> Switchable:
        laser = Itla(
            device.name,
            self.clock,
            self._rng(device.name),
            serial=device.serial,
            warm=self._warm,
            emit=self._launch(device),
        )
        self.world.before_reading.append(laser.advance)
        return laser

    def _module(self, device: DeviceSpec) -> Switchable:
        module = SfpModule(
            device.name,
            self.clock,
            self._rng(device.name),
            emit_w=lambda power_w: self.world.set_transmitter(device.name, power_w),
            rx_power_w=lambda: self.world.received_w(device.name),
            serial=device.serial,
            profile=SfpProfile(**(device.profile or {})),  # type: ignore[arg-type]
            warm=self._warm,
        )
        self._modules[device.name] = module
        self.world.before_reading.append(module.advance)
        bridge = I2cBridge(device.name, self.clock, [module], baud=_BRIDGE_BAUD)
        self.world.before_reading.append(bridge.advance)
        return bridge

    def _coherent_module(self, device: DeviceSpec) -> Switchable:
        # A tenth of a second of tables, which benches without such modules need not load.
        from lumion_hw.emulator.transponders.cmis import CmisModule, ModuleOnBus
        from lumion_hw.emulator.transponders.cmis.coherent_light import CoherentLight
        from lumion_hw.emulator.transponders.cmis.profiles import profile_named

        light = self._coherent or CoherentLight(self.world, self.spec.physics.fibre_drift_rad2_per_s)
        self._coherent = light
        module = CmisModule(
            profile_named(device.model),
            self.clock,
            self._rng(device.name),
            name=device.name,
            serial=device.serial,
            optics=light.optics(device.name),
            emit=light.emit(device.name),
            warm=self._warm,
        )
        self.transponders[device.name] = module
        self.world.before_reading.append(module.advance)
        bridge = I2cBridge(device.name, self.clock, [ModuleOnBus(module)], baud=_BRIDGE_BAUD)
        self.world.before_reading.append(bridge.advance)
        return bridge

    def _polarization_controller(self, device: DeviceSpec) -> Switchable:
        """Squeezers of the input the wiring names; one that is wired to nothing squeezes nothing."""
        squeezers = [
            Squeezers(chain.squeezer_period_mv, chain.squeezer_offset_rad, self.clock.now)
            for chain, path in zip(self.world.chains, self.spec.wiring.inputs, strict=True)
            if path.polarization == device.name
        ]

        def drive_mv(channel: int, drive_mv: float) -> None:
            for each in squeezers:
                each.drive(channel, drive_mv)

        def follow() -> None:
            controller.advance()
            for each in squeezers:
                self.world.set_polarization(device.name, each.jones())

        controller = Epc04(device.name, self.clock, self._rng(device.name), drive_mv=drive_mv)
        self.world.before_reading.append(follow)
        return controller

    def _turn(self, device: DeviceSpec) -> Callable[[Jones], None]:
        """Return what a polarization controller does to the light: that of the input the wiring names."""
        return lambda jones: self.world.set_polarization(device.name, jones)

    def _paddles(self, device: DeviceSpec) -> Switchable:
        controller = Mpc320(
            device.name,
            self.clock,
            self._rng(device.name),
            turn=self._turn(device),
            model=device.model or "MPC320",
            serial=device.serial,
        )
        self.world.before_reading.append(controller.advance)
        return controller

    def _stabilizer(self, device: DeviceSpec) -> Switchable:
        return EmulatedKeysightN7785C(
            device.name, self.clock, self._rng(device.name), turn=self._turn(device), serial=device.serial
        )

    def _polarimeter(self, device: DeviceSpec) -> Switchable:
        """Its sphere is not that of the chip: the fibre from the tap turns it, by a hidden turn that stays."""
        turn = sphere_turn(random_unitary(self._rng(f"{device.name} fibre")))

        def light() -> NDArray[np.float64]:
            stokes_w = self.world.polarimeter_w(device.name)
            return np.append(stokes_w[0], turn @ stokes_w[1:])

        return Pm1000(device.name, self.clock, self._rng(device.name), light, serial=device.serial)


def _number(text: str) -> int | None:
    """Return the number of a module, ``None`` for ``****``."""
    return None if text.startswith("*") else int(text, 16)
