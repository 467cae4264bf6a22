"""A whole emulated bench: one optical world, and every device of the bench file speaking its bytes into it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.emulator.board import BoardProfile, MeshBoard
from lumion_hw.emulator.device import EmulatedDevice
from lumion_hw.emulator.epc04 import Epc04
from lumion_hw.emulator.faults import Faults
from lumion_hw.emulator.i2c_bridge import I2cBridge
from lumion_hw.emulator.itla import Itla
from lumion_hw.emulator.keysight_816x import Keysight816x
from lumion_hw.emulator.keysight_laser import KeysightLaser
from lumion_hw.emulator.light import Light
from lumion_hw.emulator.line_server import LineServer
from lumion_hw.emulator.n77xx import KeysightN77xx
from lumion_hw.emulator.photonic_unit import unit_currents_ma
from lumion_hw.emulator.pm100 import ThorlabsPm100
from lumion_hw.emulator.qontrol import BAUD, OPEN, ChainProfile, HeaterLoad, ModuleSpec, QontrolChain, ReplyMode
from lumion_hw.emulator.sff8472 import SfpModule, SfpProfile
from lumion_hw.emulator.truth import PhysicsParameters, draw_chains, draw_mesh
from lumion_hw.emulator.world import OpticalWorld
from lumion_hw.errors import ConfigError
from lumion_hw.interfaces.wiring import Wiring
from lumion_hw.links.base import Link
from lumion_hw.links.memory import MemoryLink
from lumion_hw.mesh.topology import HexMesh

DRIVE_FULL_SCALE_UA = 3_000
MONITOR_FULL_SCALE_NA = 5_000_000
"""Full scale of a monitor, 5 mA: an amplified input a hop away must not saturate it."""

_BRIDGE_BAUD = 115_200


@dataclass(frozen=True)
class DeviceSpec:
    """One device to emulate.

    Attributes:
        name: Device name of the bench file.
        kind: Kind as in the bench file.
        serial: Serial number it answers with; of a chain, those of its modules with commas between.
        model: Model it answers with, where the kind has several.
        profile: Figures of a module that differ from the standard ones, by name.
    """

    name: str
    kind: str
    serial: str
    model: str = ""
    profile: Mapping[str, float] | None = None


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
    """

    mesh: HexMesh
    wiring: Wiring
    devices: tuple[DeviceSpec, ...]
    controller: str
    heater_channels: tuple[int, ...]
    monitor_ports: tuple[int, ...]
    responsivity_a_per_w: float
    nominal_nm: float
    physics: PhysicsParameters


class EmulatedBench:
    """Emulated devices on one clock, from one seed.

    Args:
        spec: What to emulate.
        clock: Virtual for tests and demonstrations, the wall clock when served to other programs.
        seed: Seed of everything random; the same seed gives the same bench and the same noise.
        warm: Modules have been powered for long; otherwise they start up as they would.

    Attributes:
        world: The light. Its hidden truth is for tests only.
        faults: Scripted faults.
    """

    def __init__(self, spec: EmulationSpec, clock: Clock, seed: int, *, warm: bool = True) -> None:
        self.spec = spec
        self.clock = clock
        self._seed = seed
        physics = spec.physics
        self.world = OpticalWorld(
            spec.mesh,
            spec.wiring,
            draw_mesh(spec.mesh, physics, self._rng("mesh truth")),
            draw_chains(spec.wiring, spec.nominal_nm, physics, self._rng("chain truth")),
            physics,
            spec.nominal_nm,
            clock,
            self._rng("world noise"),
        )
        self._warm = warm
        self._modules: dict[str, SfpModule] = {}
        self._boards: dict[str, MeshBoard] = {}
        makers: dict[str, Callable[[DeviceSpec], EmulatedDevice]] = {
            "lumion-mesh": self._mesh_board,
            "qontrol-q8": self._qontrol_chain,
            "smartlight-line-server": self._line_server,
            "keysight-n77xx": self._power_meter,
            "thorlabs-pm": self._thorlabs_meter,
            "keysight-816x": self._mainframe,
            "itla-laser": self._itla,
            "keysight-laser": self._keysight_laser,
            "sfp-8472": self._module,
            "oz-epc04": self._polarization_controller,
        }
        self.devices: dict[str, EmulatedDevice] = {}
        for device in spec.devices:
            if device.kind not in makers:
                raise ConfigError(f"devices of kind {device.kind} cannot be emulated", device=device.name)
            self.devices[device.name] = makers[device.kind](device)
        self.faults = Faults(self.world, self._modules, self._boards, self.devices)
        self.world.leaving_w()  # loads the solver now: a device that did so while it is served would miss deadlines

    def link(self, device: str) -> Link:
        """Return a new in-memory link to a device. Raises ``KeyError`` if there is no such device."""
        return MemoryLink(self.devices[device].connect, self.clock, f"emulated {device}")

    def _rng(self, purpose: str) -> np.random.Generator:
        """Return a random stream of its own for each purpose: adding a device does not change the others."""
        return np.random.default_rng(np.random.SeedSequence([self._seed, zlib.crc32(purpose.encode())]))

    def _mesh_board(self, device: DeviceSpec) -> EmulatedDevice:
        spec = self.spec
        ports = np.array(spec.monitor_ports)

        def sense_ma(n_avg: int) -> NDArray[np.float64]:
            return self.world.monitor_ma(ports, spec.responsivity_a_per_w, n_avg)

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
        self._boards[device.name] = board
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

    def _qontrol_chain(self, device: DeviceSpec) -> EmulatedDevice:
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

    def _line_server(self, device: DeviceSpec) -> EmulatedDevice:
        def apply(states: dict[int, str]) -> None:
            if device.name == self.spec.controller:
                self.world.drive_heaters(unit_currents_ma(self.world.truth, states), self.clock.now())

        server = LineServer(device.name, self.clock, apply_states=apply)
        self.world.before_reading.append(server.advance)
        return server

    def _power_meter(self, device: DeviceSpec) -> EmulatedDevice:
        return KeysightN77xx(
            device.name,
            self.clock,
            self._rng(device.name),
            lambda channel: self.world.tapped_w(device.name, channel),
            model=device.model,
            serial=device.serial,
            n_ports=4 if "44" in device.model else 8,
        )

    def _thorlabs_meter(self, device: DeviceSpec) -> EmulatedDevice:
        def light() -> Light:
            return Light(self.world.tapped_w(device.name, 1), self.spec.nominal_nm)

        return ThorlabsPm100(
            device.name, self.clock, self._rng(device.name), light, serial=device.serial, model=device.model or "PM100D"
        )

    def _mainframe(self, device: DeviceSpec) -> EmulatedDevice:
        """Dual sensors in slots 1 and 2: channels 1 to 4 in the order of their heads."""

        def light(slot: int, channel: int, _at_s: float) -> Light:
            return Light(self.world.tapped_w(device.name, 2 * (slot - 1) + channel), self.spec.nominal_nm)

        return Keysight816x(
            device.name, self.clock, self._rng(device.name), light, serial=device.serial, model=device.model or "8164B"
        )

    def _keysight_laser(self, device: DeviceSpec) -> EmulatedDevice:
        return KeysightLaser(
            device.name, self.clock, self._rng(device.name), serial=device.serial, model=device.model or "N7776C"
        )

    def _itla(self, device: DeviceSpec) -> EmulatedDevice:
        return Itla(device.name, self.clock, self._rng(device.name), serial=device.serial, warm=self._warm)

    def _module(self, device: DeviceSpec) -> EmulatedDevice:
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

    def _polarization_controller(self, device: DeviceSpec) -> EmulatedDevice:
        controller = Epc04(
            device.name,
            self.clock,
            self._rng(device.name),
            drive_mv=lambda channel, drive_mv: self.world.set_squeezer(device.name, channel, drive_mv),
        )
        self.world.before_reading.append(controller.advance)
        return controller


def _number(text: str) -> int | None:
    """Return the number of a module, ``None`` for ``****``."""
    return None if text.startswith("*") else int(text, 16)
