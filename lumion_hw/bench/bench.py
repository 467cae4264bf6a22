"""An open bench: the drivers of the devices in a bench file, on hardware or emulated."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from lumion_hw.bench.absent_module import AbsentModule
from lumion_hw.bench.events import EventLog
from lumion_hw.bench.fibre_devices import outputs_with_device_losses
from lumion_hw.bench.fibre_ends import FibreEnd
from lumion_hw.bench.file.devices import DeviceModel, HeaterDriverModel, is_several
from lumion_hw.bench.file.known_kinds import kind_named
from lumion_hw.bench.file.loader import BenchFile, builtin_path, load_bench, read_bench_file
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.bench.file.module_connection import ModuleConnection, PluggableModel
from lumion_hw.bench.file.roles import Role
from lumion_hw.bench.mesh_access import SETTLE_S, MeshAccess
from lumion_hw.bench.meter_monitors import MeterMonitors
from lumion_hw.bench.named import NamedDevices
from lumion_hw.bench.opening import link_to, open_device
from lumion_hw.clock import Clock, SystemClock, VirtualClock, results_of, run_to_future
from lumion_hw.errors import ConfigError, LinkError, LumionError, name_hint
from lumion_hw.interfaces import (
    LanedTransponder,
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
from lumion_hw.interfaces.wiring import NO_ENDS, FibreEnds
from lumion_hw.links.base import Link
from lumion_hw.remote.emulated_faults import CONTROL, EmulatedFaults, FaultPortClient
from lumion_hw.remote.proxies import RemoteDevice

if TYPE_CHECKING:
    from lumion_hw.drivers.mesh.combined import CombinedController
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.interfaces.open_device import OpenDevice

BUILTIN = "lumion-prototype"
MAX_LEAVE_ON_S = 3600.0
"""Longest time in seconds that a LUMION mesh controller keeps its outputs on after a watchdog trip (docs/protocol.md,
7.1).
"""
_ADD_TO_ONLY = "Add it to 'only', or leave out 'only'."
T = TypeVar("T")


class Bench:
    """The open devices of a bench file, as a context manager. Closing the bench switches the heaters off.

    With ``leave_on_s``, in the bench file or as an argument of :meth:`open`, the heaters stay on for at most that time
    after closing.

    Args:
        model: The checked bench file.
        link: Returns the connection to the device of a given name.
        emulated: The emulated bench, if the bench is emulated in this process.
        only: Names of the devices to open; by default all.
        where: Location of the devices, shown to the user.
        on_close: Called after the devices are closed.
        is_emulated_remotely: Whether the devices are emulated in another process.
        allow_absent_modules: As for :meth:`open`.
        faults: Scripted faults of devices that are emulated in another process.
        file: The file that ``model`` comes from, if any.
        ends: Ports with fibres to other meshes.

    Attributes:
        file: Content of the bench file when the bench was opened; ``None`` for a served bench.
        wiring: The optical paths between modules, lasers and mesh, and of the fibres to other meshes.
        fibre_ends: Stand-ins for the modules behind these fibres, by the names of the ports.
        mesh_states: Meshes that are controlled by the states of their cells instead of heater currents, by device name.
        lasers: Tunable lasers by device name; opening and closing do not change their outputs.
        polarization_optimizers: Instruments that optimize the polarization autonomously, by device name.
        attenuators: Variable attenuators by device name; opening and closing do not change them.
        switches: Optical switches by device name; opening and closing do not change their connections.
        amplifiers: Optical amplifiers by device name; opening and closing do not change their outputs.
        temperature_controllers: Temperature controllers by device name; opening and closing do not change them.
    """

    def __init__(
        self,
        model: BenchModel,
        link: Callable[[str, DeviceModel], Link | ModuleConnection | RemoteDevice],
        clock: Clock,
        emulated: EmulatedBench | None = None,
        only: Collection[str] | None = None,
        where: str = "real",
        on_close: Callable[[], None] = lambda: None,
        is_emulated_remotely: bool = False,
        faults: EmulatedFaults | None = None,
        file: BenchFile | None = None,
        on_progress: Callable[[str, str, int, int, str, Mapping[str, Any] | None], None] = lambda *_: None,
        ends: FibreEnds = NO_ENDS,
        allow_absent_modules: bool = False,
    ) -> None:
        self.model, self.file = model, file
        self._allow_absent_modules = allow_absent_modules
        self._where, self._on_close, self._on_progress = where, on_close, on_progress
        self._names_to_open = model.devices.keys() if only is None else set(only)
        _check_names(self._names_to_open, model, "devices")
        # A lane needs its module, and modules are opened with all their lanes.
        modules = {getattr(model.devices[name], "lane_of", None) or name for name in self._names_to_open}
        of_modules = {name for name, device in model.devices.items() if getattr(device, "lane_of", None) in modules}
        self._names_to_open = _with_parts(modules | of_modules, model)
        self.clock = clock
        self.wiring = ends.added_to(model.to_wiring())
        self.fibre_ends: Mapping[str, FibreEnd] = {name: FibreEnd(name, clock) for name in ends.names}
        self.events = EventLog(clock)
        self._emulated, self._is_emulated_remotely, self._faults = emulated, is_emulated_remotely, faults
        self._devices: dict[str, OpenDevice] = {}
        self._open_all(link)
        self.meters: NamedDevices[PowerMeter] = self._with_role(Role.METER)
        self.lasers: NamedDevices[TunableLaser] = self._with_role(Role.LASER)
        self.transponders: NamedDevices[Transponder] = self._with_role(Role.TRANSPONDER)
        self.polarization: NamedDevices[PolarizationController] = self._with_role(Role.POLARIZATION)
        self.polarization_optimizers: NamedDevices[PolarizationOptimizer] = self._with_role(Role.POLARIZATION_OPTIMIZER)
        self.polarimeters: NamedDevices[Polarimeter] = self._with_role(Role.POLARIMETER)
        self.attenuators: NamedDevices[VariableAttenuator] = self._with_role(Role.ATTENUATOR)
        self.switches: NamedDevices[OpticalSwitch] = self._with_role(Role.SWITCH)
        self.amplifiers: NamedDevices[OpticalAmplifier] = self._with_role(Role.AMPLIFIER)
        self.spectrum_analyzers: NamedDevices[SpectrumAnalyzer] = self._with_role(Role.SPECTRUM_ANALYZER)
        self.temperature_controllers: NamedDevices[TemperatureController] = self._with_role(Role.TEMPERATURE)
        self.mesh_states: NamedDevices[MeshStates] = self._with_role(Role.MESH_STATES)
        try:
            self._mesh = self._mesh_access()
        except BaseException:
            self.close()
            raise
        self.events.add("opened", bench=model.name, devices=len(self._devices), emulated=self.is_emulated)
        missing = [] if self._mesh is None else _missing_features(self._mesh.controller)
        if missing:
            self.events.add("controller lacks", controller=model.mesh_section.controller, what=", ".join(missing))

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        addresses: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        only: Collection[str] | None = None,
        leave_on_s: float | None = None,
        ends: FibreEnds = NO_ENDS,
        allow_absent_modules: bool = False,
    ) -> Bench:
        """Open the devices of a bench file.

        Args:
            path: Path of a bench file, or the name of a built-in bench.
            addresses: Addresses by device name that replace those in the file, such as the endpoints file of
                ``lumion emulate``.
            clock: Clock of all devices; by default the wall clock.
            only: Names of the devices to open; by default all. Other programs may use the others.
            leave_on_s: Longest time in seconds that heaters stay on after closing, at most 3600; by default as in the
                bench file. A controller without a watchdog keeps them on until they are switched off.
            ends: Ports with fibres to other meshes.
            allow_absent_modules: Whether to open the bench although pluggable modules do not answer, as those of a
                server without power. Each use of such a module tries to open it again.

        Raises:
            ConfigError: The file is invalid, a device has no address or does not exist, or another device answered.
            ExceptionGroup: Several devices could not be opened.
        """
        file = _read(path)
        model, wall = with_leave_on(load_bench(file.path, text=file.text), leave_on_s), clock or SystemClock()
        overrides = dict(addresses or {})
        control = overrides.pop(CONTROL, None)
        faults = None if control is None else EmulatedFaults(FaultPortClient(control))
        _check_names(overrides, model, "addresses for devices")
        addressed = _addresses(model, overrides, only)

        def link(name: str, device: DeviceModel) -> Link | ModuleConnection:
            return link_to(device, addressed[name], wall)

        return cls(
            model,
            link,
            wall,
            only=only,
            file=file,
            faults=faults,
            ends=ends,
            allow_absent_modules=allow_absent_modules,
        )

    @classmethod
    def emulate(
        cls,
        path: str | Path = BUILTIN,
        *,
        seed: int = 0,
        clock: Clock | None = None,
        only: Collection[str] | None = None,
        aged_s: float = 0.0,
        ends: FibreEnds = NO_ENDS,
    ) -> Bench:
        """Open an emulated bench, with the same drivers and bytes on the wire as a real bench.

        Args:
            path: Path of a bench file, or the name of a built-in bench.
            seed: Random seed; the same seed gives the same bench and the same readings.
            clock: Clock of all devices; by default a virtual clock.
            only: As for :meth:`open`.
            aged_s: Age of the emulated chip in seconds; used only if 'emulation' in the bench file enables drift.
            ends: Ports with fibres to other meshes.
        """
        from lumion_hw.bench.emulated import emulated_bench

        file = _read(path)
        model = load_bench(file.path, text=file.text)
        virtual = clock or VirtualClock()
        emulated = emulated_bench(model, virtual, seed, aged_s=aged_s, ends=ends)
        return cls(model, lambda name, _device: emulated.link(name), virtual, emulated, only, file=file, ends=ends)

    @classmethod
    def attach(cls, address: str, *, only: Collection[str] | None = None, take_over: str | None = None) -> Bench:
        """Use the devices of a bench that another process serves, on this host or another one.

        The devices have the same interfaces and errors as on a local bench. The first call that changes something takes
        the lease (the exclusive right to change settings); closing returns it. Timestamps are from the clock of the
        server.

        Args:
            address: ``pva://host:port``, as printed by ``lumion serve --pva``.
            only: As for :meth:`open`.
            take_over: Name of the client from which this program takes the lease, as given in the error of a refused
                call.

        Raises:
            ConfigError: The address is invalid, p4p is not installed, or the server has another version.
            ConnectError: No bench is served at this address.
        """
        from lumion_hw.remote.client import PvaConnection
        from lumion_hw.remote.proxies import device_proxy

        connection = PvaConnection(address, take_over=take_over)
        try:
            description = connection.describe()
            model = BenchModel.model_validate_json(description["model"])
            devices, clock = description["devices"], connection.clock()
        except BaseException:
            connection.close()
            raise

        def device(name: str, _model: DeviceModel) -> RemoteDevice:
            interface, properties = devices[name]
            return device_proxy(interface, name, connection, properties)

        names = devices if only is None else only
        return cls(
            model,
            device,
            clock,
            only=names,
            where=f"served at {address}",
            on_close=connection.close,
            is_emulated_remotely=bool(description["emulated"]),
            on_progress=connection.report_progress,
            faults=connection.emulated_faults(),
        )

    @property
    def mesh(self) -> MeshAccess:
        """The mesh of this bench and its controller.

        Raises:
            ConfigError: The bench has no mesh, its controller was not opened, or the mesh is controlled by cell states
                instead of heater currents.
        """
        name = self.model.mesh_section.controller
        if name not in self._devices:
            raise ConfigError("the mesh controller was not opened", device=name, hint=_ADD_TO_ONLY)
        if self._mesh is None:
            raise ConfigError(
                f"the mesh of bench {self.model.name} is controlled by cell states, not by heater currents, so it "
                "supports neither calibration nor circuits.",
                device=name,
                hint=f"Set states with bench.mesh_states[{name!r}].program_states().",
            )
        return self._mesh

    def report_progress(
        self,
        kind: str,
        stage: str,
        done: int,
        total: int,
        error: str = "",
        curve: Mapping[str, Any] | None = None,
    ) -> None:
        """Report the progress of a task to the process that serves this bench; on a local bench this has no effect.

        Args:
            kind: Kind of the task, such as ``scan``.
            stage: Description of the present stage.
            done: Number of completed steps.
            total: Number of steps; the task ends with the last one.
            error: Reason why the task ended early; empty while it runs.
            curve: Readings so far, which the page of the server draws: ``setting`` with ``setting_unit`` and its values
                ``x``, and ``readings`` (values by name; ``None`` without a number) with their ``unit``.
        """
        self._on_progress(kind, stage, done, total, error, curve)

    def circuit_module(self, name: str) -> Transponder:
        """Return the module at an end of a circuit, or its stand-in for a fibre to another mesh.

        Raises:
            UnknownNameError: There is neither.
        """
        return self.fibre_ends.get(name) or self.transponders[name]

    def opened(self, name: str) -> OpenDevice | None:
        """Return the driver of a device, or ``None`` if the device is not open."""
        return self._devices.get(name)

    def polarizer(self, name: str) -> PolarizationController | PolarizationOptimizer:
        """Return the polarization controller or optimizer of this name.

        Raises:
            ConfigError: No such device exists, or it was not opened.
        """
        device = self.polarization.get(name) or self.polarization_optimizers.get(name)
        if device is None:
            raise ConfigError("this polarization controller is not open", device=name, hint=_ADD_TO_ONLY)
        return device

    @property
    def emulated(self) -> EmulatedBench:
        """The emulated devices behind the drivers, on which faults can be scripted.

        Raises:
            ConfigError: This bench is real, or is emulated in another process.
        """
        if self._emulated is None:
            process_text = " in this process" if self._is_emulated_remotely else ""
            raise ConfigError(f"bench {self.model.name} is not emulated{process_text}")
        return self._emulated

    @property
    def emulated_faults(self) -> EmulatedFaults:
        """Scripted faults of an emulated bench, in this process or another one, with the names of docs/faults.md.

        Raises:
            ConfigError: This bench is real, or its addresses are not those of the endpoints file of ``lumion emulate``.
        """
        if self._faults is None:
            if self._emulated is None:
                raise no_faults(self.model.name)
            from lumion_hw.emulator.faults.fault_control import FaultControl

            self._faults = EmulatedFaults(FaultControl(self._emulated.faults).perform)
        return self._faults

    @property
    def emulated_age_s(self) -> float | None:
        """Age of the emulated chip in seconds; ``None`` if the bench is not emulated in this process."""
        return None if self._emulated is None else self._emulated.slow_drift.age_s

    @property
    def devices(self) -> Mapping[str, OpenDevice]:
        """All open devices by name."""
        return dict(self._devices)

    @property
    def is_emulated(self) -> bool:
        """Whether the devices are emulated, in this process or on the server."""
        return self._emulated is not None or self._is_emulated_remotely

    def __repr__(self) -> str:
        location = "emulated" if self._emulated is not None else self._where
        return f"<Bench {self.model.name}, {location}: {', '.join(self._devices)}>"

    def _repr_html_(self) -> str:
        from lumion_hw.files.html import html_table

        reality = "emulated" if self.is_emulated else "real"
        rows = []
        for name in self._devices:
            device = self.model.devices[name]
            kind = kind_named(device.kind)
            rows.append((name, device.kind, kind.role.label if kind else "", device.address or device.container or ""))
        return html_table(f"Bench {self.model.name}, {reality}", ("device", "kind", "role", "address"), rows)

    def _with_role(self, role: Role) -> NamedDevices[Any]:
        kinds = {name: kind_named(device.kind) for name, device in self.model.devices.items()}
        of_role = {name for name, kind in kinds.items() if kind is not None and kind.role is role}
        devices = {name: device for name, device in self._devices.items() if name in of_role}
        reasons = {
            name: "it was left out by 'only'" if name in of_role else f"it is a {device.kind}"
            for name, device in self.model.devices.items()
            if name not in devices
        }
        return NamedDevices(role.label, devices, reasons)

    def _open_all(self, link: Callable[[str, DeviceModel], Link | ModuleConnection | RemoteDevice]) -> None:
        """Open all devices. If one fails, close the others and raise all errors."""
        names = [name for name in self.model.devices if name in self._names_to_open]
        lanes = [name for name in names if getattr(self.model.devices[name], "lane_of", None) is not None]
        combined = [name for name in names if is_several(self.model.devices[name])]
        failures: dict[str, LumionError] = {}

        def try_to_open(name: str) -> None:
            device = self.model.devices[name]
            module = self._devices.get(device.container or "")
            try:
                if name in lanes and isinstance(module, AbsentModule):
                    self._devices[name] = module.media_lane_later(getattr(device, "media_lane", 1))
                elif name in lanes and isinstance(module, LanedTransponder):
                    self._devices[name] = module.media_lane(getattr(device, "media_lane", 1))
                elif name in combined and not isinstance(
                    self._devices[self.model.mesh_section.drivers[0]], RemoteDevice
                ):
                    self._devices[name] = self._combined_controller(name)
                else:
                    self._devices[name] = open_device(name, device, link(name, device), self.clock)
            except LumionError as error:
                may_be_absent = self._allow_absent_modules and isinstance(device, PluggableModel)
                if may_be_absent and isinstance(error, LinkError):
                    self._devices[name] = absent_module(name, error)
                else:
                    failures[name] = error

        def absent_module(name: str, error: LinkError) -> AbsentModule:
            device = self.model.devices[name]
            self.events.add("module absent", device=name, reason=error.message)
            return AbsentModule(
                lambda: cast("Transponder", open_device(name, device, link(name, device), self.clock)),
                error,
                self.clock,
            )

        jobs = [(name, functools.partial(try_to_open, name)) for name in names if name not in (*lanes, *combined)]
        try:
            if self.clock.is_virtual:  # one after another: waiting costs nothing
                for _, job in jobs:
                    job()
            else:  # each wire must first be silent for some time
                self.run_parallel(jobs)
            for name in (*lanes, *combined):
                # A module that failed is reported once, not for each of its lanes.
                device = self.model.devices[name]
                if not {device.container, *(getattr(device, "parts", None) or ())} & set(failures):
                    try_to_open(name)
        except BaseException:
            self.close()
            raise
        self._devices = {name: self._devices[name] for name in names if name in self._devices}
        if failures:
            self.close()
            errors = [failures[name] for name in names if name in failures]
            if len(errors) == 1:
                raise errors[0]
            count = sum(not is_several(device) for device in self.model.devices.values())
            raise ExceptionGroup(f"{len(errors)} of {count} devices could not be opened", errors)

    def _combined_controller(self, name: str) -> CombinedController:
        from lumion_hw.drivers.mesh.combined import CombinedController

        parts: dict[str, Any] = {part: self._devices[part] for part in self.model.mesh_section.drivers}
        limits = [
            device.limits(parts[part].info.n_heaters, getattr(device, "watchdog_s", 0.0))
            for part in parts
            if isinstance(device := self.model.devices[part], HeaterDriverModel)
        ]
        return CombinedController(parts, limits, self.clock, device=name)

    def _mesh_access(self) -> MeshAccess | None:
        section = self.model.mesh
        if section is None or section.controller not in self._devices:
            return None
        device = self.model.devices[section.controller]
        controller = self._devices[section.controller]
        if section.controller in self.mesh_states:
            return None
        if not isinstance(device, HeaterDriverModel):
            raise ConfigError("mesh.controller is not a mesh controller", device=section.controller)
        meters = None
        if device.photodiodes_a_per_w is not None:
            ports, responsivity_a_per_w = self.model.monitors(), device.photodiodes_a_per_w
        else:
            add_losses = functools.partial(outputs_with_device_losses, self)
            meters = MeterMonitors(self.meters, self.wiring.outputs, section.typical.access_loss_db, add_losses)
            ports, responsivity_a_per_w = meters.ports, meters.responsivity_a_per_w
        return MeshAccess(
            topology=self.model.topology(),
            controller=controller,  # type: ignore[arg-type]
            heater_channels=section.channels(),
            monitor_ports=ports,
            responsivity_a_per_w=responsivity_a_per_w,
            heater_max_ma=device.heater_max_ma,
            heater_ohm=device.heater_ohm,
            settle_s=SETTLE_S if section.settle_s is None else section.settle_s,
            settle_fixed=section.settle_s is not None,
            clock=self.clock,
            meters=meters,
            emulated_chip=None if self._emulated is None else self._emulated.chip_id,
            shares=getattr(controller, "heater_shares", ()) if section.controllers else (),
        )

    def run_parallel(self, work: Sequence[tuple[str, Callable[[], T]]]) -> list[T]:
        """Run functions on several devices, in parallel where the devices have separate wires.

        Args:
            work: Pairs of a device name and a function that uses only this device.

        Raises:
            LumionError: The first error in the order of ``work``, with the other errors in its notes. All functions
                were run.
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
        """Return the name of the wire of a device: its mainframe, its address, or the device name."""
        device = self.model.devices.get(name)
        if device is None:  # the end of a fibre to another mesh has no wire
            return name
        section = self.model.mesh
        if section is not None and section.controllers and section.is_driven_by(name):
            return section.controller
        return device.container or (device.address if device.address and not self.is_emulated else None) or name

    def close(self) -> None:
        """Switch the heaters off (unless ``leave_on_s`` is set) and close every device.

        Never raises; may be called twice.
        """
        controller = "" if self.model.mesh is None else self.model.mesh.controller
        names = list(reversed(self._devices))
        names.sort(key=lambda name: name != controller)
        for name in names:
            self._devices[name].close()
        self._on_close()
        self.events.close()

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def dark(self) -> Iterator[None]:
        """Switch all transmitters and lasers off at the end of the ``with`` block, even after an error."""
        try:
            yield
        finally:
            sources: list[Transponder | TunableLaser] = [*self.transponders.values(), *self.lasers.values()]
            for source in sources:
                with contextlib.suppress(LumionError):
                    source.disable()


def no_faults(bench: str) -> ConfigError:
    """Return the error for injecting a fault into a real bench."""
    return ConfigError(
        f"bench {bench} is not emulated, so no fault can be injected",
        hint="For a running emulation give --endpoints with the file that `lumion emulate` wrote, or --served with the "
        "address that `lumion serve --emulate --pva` printed. "
        "`lumion faults` lists and clears the latched faults of the mesh controller.",
    )


def _missing_features(controller: MeshController) -> list[str]:
    info = controller.info
    features = {
        "atomic latch": info.atomic,
        "watchdog": info.watchdog,
        "monitors": info.n_monitors > 0,
        "sweeps": info.on_board_sweep,
        "telemetry": info.telemetry,
    }
    return [feature for feature, is_present in features.items() if not is_present]


def _addresses(model: BenchModel, overrides: Mapping[str, str], only: Collection[str] | None) -> dict[str, str]:
    """Return the addresses of the devices to open. Raises ``ConfigError`` with the names of those without an address.

    A device in a mainframe or in a module has the address of its container.
    """
    addresses = {name: device.address for name, device in model.devices.items()} | dict(overrides)
    found = {name: addresses[name] or addresses.get(device.container or "") for name, device in model.devices.items()}
    wanted = model.devices.keys() if only is None else _with_parts(only, model)
    without = [name for name, device in model.devices.items() if found[name] is None and not is_several(device)]
    missing = [name for name in without if name in wanted]
    if missing:
        raise ConfigError(
            f"the bench file has no address for {', '.join(missing)}",
            hint="Add 'address: ...' to each. For a bench that another program emulates, give the endpoints file that "
            "`lumion emulate` writes.",
        )
    return {name: address for name, address in found.items() if address is not None}


def _with_parts(names: Collection[str], model: BenchModel) -> set[str]:
    """Return names of devices, with those of the controllers that are opened together under one of the names."""
    return {*names, *(part for name in names for part in getattr(model.devices.get(name), "parts", None) or ())}


def _check_names(names: Collection[str], model: BenchModel, section: str) -> None:
    unknown = sorted(set(names) - set(model.devices))
    if unknown:
        raise ConfigError(
            f"found {section} that are not in the bench file: {', '.join(unknown)}",
            hint=name_hint(unknown[0], model.devices, "It has"),
        )


def with_leave_on(model: BenchModel, leave_on_s: float | None) -> BenchModel:
    """Return the model of a bench file with another ``leave_on_s``.

    Args:
        model: The checked bench file.
        leave_on_s: Longest time that heaters stay on after closing, 0 to 3600 s; ``None`` keeps the value of the file.

    Raises:
        ConfigError: The bench has no mesh, its controller drives no heater currents, or the time is out of range.
    """
    if leave_on_s is None:
        return model
    name = model.mesh_section.controller
    device = model.devices[name]
    if not isinstance(device, HeaterDriverModel):
        raise ConfigError("this controller drives no heater currents, so leave_on_s does not apply", device=name)
    if not 0.0 <= leave_on_s <= MAX_LEAVE_ON_S:
        raise ConfigError(
            f"leave_on_s is {leave_on_s:g} s, expected 0 to {MAX_LEAVE_ON_S:g} s",
            device=name,
            hint="To keep circuits longer, run `lumion hold`.",
        )
    held = {
        own: model.devices[own].model_copy(update={"leave_on_s": leave_on_s})
        for own in {name, *model.mesh_section.drivers}
    }
    return model.model_copy(update={"devices": {**model.devices, **held}})


def load(path: str | Path) -> BenchModel:
    """Load and check a bench file, or a built-in bench by its name."""
    file = _read(path)
    return load_bench(file.path, text=file.text)


def _read(path: str | Path) -> BenchFile:
    from lumion_hw.bench.file.loader import builtin_names

    return read_bench_file(builtin_path(path) if isinstance(path, str) and path in builtin_names() else path)
