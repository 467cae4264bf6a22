"""Scripted faults of an emulated bench, by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lumion_hw.emulator.faults.device_faults import EVERY_DEVICE, Target
from lumion_hw.emulator.faults.fault_table import (
    BENCH,
    MODULE_DEAD,
    Argument,
    Places,
    ScriptedFault,
    find_fault,
    suggestion,
)
from lumion_hw.emulator.optics.bench_time import BenchTime
from lumion_hw.emulator.optics.disturbances import Trajectory
from lumion_hw.emulator.optics.world import OpticalWorld
from lumion_hw.errors import ConfigError

if TYPE_CHECKING:
    from lumion_hw.emulator.mesh.lumion import MeshBoard
    from lumion_hw.emulator.wires.mains import Switchable

_DEAD_PORT_DB = 80.0  # below the noise floor of every monitor
_PUC = Argument("puc", "number of the PUC", component_kind="PUC")
_ARM = Argument("arm", "0 upper, 1 lower", component_kind="heater arm")
_PORT = Argument("port", "port of the mesh", component_kind="port")
_INPUT = Argument("port", "port at which light enters", component_kind="port with light")
_MONITOR = Argument("port", "port with a photodiode", component_kind="port with a photodiode")
_HEATER = "2·PUC + arm"
_FACTOR = Argument("factor", "factor", 0.0, 1e6)


def _trajectory(name: str, unit: str) -> Argument:
    meaning = f"a function of the time in s from now, in {unit}"
    return Argument(name, f"{meaning}, or as text: 0:0,60:2.5", accepts=(callable, meaning), parse=_interpolated)


def _interpolated(text: str) -> Trajectory:
    """Return a function from pairs of time and value; constant before the first pair and after the last."""
    points = [tuple(map(float, pair.split(":"))) for pair in text.split(",")]
    if any(len(point) != 2 for point in points) or not np.all(np.isfinite(points)):
        raise ValueError(text)
    times_s, values = np.transpose(sorted(points))
    return lambda now_s: float(np.interp(now_s, times_s, values))


def _is_names(value: Any) -> bool:
    return not isinstance(value, str) and isinstance(value, Iterable)


_MODULES = Argument(
    "modules",
    "device names",
    accepts=(_is_names, "a list of device names"),
    parse=lambda text: tuple(name.strip() for name in text.split(",")),
)


def _device(name: str, meaning: str) -> Argument:
    return Argument(name, meaning, accepts=(lambda device: isinstance(device, str), "a device name"), parse=str)


BENCH_FAULTS: tuple[ScriptedFault, ...] = (
    ScriptedFault(
        "kill_modules", "the modules' host loses power: the modules go dark and do not respond on the bus", (_MODULES,)
    ),
    ScriptedFault("revive_modules", "the modules' host regains power: the modules start up", (_MODULES,)),
    ScriptedFault(
        "stick_heater",
        "a heater carries a fixed current whatever its setting; 0 is an open heater",
        (_PUC, _ARM, Argument("current_ma", "current", 0.0, 100.0, "mA", default=0.0)),
    ),
    ScriptedFault(
        "weaken_heater", "the power that a heater needs for a phase is multiplied by a factor", (_PUC, _ARM, _FACTOR)
    ),
    ScriptedFault(
        "swap_channels",
        "the wires of two heaters are swapped",
        (
            Argument("heater", f"a heater, {_HEATER}", component_kind="heater"),
            Argument("other_heater", f"another heater, {_HEATER}", component_kind="heater"),
        ),
    ),
    ScriptedFault(
        "share_channel",
        "the channel of a heater also feeds another heater, in parallel, whose own channel drives nothing",
        (
            Argument("heater", f"the heater of this channel, {_HEATER}", component_kind="heater"),
            Argument("other_heater", f"the other heater, {_HEATER}", component_kind="heater"),
        ),
    ),
    ScriptedFault(
        "unbalance",
        "the splitting angle of both couplers of a PUC changes by this angle",
        (_PUC, Argument("common_rad", "angle", -math.pi / 2, math.pi / 2, "rad")),
    ),
    ScriptedFault(
        "kill_port", "the fibre at a mesh port breaks: no light enters or leaves", (_PORT,), happens_once=True
    ),
    ScriptedFault("kill_monitor", "the photodiode at a port fails and reads zero", (_MONITOR,), happens_once=True),
    ScriptedFault(
        "scale_monitor",
        "the photocurrent at a port is multiplied by a factor; a large factor saturates the converter",
        (_MONITOR, _FACTOR),
    ),
    ScriptedFault(
        "drift_temperature",
        "the chip's temperature follows a function of time",
        (_trajectory("trajectory_k", "K above its set point"),),
    ),
    ScriptedFault(
        "drift_power",
        "the power that arrives at a port follows a function of time",
        (_INPUT, _trajectory("trajectory_db", "dB relative to the undisturbed power")),
    ),
    ScriptedFault(
        "walk_resistances",
        "the resistance of every heater follows a random walk",
        (Argument("per_root_s", "relative change per root second", 0.0, 1.0),),
    ),
    ScriptedFault(
        "hop_mode",
        "the laser at a port hops to another frequency",
        (_INPUT, Argument("shift_hz", "jump", -1e13, 1e13, "Hz")),
    ),
    ScriptedFault(
        "plug",
        "somebody plugs a fibre that is moved by hand into a port, whether or not a calibration asks for this port",
        (_device("device", "laser or meter"), _PORT),
    ),
    ScriptedFault(
        "turn_polarization",
        "the fibre of a module is moved: its polarization rotates, by default to the orthogonal state",
        (
            _device("transponder", "device name"),
            Argument("angle_rad", "rotation on the Poincaré sphere", -math.tau, math.tau, "rad", default=math.pi),
        ),
    ),
)
"""Faults of the bench as a whole; each is a method of :class:`BenchFaults`."""


class BenchFaults:
    """Starts and ends faults of an emulated bench at any time.

    Args:
        modules: Emulated pluggable modules by device name.
        devices: All devices by name.
        faults: For each device, a function that returns the faults of its kind.
        monitor_ports: Ports with a photodiode.
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

    @property
    def device_names(self) -> Collection[str]:
        """Names of all devices."""
        return self._devices.keys()

    def list_faults(self, target: str = BENCH) -> tuple[ScriptedFault, ...]:
        """Return the faults of a device, or of the bench as a whole. Raises ``ConfigError`` for an unknown device."""
        if target == BENCH and BENCH not in self._devices:
            return BENCH_FAULTS
        self.device(target)
        return (*EVERY_DEVICE, *self._faults[target]())

    def inject(self, target: str, fault: str, **arguments: Any) -> None:
        """Start a fault of a device or of the bench now.

        Args:
            target: Device name, or ``bench``.
            fault: Name of one of the faults that :meth:`list_faults` returns.
            **arguments: Arguments of the fault.

        Raises:
            ConfigError: There is no such device or fault, or an argument is missing, unknown or of the wrong type.
            LimitError: An argument is out of range.
        """
        row = find_fault(self.list_faults(target), fault, target)
        if row in BENCH_FAULTS:
            getattr(self, fault)(**row.validated(arguments, self._places))
            return
        fault_target = self.target(target)
        row.begin(fault_target, **row.validated(arguments, row.places(fault_target)))

    def end(self, target: str, fault: str, **arguments: Any) -> None:
        """End a fault, with the arguments with which it was started.

        Raises the errors of :meth:`inject`, and ``ConfigError`` if the fault cannot be ended.
        """
        row = find_fault(self.list_faults(target), fault, target)
        if row.end is None:
            ending = ", ".join(row.name for row in self.list_faults(target) if row.end is not None)
            raise ConfigError(
                f"fault {fault} cannot be cleared; it lasts until the emulation ends",
                device=target,
                hint=f"Faults that can be cleared: {ending or 'none'}.",
            )
        fault_target = self.target(target)
        row.end(fault_target, **row.validated(arguments, row.places(fault_target)))

    def after(self, delay_s: float, fault: Callable[[], None]) -> None:
        """Schedule a function, such as the start of a fault, ``delay_s`` from now on the bench's clock."""
        delay = Argument("delay_s", "delay", 0.0, unit="s").validated("after", delay_s, {})
        if not callable(fault):
            raise ConfigError(f"after: {fault!r} is not a function", hint="Give a function that takes no arguments.")
        self._schedule.add(self._schedule.now_s() + delay, fault)

    def target(self, name: str) -> Target:
        """Return the device on which faults of ``name`` act; for a media lane its module."""
        device = self.device(name)
        return Target(device, self._modules.get(device.name))

    def _checked(self, fault: str, **arguments: Any) -> dict[str, Any]:
        return find_fault(BENCH_FAULTS, fault, BENCH).validated(arguments, self._places)

    # -- of the bench -----------------------------------------------------------------------------------------------

    def kill_modules(self, modules: Iterable[str]) -> None:
        """Cut the host power of pluggable modules: their light goes out and they stop responding."""
        self._supply(modules, on=False)

    def revive_modules(self, modules: Iterable[str]) -> None:
        """Restore the host power of pluggable modules: they start up."""
        self._supply(modules, on=True)

    def _supply(self, modules: Iterable[str], *, on: bool) -> None:
        names = tuple(self._checked("revive_modules" if on else "kill_modules", modules=modules)["modules"])
        self.check_modules(names)  # before the first acts, so that a wrong name leaves the bench unchanged
        for name in names:
            (self.end if on else self.inject)(name, MODULE_DEAD)

    def check_modules(self, names: Iterable[str]) -> None:
        """Raise ``ConfigError`` unless all names are pluggable modules."""
        for name in names:
            if not isinstance(name, str) or name not in self._modules:
                kind_names = ", ".join(self._modules) or "none"
                raise ConfigError(
                    f"there is no module {name}",
                    hint=f"{suggestion(name, self._modules)}Modules on this bench: {kind_names}.",
                )

    def stick_heater(self, puc: int, arm: int, current_ma: float = 0.0) -> None:
        """Make the heater of a PUC (arm 0 upper, 1 lower) carry a fixed current; 0 is an open heater."""
        self._checked("stick_heater", puc=puc, arm=arm, current_ma=current_ma)
        self._world.about_to_change()
        self._world.truth.stuck_current_ma[2 * puc + arm] = current_ma
        self._world.disturb()

    def kill_port(self, port: int) -> None:
        """Break the fibre at a port: no light enters or leaves."""
        self._checked("kill_port", port=port)
        self._world.about_to_change()
        self._world.truth.access_loss_db[port] += _DEAD_PORT_DB
        self._world.disturb()

    def weaken_heater(self, puc: int, arm: int, factor: float) -> None:
        """Multiply the power that a heater needs for a given phase by a factor."""
        self._checked("weaken_heater", puc=puc, arm=arm, factor=factor)
        self._world.about_to_change()
        self._world.truth.p_pi_mw[2 * puc + arm] *= factor
        self._world.disturb()

    def swap_channels(self, heater: int, other_heater: int) -> None:
        """Swap the wires of two heaters; the index of a heater is 2·PUC + arm."""
        self._checked("swap_channels", heater=heater, other_heater=other_heater)
        self._world.chip.swapped_heaters.append((heater, other_heater))

    def share_channel(self, heater: int, other_heater: int) -> None:
        """Wire another heater in parallel to a heater; the channel of the other heater then drives nothing.

        The current splits by the conductances of the cold heaters. As with swapped wires, a controller that measures
        its outputs still sees the loads of correct wiring.

        Raises:
            ConfigError: Both heaters are the same.
        """
        self._checked("share_channel", heater=heater, other_heater=other_heater)
        if heater == other_heater:
            raise ConfigError(f"share_channel: heater {heater} is given twice", hint="Give two different heaters.")
        self._world.chip.shared_channels.append((heater, other_heater))

    def unbalance(self, puc: int, common_rad: float) -> None:
        """Change the splitting angle asin(√η) of both couplers of a PUC by ``common_rad``; η is the power splitting."""
        self._checked("unbalance", puc=puc, common_rad=common_rad)
        self._world.about_to_change()
        truth = self._world.truth
        for eta in (truth.eta_in, truth.eta_out):
            # η = sin² a, where a is the angle that the fault changes.
            eta[puc] = np.sin(np.arcsin(np.sqrt(eta[puc])) + common_rad) ** 2
        self._world.disturb()

    def kill_monitor(self, port: int) -> None:
        """Make the photodiode at a port read zero."""
        self._checked("kill_monitor", port=port)
        self.scale_monitor(port, 0.0)

    def scale_monitor(self, port: int, factor: float) -> None:
        """Multiply the photocurrent of the photodiode at a port; a large factor saturates its converter."""
        self._checked("scale_monitor", port=port, factor=factor)
        self._world.truth.monitor_scale[port] *= factor

    def drift_temperature(self, trajectory_k: Trajectory) -> None:
        """Make the chip's temperature follow a function of the time in seconds from now."""
        self._checked("drift_temperature", trajectory_k=trajectory_k)
        self._world.disturbances.temperature_k = self._starting_at_present(trajectory_k)

    def drift_power(self, port: int, trajectory_db: Trajectory) -> None:
        """Make the power that arrives at a port follow a function of the time in seconds from now."""
        self._checked("drift_power", port=port, trajectory_db=trajectory_db)
        self._world.disturbances.power_db[port] = self._starting_at_present(trajectory_db)

    def walk_resistances(self, per_root_s: float) -> None:
        """Let the resistance of every heater drift randomly, by a relative change per root second."""
        self._checked("walk_resistances", per_root_s=per_root_s)
        self._world.disturbances.resistance_per_root_s = per_root_s

    def hop_mode(self, port: int, shift_hz: float) -> None:
        """Make the laser of an input port hop to another frequency."""
        self._checked("hop_mode", port=port, shift_hz=shift_hz)
        for path, chain in zip(self._world.wiring.inputs, self._world.chains, strict=True):
            if path.port == port:
                chain.frequency_hz += shift_hz

    def plug(self, device: str, port: int) -> None:
        """Plug the hand-moved fibre of a laser or meter into a port."""
        self._checked("plug", device=device, port=port)
        self._world.plug(device, port)

    def _starting_at_present(self, trajectory: Trajectory) -> Trajectory:
        begin_s = self._schedule.now_s()
        return lambda now_s: trajectory(now_s - begin_s)

    def turn_polarization(self, transponder: str, angle_rad: float = np.pi) -> None:
        """Rotate the polarization of a module's light, by default to the orthogonal state."""
        self._checked("turn_polarization", transponder=transponder, angle_rad=angle_rad)
        sources = {path.source for path in self._world.wiring.inputs}
        if transponder not in sources:
            kind_names = ", ".join(sorted(sources))
            raise ConfigError(
                f"no fibre connects {transponder} to the mesh",
                hint=f"{suggestion(transponder, sources)}Connected sources: {kind_names}.",
            )
        self._world.turn_fibre(transponder, angle_rad)

    # -- the emulated devices themselves ----------------------------------------------------------------------------

    def board(self, name: str) -> MeshBoard:
        """Return an emulated LUMION mesh controller by name. Raises ``ConfigError`` if there is none."""
        from lumion_hw.emulator.mesh.lumion import MeshBoard

        device = self._devices.get(name)
        if not isinstance(device, MeshBoard):
            problem = f"there is no device {name}" if device is None else f"{name} is a {self._kinds[name]}"
            boards = [board for board, device in self._devices.items() if isinstance(device, MeshBoard)]
            hint = f"Boards on this bench: {', '.join(boards) or 'none'}"
            raise ConfigError(problem, device=name, hint=f"{hint}. Use device() for other devices.")
        return device

    def device(self, name: str) -> Any:
        """Return an emulated device by name. Raises ``ConfigError`` if there is none."""
        if name not in self._devices:
            kind_names = ", ".join(self._devices)
            raise ConfigError(
                f"there is no device {name}",
                hint=f"{suggestion(name, self._devices)}Devices on this bench: {kind_names}.",
            )
        return self._devices[name]
