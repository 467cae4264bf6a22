"""Scripted faults of an emulated bench: what can go wrong, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

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
    """

    def __init__(
        self,
        world: OpticalWorld,
        modules: Mapping[str, SfpModule],
        boards: Mapping[str, MeshBoard],
        devices: Mapping[str, EmulatedDevice],
    ) -> None:
        self._world = world
        self._modules = modules
        self._boards = boards
        self._devices = devices

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

    def turn_polarization(self, transponder: str) -> None:
        """Somebody moves the fibre of a module: its light arrives in the orthogonal polarization."""
        self._world.turn_fibre(transponder)

    def board(self, name: str) -> MeshBoard:
        """Return an emulated mesh controller, for the faults of its own."""
        return self._boards[name]

    def device(self, name: str) -> EmulatedDevice:
        """Return any emulated device, for the faults of its own."""
        return self._devices[name]
