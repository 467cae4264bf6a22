"""Scripted faults of an emulated bench: what can go wrong, by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lumion_hw.emulator.faults.device_faults import EVERY_DEVICE, Target
from lumion_hw.emulator.faults.fault_table import BENCH, MODULE_DEAD, Argument, Places, ScriptedFault, named, nearest
from lumion_hw.emulator.optics.bench_time import BenchTime
from lumion_hw.emulator.optics.disturbances import Trajectory
from lumion_hw.emulator.optics.world import OpticalWorld
from lumion_hw.errors import ConfigError

if TYPE_CHECKING:
    from lumion_hw.emulator.mesh.lumion import MeshBoard
    from lumion_hw.emulator.wires.mains import Switchable

_DEAD_PORT_DB = 80.0  # below the noise floor of every monitor
_PUC = Argument("puc", "number of the PUC", among="PUC")
_ARM = Argument("arm", "0 upper, 1 lower", among="heater arm")
_PORT = Argument("port", "port of the mesh", among="port")
_INPUT = Argument("port", "port at which light enters", among="port with light")
_MONITOR = Argument("port", "port with a photodiode", among="port with a photodiode")
_HEATER = "2·PUC + arm"
_FACTOR = Argument("factor", "factor", 0.0, 1e6)


def _trajectory(name: str, unit: str) -> Argument:
    meaning = f"a function of the time in s from now on, in {unit}"
    return Argument(name, meaning, accepts=(callable, meaning))


def _is_names(value: Any) -> bool:
    return not isinstance(value, str) and isinstance(value, Iterable)


_MODULES = Argument("modules", "device names", accepts=(_is_names, "a list of device names"))

BENCH_FAULTS: tuple[ScriptedFault, ...] = (
    ScriptedFault("kill_modules", "their server loses power: dark, and silent on the bus", (_MODULES,)),
    ScriptedFault("revive_modules", "their server comes back: the modules start up", (_MODULES,)),
    ScriptedFault(
        "stick_heater",
        "a heater carries this current whatever is asked of it; 0 is an open heater",
        (_PUC, _ARM, Argument("current_ma", "current", 0.0, 100.0, "mA", default=0.0)),
    ),
    ScriptedFault("weaken_heater", "a heater needs so many times the power for the same phase", (_PUC, _ARM, _FACTOR)),
    ScriptedFault(
        "swap_channels",
        "the wires of two heaters are exchanged",
        (
            Argument("one", f"a heater, {_HEATER}", among="heater"),
            Argument("other", f"another heater, {_HEATER}", among="heater"),
        ),
    ),
    ScriptedFault(
        "unbalance",
        "both couplers of a PUC are off balance by this angle",
        (_PUC, Argument("common_rad", "angle", -math.pi / 2, math.pi / 2, "rad")),
    ),
    ScriptedFault("kill_port", "the fibre at a mesh port breaks: no light passes in or out", (_PORT,)),
    ScriptedFault("kill_monitor", "the photodiode at a port is dead: it reads nothing", (_MONITOR,)),
    ScriptedFault(
        "scale_monitor",
        "the photodiode at a port gives so many times its current; with a large factor it saturates its converter",
        (_MONITOR, _FACTOR),
    ),
    ScriptedFault(
        "drift_temperature",
        "the chip's temperature follows a trajectory",
        (_trajectory("trajectory_k", "K over its lock"),),
    ),
    ScriptedFault(
        "drift_power",
        "the light that arrives at a port follows a trajectory",
        (_INPUT, _trajectory("trajectory_db", "dB over what it was")),
    ),
    ScriptedFault(
        "walk_resistances",
        "the resistance of every heater walks at random",
        (Argument("per_root_s", "share per root of a second", 0.0, 1.0),),
    ),
    ScriptedFault(
        "hop_mode",
        "the laser at a port jumps to another frequency",
        (_INPUT, Argument("shift_hz", "jump", -1e13, 1e13, "Hz")),
    ),
    ScriptedFault(
        "turn_polarization",
        "somebody moves the fibre of a module: its polarization turns, by default into the orthogonal one",
        (
            Argument("transponder", "device name", accepts=(lambda name: isinstance(name, str), "a device name")),
            Argument("angle_rad", "turn on the sphere", -math.tau, math.tau, "rad", default=math.pi),
        ),
    ),
)
"""Faults that are not those of one device; each is a method of :class:`BenchFaults` too."""


class BenchFaults:
    """Faults that can be injected into an emulated bench at any instant.

    Args:
        world: The light.
        modules: Emulated modules by device name.
        devices: All devices by name.
        kinds: Kind of every device, for messages.
        faults: Returns what can go wrong with a device besides supply and cable, by its name.
        monitor_ports: Ports with a photodiode.
        schedule: Things that will happen.
    """

    def __init__(
        self,
        world: OpticalWorld,
        modules: Mapping[str, Any],
        devices: Mapping[str, Switchable],
        kinds: Mapping[str, str],
        faults: Mapping[str, Callable[[], Sequence[ScriptedFault]]],
        monitor_ports: Iterable[int],
        schedule: BenchTime,
    ) -> None:
        self._world = world
        self._modules = modules
        self._devices = devices
        self._kinds = kinds
        self._faults = faults
        self._schedule = schedule
        mesh = world.mesh
        self._places: Places = {
            "PUC": range(mesh.n_pucs),
            "heater arm": range(2),
            "heater": range(2 * mesh.n_pucs),
            "port": range(mesh.n_ports),
            "port with light": {path.port for path in world.wiring.inputs},
            "port with a photodiode": set(monitor_ports),
        }

    # -- by name ----------------------------------------------------------------------------------------------------

    def of(self, target: str = BENCH) -> tuple[ScriptedFault, ...]:
        """Return what can go wrong with a device, or with the bench itself.

        Raises:
            ConfigError: There is no such device.
        """
        if target == BENCH and BENCH not in self._devices:
            return BENCH_FAULTS
        self.device(target)
        return (*EVERY_DEVICE, *self._faults[target]())

    def inject(self, target: str, fault: str, **arguments: Any) -> None:
        """Put a fault in force now.

        Args:
            target: Device name, or ``bench``.
            fault: One of those that :meth:`of` lists.
            **arguments: What it takes.

        Raises:
            ConfigError: There is no such device or fault, or an argument is missing, unknown or of the wrong kind.
            LimitError: An argument is out of range.
        """
        row = named(self.of(target), fault, target)
        if row in BENCH_FAULTS:
            getattr(self, fault)(**row.checked(arguments, self._places))
            return
        it = self._target(target)
        row.begin(it, **row.checked(arguments, row.places(it)))

    def end(self, target: str, fault: str, **arguments: Any) -> None:
        """End a fault, with the arguments that began it. Raises as :meth:`inject`, also for what does not end."""
        row = named(self.of(target), fault, target)
        if row.end is None:
            ending = ", ".join(each.name for each in self.of(target) if each.end is not None)
            raise ConfigError(f"{fault} does not end", device=target, hint=f"These do: {ending or 'none'}.")
        it = self._target(target)
        row.end(it, **row.checked(arguments, row.places(it)))

    def after(self, delay_s: float, fault: Callable[[], None]) -> None:
        """Have a fault happen so many seconds from now, by the bench's clock."""
        delay = Argument("delay_s", "delay", 0.0, unit="s").checked("after", delay_s, {})
        if not callable(fault):
            raise ConfigError(f"after: {fault!r} is no fault", hint="Give a function without arguments.")
        self._schedule.add(self._schedule.now_s() + delay, fault)

    def _target(self, name: str) -> Target:
        return Target(self._devices[name], self._modules.get(name))

    def _checked(self, fault: str, **arguments: Any) -> dict[str, Any]:
        return named(BENCH_FAULTS, fault, BENCH).checked(arguments, self._places)

    # -- of the bench -----------------------------------------------------------------------------------------------

    def kill_modules(self, modules: Iterable[str]) -> None:
        """The host of these modules loses power: they go dark and no longer answer."""
        self._supply(modules, on=False)

    def revive_modules(self, modules: Iterable[str]) -> None:
        """The host comes back: the modules start up."""
        self._supply(modules, on=True)

    def _supply(self, modules: Iterable[str], *, on: bool) -> None:
        names = tuple(self._checked("revive_modules" if on else "kill_modules", modules=modules)["modules"])
        for name in names:
            # All names before the first acts: a wrong one leaves the bench as it was.
            if name not in self._modules:
                there = ", ".join(self._modules) or "none"
                raise ConfigError(
                    f"there is no module {name}", hint=f"{nearest(name, self._modules)}Modules here: {there}."
                )
        for name in names:
            (self.end if on else self.inject)(name, MODULE_DEAD)

    def stick_heater(self, puc: int, arm: int, current_ma: float = 0.0) -> None:
        """A heater (arm 0 upper, 1 lower) carries this current whatever is asked of it; 0 is an open heater."""
        self._checked("stick_heater", puc=puc, arm=arm, current_ma=current_ma)
        self._world.truth.stuck_current_ma[2 * puc + arm] = current_ma
        self._world.disturb()

    def kill_port(self, port: int) -> None:
        """The fibre at a port breaks: no light passes in or out."""
        self._checked("kill_port", port=port)
        self._world.truth.access_loss_db[port] += _DEAD_PORT_DB
        self._world.disturb()

    def weaken_heater(self, puc: int, arm: int, factor: float) -> None:
        """A heater needs so many times the power for the same phase."""
        self._checked("weaken_heater", puc=puc, arm=arm, factor=factor)
        self._world.truth.p_pi_mw[2 * puc + arm] *= factor
        self._world.disturb()

    def swap_channels(self, one: int, other: int) -> None:
        """The wires of two heaters (2·PUC + arm) are exchanged."""
        self._checked("swap_channels", one=one, other=other)
        self._world.swapped.append((one, other))  # takes effect with the next table that the board latches

    def unbalance(self, puc: int, common_rad: float) -> None:
        """Both couplers of a PUC are off balance by this angle."""
        self._checked("unbalance", puc=puc, common_rad=common_rad)
        truth = self._world.truth
        for eta in (truth.eta_in, truth.eta_out):
            # η = sin² a: what is off balance is the angle a.
            eta[puc] = np.sin(np.arcsin(np.sqrt(eta[puc])) + common_rad) ** 2
        self._world.disturb()

    def kill_monitor(self, port: int) -> None:
        """The photodiode at a port is dead: it reads nothing."""
        self._checked("kill_monitor", port=port)
        self.scale_monitor(port, 0.0)

    def scale_monitor(self, port: int, factor: float) -> None:
        """The photodiode at a port gives so many times its current; with a large factor it saturates its converter."""
        self._checked("scale_monitor", port=port, factor=factor)
        self._world.truth.monitor_scale[port] *= factor

    def drift_temperature(self, trajectory_k: Trajectory) -> None:
        """The chip's temperature follows a trajectory, by the bench's clock from now on."""
        self._checked("drift_temperature", trajectory_k=trajectory_k)
        self._world.disturbances.temperature_k = self._from_now(trajectory_k)

    def drift_power(self, port: int, trajectory_db: Trajectory) -> None:
        """The light that arrives at a port follows a trajectory, by the bench's clock from now on."""
        self._checked("drift_power", port=port, trajectory_db=trajectory_db)
        self._world.disturbances.power_db[port] = self._from_now(trajectory_db)

    def walk_resistances(self, per_root_s: float) -> None:
        """The resistance of every heater walks at random, by this share per root of a second."""
        self._checked("walk_resistances", per_root_s=per_root_s)
        self._world.disturbances.resistance_per_root_s = per_root_s

    def hop_mode(self, port: int, shift_hz: float) -> None:
        """The laser at a port jumps to another frequency."""
        self._checked("hop_mode", port=port, shift_hz=shift_hz)
        for path, chain in zip(self._world.wiring.inputs, self._world.chains, strict=True):
            if path.port == port:
                chain.frequency_hz += shift_hz

    def _from_now(self, trajectory: Trajectory) -> Trajectory:
        begin_s = self._schedule.now_s()
        return lambda now_s: trajectory(now_s - begin_s)

    def turn_polarization(self, transponder: str, angle_rad: float = np.pi) -> None:
        """Somebody moves the fibre of a module: its polarization turns, by default into the orthogonal one."""
        self._checked("turn_polarization", transponder=transponder, angle_rad=angle_rad)
        sources = {path.source for path in self._world.wiring.inputs}
        if transponder not in sources:
            there = ", ".join(sorted(sources))
            raise ConfigError(
                f"no fibre leads from {transponder} to the mesh",
                hint=f"{nearest(transponder, sources)}Light comes from {there}.",
            )
        self._world.turn_fibre(transponder, angle_rad)

    # -- the emulated devices themselves ----------------------------------------------------------------------------

    def board(self, name: str) -> MeshBoard:
        """Return an emulated mesh controller of this project, for the hooks of its own.

        Raises:
            ConfigError: There is none of that name.
        """
        from lumion_hw.emulator.mesh.lumion import MeshBoard

        found = self._devices.get(name)
        if not isinstance(found, MeshBoard):
            what = f"there is no device {name}" if found is None else f"{name} is a {self._kinds[name]}"
            boards = [each for each, device in self._devices.items() if isinstance(device, MeshBoard)]
            there = f"Boards here: {', '.join(boards) or 'none'}"
            raise ConfigError(what, device=name, hint=f"{there}; every other device is had by device().")
        return found

    def device(self, name: str) -> Any:
        """Return any emulated device, for the hooks of its own.

        Raises:
            ConfigError: There is none of that name.
        """
        if name not in self._devices:
            there = ", ".join(self._devices)
            raise ConfigError(
                f"there is no device {name}", hint=f"{nearest(name, self._devices)}Devices here: {there}."
            )
        return self._devices[name]
