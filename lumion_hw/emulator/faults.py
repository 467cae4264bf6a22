"""Scripted faults of an emulated bench: what can go wrong, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from lumion_hw.emulator.disturbances import Course, Schedule
from lumion_hw.emulator.sff8472 import SfpModule
from lumion_hw.emulator.world import OpticalWorld

if TYPE_CHECKING:
    from lumion_hw.emulator.board import MeshBoard
    from lumion_hw.emulator.device import EmulatedDevice

_DEAD_PORT_DB = 80.0


class Faults:
    """Faults that can be injected into an emulated bench at any instant.

    Args:
        world: The light.
        modules: Emulated modules by device name.
        boards: Emulated mesh controllers by device name.
        devices: All devices by name.
        schedule: Things that will happen.
    """

    def __init__(
        self,
        world: OpticalWorld,
        modules: Mapping[str, SfpModule],
        boards: Mapping[str, MeshBoard],
        devices: Mapping[str, EmulatedDevice],
        schedule: Schedule,
    ) -> None:
        self._world = world
        self._modules = modules
        self._boards = boards
        self._devices = devices
        self._schedule = schedule

    def after(self, delay_s: float, fault: Callable[[], None]) -> None:
        """Have a fault happen so many seconds from now, by the bench's clock."""
        self._schedule.add(self._schedule.now_s() + delay_s, fault)

    def kill_modules(self, modules: Iterable[str]) -> None:
        """The host of these modules loses power: they go dark and no longer answer."""
        for name in modules:
            self._modules[name].power_off()

    def revive_modules(self, modules: Iterable[str]) -> None:
        """The host comes back: the modules start up."""
        for name in modules:
            self._modules[name].power_on()

    def stick_heater(self, puc: int, arm: int, current_ma: float = 0.0) -> None:
        """A heater (arm 0 upper, 1 lower) carries this current whatever is asked of it; 0 is an open heater."""
        self._world.truth.stuck_current_ma[2 * puc + arm] = current_ma
        self._world.disturb()

    def kill_port(self, port: int) -> None:
        """The fibre at a port breaks: no light passes in or out."""
        self._world.truth.access_loss_db[port] += _DEAD_PORT_DB
        self._world.disturb()

    def weaken_heater(self, puc: int, arm: int, factor: float) -> None:
        """A heater needs so many times the power for the same phase."""
        self._world.truth.p_pi_mw[2 * puc + arm] *= factor
        self._world.disturb()

    def swap_channels(self, one: int, other: int) -> None:
        """The wires of two heaters (2·PUC + arm) are exchanged."""
        self._world.swapped.append((one, other))

    def unbalance(self, puc: int, common_rad: float) -> None:
        """Both couplers of a PUC are off balance by this angle."""
        truth = self._world.truth
        for eta in (truth.eta_in, truth.eta_out):
            eta[puc] = np.sin(np.arcsin(np.sqrt(eta[puc])) + common_rad) ** 2
        self._world.disturb()

    def kill_monitor(self, port: int) -> None:
        """The photodiode at a port is dead: it reads nothing."""
        self.scale_monitor(port, 0.0)

    def scale_monitor(self, port: int, factor: float) -> None:
        """The photodiode at a port gives so many times its current; with a large factor it saturates its converter."""
        self._world.truth.monitor_scale[port] *= factor

    def drift_temperature(self, course_k: Course) -> None:
        """The chip's temperature follows a course, by the bench's clock from now on."""
        self._world.disturbances.temperature_k = self._from_now(course_k)

    def drift_power(self, port: int, course_db: Course) -> None:
        """The light that arrives at a port follows a course, by the bench's clock from now on."""
        self._world.disturbances.power_db[port] = self._from_now(course_db)

    def walk_resistances(self, per_root_s: float) -> None:
        """The resistance of every heater walks at random, by this share per root of a second."""
        self._world.disturbances.resistance_per_root_s = per_root_s

    def hop_mode(self, port: int, shift_hz: float) -> None:
        """The laser at a port jumps to another frequency."""
        for path, chain in zip(self._world.wiring.inputs, self._world.chains, strict=True):
            if path.port == port:
                chain.frequency_hz += shift_hz

    def _from_now(self, course: Course) -> Course:
        begin_s = self._schedule.now_s()
        return lambda now_s: course(now_s - begin_s)

    def turn_polarization(self, transponder: str, angle_rad: float = np.pi) -> None:
        """Somebody moves the fibre of a module: its polarization turns, by default into the orthogonal one."""
        self._world.turn_fibre(transponder, angle_rad)

    def board(self, name: str) -> MeshBoard:
        """Return an emulated mesh controller, for the faults of its own."""
        return self._boards[name]

    def device(self, name: str) -> EmulatedDevice:
        """Return any emulated device, for the faults of its own."""
        return self._devices[name]
