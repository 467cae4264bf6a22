"""A bench of open devices: from a bench file to drivers, on hardware or emulated. From here on a script can't tell."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from lumion_hw.bench.events import EventLog
from lumion_hw.bench.fibre_devices import outputs_with_device_losses
from lumion_hw.bench.file.devices import DeviceModel, HeaterDriverModel
from lumion_hw.bench.file.known_kinds import kind_named
from lumion_hw.bench.file.loader import BenchFile, builtin_path, load_bench, read_bench_file
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.bench.file.module_connection import ModuleConnection
from lumion_hw.bench.file.roles import Role
from lumion_hw.bench.mesh_access import SETTLE_S, MeshAccess
from lumion_hw.bench.meter_monitors import MeterMonitors
from lumion_hw.bench.named import Named
from lumion_hw.bench.opening import link_to, open_device
from lumion_hw.clock import Clock, SystemClock, VirtualClock, results_of, run_to_future
from lumion_hw.errors import ConfigError, LumionError, name_hint
from lumion_hw.interfaces import (
    MeshController,
    MeshStates,
    OpticalAmplifier,
    OpticalSwitch,
    Polarimeter,
    PolarizationController,
    PolarizationOptimizer,
    PowerMeter,
    SpectrumAnalyzer,
    TemperatureController,
    Transponder,
    TunableLaser,
    VariableAttenuator,
)
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.interfaces.open_device import OpenDevice
    from lumion_hw.remote.proxies import RemoteDevice

BUILTIN = "lumion-prototype"
MAX_LEAVE_ON_S = 3600.0
"""The longest hold of a LUMION mesh controller after its watchdog has tripped (docs/protocol.md, 7.1)."""
T = TypeVar("T")


class Bench:
    """Devices of one bench file, open and identified. Use it as a context manager: leaving switches the heaters off.

    Where the bench file or :meth:`open` says ``leave_on_s``, leaving leaves them on for at most so long.

    Args:
        model: The checked bench file.
        link: Makes the link, or another connection, to a device by its name; or what stands for one elsewhere.
        clock: Clock of all devices.
        emulated: The emulated bench behind the links, if there is one.
        only: Names of the devices to open; all if not given. The others are left alone, for other programs.
        where: Where its devices are, for whoever prints it.
        at_end: Called when it is closed, after its devices.
        emulated_there: Whether the devices are emulated where they are served.
        file: The file that ``model`` comes from, if it comes from one.

    Attributes:
        model: The checked bench file.
        file: The file it comes from, as it was when the bench was opened; ``None`` for a served bench.
        clock: Clock of all devices.
        wiring: Which module's light goes where.
        mesh_states: Meshes that take states of their cells and no currents, by device name.
        meters: Power meters by device name.
        lasers: Tunable lasers by device name; opening and closing leave their outputs as they are.
        transponders: Modules by device name.
        polarization: Polarization controllers by device name.
        polarization_optimizers: Boxes that improve the polarization by themselves, by device name.
        polarimeters: Polarimeters by device name.
        attenuators: Variable attenuators by device name; opening and closing leave them as they are.
        switches: Optical switches by device name; opening and closing leave their connections as they are.
        amplifiers: Optical amplifiers by device name; opening and closing leave their outputs as they are.
        spectrum_analyzers: Optical spectrum analysers by device name.
        temperature_controllers: Temperature controllers by device name; opening and closing leave them as they are.
        events: Log of what happens.
    """

    def __init__(
        self,
        model: BenchModel,
        link: Callable[[str, DeviceModel], Link | ModuleConnection | RemoteDevice],
        clock: Clock,
        emulated: EmulatedBench | None = None,
        only: Collection[str] | None = None,
        where: str = "real",
        at_end: Callable[[], None] = lambda: None,
        emulated_there: bool = False,
        file: BenchFile | None = None,
    ) -> None:
        self.model, self.file = model, file
        self._where, self._at_end = where, at_end
        self._chosen = model.devices.keys() if only is None else set(only)
        _check_names(self._chosen, model, "devices")
        self.clock = clock
        self.wiring = model.to_wiring()
        self.events = EventLog(clock)
        self._emulated, self._emulated_there = emulated, emulated_there
        self._devices: dict[str, OpenDevice] = {}
        self._open_all(link)
        self.meters: Named[PowerMeter] = self._with_role(Role.METER)
        self.lasers: Named[TunableLaser] = self._with_role(Role.LASER)
        self.transponders: Named[Transponder] = self._with_role(Role.TRANSPONDER)
        self.polarization: Named[PolarizationController] = self._with_role(Role.POLARIZATION)
        self.polarization_optimizers: Named[PolarizationOptimizer] = self._with_role(Role.POLARIZATION_OPTIMIZER)
        self.polarimeters: Named[Polarimeter] = self._with_role(Role.POLARIMETER)
        self.attenuators: Named[VariableAttenuator] = self._with_role(Role.ATTENUATOR)
        self.switches: Named[OpticalSwitch] = self._with_role(Role.SWITCH)
        self.amplifiers: Named[OpticalAmplifier] = self._with_role(Role.AMPLIFIER)
        self.spectrum_analyzers: Named[SpectrumAnalyzer] = self._with_role(Role.SPECTRUM_ANALYZER)
        self.temperature_controllers: Named[TemperatureController] = self._with_role(Role.TEMPERATURE)
        self.mesh_states: Named[MeshStates] = self._with_role(Role.MESH_STATES)
        try:
            self._mesh = self._mesh_access()
        except BaseException:
            self.close()
            raise
        self.events.add("opened", bench=model.name, devices=len(self._devices), emulated=self.is_emulated)
        lacking = [] if self._mesh is None else _lacking(self._mesh.controller)
        if lacking:
            self.events.add("controller lacks", controller=model.mesh_section.controller, what=", ".join(lacking))

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        addresses: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        only: Collection[str] | None = None,
        leave_on_s: float | None = None,
    ) -> Bench:
        """Open the devices of a bench file.

        Args:
            path: The bench file, or the name of a built-in one.
            addresses: Addresses that replace those of the file, by device name (as ``lumion emulate`` writes them).
            clock: The wall clock if not given.
            only: Names of the devices to open; all if not given. The others are left alone, for other programs.
            leave_on_s: Longest time that heaters stay on after this bench is closed, at most 3600 s; as the file says
                if not given. A controller without a watchdog leaves them on until somebody switches them off.

        Raises:
            ConfigError: The file is wrong, a device has no address or does not exist, or another device answered.
            ExceptionGroup: Several devices failed to open.
        """
        file = _read(path)
        model, wall = with_leave_on(load_bench(file.path, text=file.text), leave_on_s), clock or SystemClock()
        known = dict(addresses or {})
        _check_names(known, model, "addresses for devices")

        def link(name: str, device: DeviceModel) -> Link | ModuleConnection:
            holder = device.inside
            held_at = known.get(holder, model.devices[holder].address) if holder else None
            address = known.get(name, device.address or held_at)
            if address is None:
                raise ConfigError("the bench file gives no address", device=name, hint="Add 'address: ...'.")
            return link_to(device, address, wall)

        return cls(model, link, wall, only=only, file=file)

    @classmethod
    def emulate(
        cls,
        path: str | Path = BUILTIN,
        *,
        seed: int = 0,
        clock: Clock | None = None,
        only: Collection[str] | None = None,
        aged_s: float = 0.0,
    ) -> Bench:
        """Open an emulated bench: the same file, the same drivers, the same bytes, no hardware.

        Args:
            path: The bench file, or the name of a built-in one.
            seed: Seed of everything random; the same seed gives the same bench and the same readings.
            clock: A virtual clock if not given.
            only: As for :meth:`open`.
            aged_s: Time that has passed on it since its chip was as the seed draws it; tells only where the file's
                'emulation' lets the chip drift.
        """
        from lumion_hw.bench.emulated import emulated_bench

        file = _read(path)
        model = load_bench(file.path, text=file.text)
        virtual = clock or VirtualClock()
        emulated = emulated_bench(model, virtual, seed, aged_s=aged_s)
        return cls(model, lambda name, _device: emulated.link(name), virtual, emulated, only, file=file)

    @classmethod
    def attach(cls, address: str, *, only: Collection[str] | None = None, take_over: str | None = None) -> Bench:
        """Use the devices of a bench that another process serves, on this host or another one.

        The same interfaces, and errors of the same classes. The first call that changes something takes the lease of
        the served bench, which is given back when this one is closed; readings are dated by the server's clock.

        Args:
            address: ``pva://host:port``, as ``lumion serve --pva`` says it.
            only: As for :meth:`open`.
            take_over: Name of the holder of the lease to be replaced, as the error says it.

        Raises:
            ConfigError: The address is none, p4p is not installed, or the server is of another version.
            ConnectError: No bench is served there.
        """
        from lumion_hw.remote.client import PvaConnection
        from lumion_hw.remote.proxies import device_proxy

        connection = PvaConnection(address, take_over=take_over)
        try:
            told = connection.describe()
            model = BenchModel.model_validate_json(told["model"])
            devices, clock = told["devices"], connection.clock()
        except BaseException:
            connection.close()
            raise

        def device(name: str, _model: DeviceModel) -> RemoteDevice:
            interface, properties = devices[name]
            return device_proxy(interface, name, connection, properties)

        chosen = devices if only is None else only
        return cls(
            model,
            device,
            clock,
            only=chosen,
            where=f"served at {address}",
            at_end=connection.close,
            emulated_there=bool(told["emulated"]),
        )

    @property
    def mesh(self) -> MeshAccess:
        """The mesh and its controller.

        Raises:
            ConfigError: There is no mesh, or its controller takes states of unit cells and no heater currents, which
                calibration, circuits and all that builds on them need.
        """
        name = self.model.mesh_section.controller
        if name not in self._devices:
            raise ConfigError("the mesh controller was not opened", device=name, hint="Leave out 'only', or name it.")
        if self._mesh is None:
            raise ConfigError(
                f"the mesh of bench {self.model.name} takes states of its unit cells and no heater currents: it can "
                "neither be calibrated nor given circuits.",
                device=name,
                hint=f"Set states with bench.mesh_states[{name!r}].program_states(), or drive the heaters.",
            )
        return self._mesh

    def opened(self, name: str) -> OpenDevice | None:
        """Return the driver of a device of any role; ``None`` if it is not open here."""
        return self._devices.get(name)

    def polarizer(self, name: str) -> PolarizationController | PolarizationOptimizer:
        """Return what turns the polarization on the way of an input, whichever of the two kinds it is.

        Raises:
            ConfigError: There is none of this name, or it was not opened.
        """
        found = self.polarization.get(name) or self.polarization_optimizers.get(name)
        if found is None:
            raise ConfigError(
                "no such polarization controller is open", device=name, hint="Leave out 'only', or name it."
            )
        return found

    @property
    def emulated(self) -> EmulatedBench:
        """The emulated bench behind the links, to script its faults.

        Raises:
            ConfigError: This bench is real, or emulated by another process.
        """
        if self._emulated is None:
            elsewhere = " in this process" if self._emulated_there else ""
            raise ConfigError(f"bench {self.model.name} is not emulated{elsewhere}")
        return self._emulated

    @property
    def emulated_age_s(self) -> float | None:
        """Time since the emulated chip was as its seed draws it; ``None`` where nobody here knows."""
        return None if self._emulated is None else self._emulated.slow_drift.age_s

    @property
    def devices(self) -> Mapping[str, OpenDevice]:
        """All open devices by name, whatever their role."""
        return dict(self._devices)

    @property
    def is_emulated(self) -> bool:
        """Whether no hardware is behind the devices, be it in this process or where they are served."""
        return self._emulated is not None or self._emulated_there

    def __repr__(self) -> str:
        """Return one line."""
        how = "emulated" if self._emulated is not None else self._where
        return f"<Bench {self.model.name}, {how}: {', '.join(self._devices)}>"

    def _repr_html_(self) -> str:
        """Return the open devices as a table for a notebook."""
        from lumion_hw.files.html import html_table

        how = "emulated" if self.is_emulated else "real"
        rows = []
        for name in self._devices:
            device = self.model.devices[name]
            kind = kind_named(device.kind)
            rows.append((name, device.kind, kind.role.words if kind else "", device.address or device.inside or ""))
        return html_table(f"Bench {self.model.name}, {how}", ("device", "kind", "role", "address"), rows)

    def _with_role(self, role: Role) -> Named[Any]:
        """Return the open devices of a role; the names of all others say what they are."""
        kinds = {name: kind_named(device.kind) for name, device in self.model.devices.items()}
        of_role = {name for name, kind in kinds.items() if kind is not None and kind.role is role}
        found = {name: device for name, device in self._devices.items() if name in of_role}
        elsewhere = {
            name: "it was left out by 'only'" if name in of_role else f"that is a {device.kind}"
            for name, device in self.model.devices.items()
            if name not in found
        }
        return Named(role.words, found, elsewhere)

    def _open_all(self, link: Callable[[str, DeviceModel], Link | ModuleConnection | RemoteDevice]) -> None:
        """Open every device, on wires of their own side by side; if any fails, close the others and report all."""
        names = [name for name in self.model.devices if name in self._chosen]
        failures: dict[str, LumionError] = {}

        def open_one(name: str) -> None:
            device = self.model.devices[name]
            try:
                self._devices[name] = open_device(name, device, link(name, device), self.clock)
            except LumionError as error:
                failures[name] = error

        jobs = [(name, functools.partial(open_one, name)) for name in names]
        try:
            if self.clock.is_virtual:  # one after another: waiting costs nothing
                for _, job in jobs:
                    job()
            else:  # each wire must first be silent for some time
                self.run_parallel(jobs)
        except BaseException:
            self.close()
            raise
        self._devices = {name: self._devices[name] for name in names if name in self._devices}
        if failures:
            self.close()
            told = [failures[name] for name in names if name in failures]
            if len(told) == 1:
                raise told[0]
            raise ExceptionGroup(f"{len(told)} of {len(self.model.devices)} devices could not be opened", told)

    def _mesh_access(self) -> MeshAccess | None:
        """Put the mesh together from file and controller; ``None`` without one, or one open that takes currents."""
        section = self.model.mesh
        if section is None or section.controller not in self._devices:
            return None
        device = self.model.devices[section.controller]
        controller = self._devices[section.controller]
        if section.controller in self.mesh_states:
            return None
        if not isinstance(device, HeaterDriverModel):
            raise ConfigError(f"device {section.controller} is no mesh controller", device=section.controller)
        meters = None
        if device.photodiodes_a_per_w is not None:
            ports, responsivity_a_per_w = self.model.monitors(), device.photodiodes_a_per_w
        else:
            as_set = functools.partial(outputs_with_device_losses, self)
            meters = MeterMonitors(self.meters, self.wiring.outputs, section.typical.access_loss_db, as_set)
            ports, responsivity_a_per_w = meters.ports, meters.responsivity_a_per_w
        return MeshAccess(
            topology=self.model.topology(),
            controller=controller,  # type: ignore[arg-type]
            heater_channels=tuple(channel for pair in section.heater_table() for channel in pair),
            monitor_ports=ports,
            responsivity_a_per_w=responsivity_a_per_w,
            heater_max_ma=device.heater_max_ma,
            heater_ohm=device.heater_ohm,
            settle_s=SETTLE_S if section.settle_s is None else section.settle_s,
            settle_fixed=section.settle_s is not None,
            clock=self.clock,
            meters=meters,
            emulated_chip=None if self._emulated is None else self._emulated.chip_id,
        )

    def run_parallel(self, work: Sequence[tuple[str, Callable[[], T]]]) -> list[T]:
        """Do something with several devices at once: the whole takes as long as the slowest wire.

        Devices on one wire (slots of one mainframe, modules behind one adapter) are asked one after another.

        Args:
            work: Device name, and what to do with that device alone.

        Returns:
            What each returned, in the order given.

        Raises:
            LumionError: What failed first in the order given, others in its notes; all was tried.
        """
        wires: dict[str, list[int]] = {}
        for number, (name, _) in enumerate(work):
            wires.setdefault(self._wire_of(name), []).append(number)
        outcomes: dict[int, Future[T]] = {}

        def job(numbers: Sequence[int]) -> None:
            outcomes.update((number, run_to_future(work[number][1])) for number in numbers)

        self.clock.run_parallel([functools.partial(job, numbers) for numbers in wires.values()])
        return results_of([outcomes[number] for number in range(len(work))])

    def _wire_of(self, name: str) -> str:
        """Return what a device shares with those that cannot be asked at the same time."""
        device = self.model.devices[name]
        return device.inside or (device.address if device.address and not self.is_emulated else None) or name

    def close(self) -> None:
        """Switch the heaters off, unless they are to stay on, and release every device; idempotent, never raises.

        The mesh controller comes first: another device that does not answer keeps no heater on.
        """
        controller = "" if self.model.mesh is None else self.model.mesh.controller
        names = list(reversed(self._devices))
        names.sort(key=lambda name: name != controller)
        for name in names:
            self._devices[name].close()
        self._at_end()
        self.events.close()

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def dark(self) -> Iterator[None]:
        """Leave every transmitter and laser off at the end of a block, whatever happens in it."""
        try:
            yield
        finally:
            sources: list[Transponder | TunableLaser] = [*self.transponders.values(), *self.lasers.values()]
            for source in sources:
                with contextlib.suppress(LumionError):
                    source.disable()


def _lacking(controller: MeshController) -> list[str]:
    """Return what a controller cannot do that others can, for the log."""
    info = controller.info
    has = {
        "atomic latch": info.atomic,
        "watchdog": info.watchdog,
        "monitors": info.n_monitors > 0,
        "sweeps": info.on_board_sweep,
        "telemetry": info.telemetry,
    }
    return [what for what, there in has.items() if not there]


def _check_names(names: Collection[str], model: BenchModel, what: str) -> None:
    unknown = sorted(set(names) - set(model.devices))
    if unknown:
        raise ConfigError(
            f"{what} that the bench file does not have: {', '.join(unknown)}",
            hint=name_hint(unknown[0], model.devices, "It has"),
        )


def with_leave_on(model: BenchModel, leave_on_s: float | None) -> BenchModel:
    """Return a bench file whose heaters stay on for a time after its bench is closed.

    Args:
        model: The checked bench file.
        leave_on_s: Longest time, 0 to 3600 s; ``None`` leaves it to the file.

    Raises:
        ConfigError: There is no mesh, its controller takes no currents, or the time is out of range.
    """
    if leave_on_s is None:
        return model
    name = model.mesh_section.controller
    device = model.devices[name]
    if not isinstance(device, HeaterDriverModel):
        raise ConfigError("this controller takes no heater currents that could stay on", device=name)
    if not 0.0 <= leave_on_s <= MAX_LEAVE_ON_S:
        raise ConfigError(
            f"leave_on_s is {leave_on_s:g} s, expected 0 to {MAX_LEAVE_ON_S:g} s",
            device=name,
            hint="For longer let a program run that holds the circuits: `lumion hold`.",
        )
    return model.model_copy(
        update={"devices": {**model.devices, name: device.model_copy(update={"leave_on_s": leave_on_s})}}
    )


def load(path: str | Path) -> BenchModel:
    """Load a bench file, or a built-in bench by its name."""
    file = _read(path)
    return load_bench(file.path, text=file.text)


def _read(path: str | Path) -> BenchFile:
    """Read a bench file, or a built-in bench by its name, which precedes a file of the same name."""
    from lumion_hw.bench.file.loader import builtin_names

    return read_bench_file(builtin_path(path) if isinstance(path, str) and path in builtin_names() else path)
