"""What a driver does with data paths: those of the whole module, those on one media lane, or one."""

from __future__ import annotations

from collections.abc import Collection

from lumion_hw.drivers.transponders.cmis import data_paths as dp, light, monitors, power, tuning
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.data_paths import ALL_LANES, DataPath
from lumion_hw.drivers.transponders.cmis.lock import LockWatch
from lumion_hw.drivers.transponders.cmis.performance import LiveLanes, ReadLanes
from lumion_hw.drivers.transponders.cmis.scope import Scope
from lumion_hw.drivers.transponders.cmis.shared import SharedModule
from lumion_hw.errors import ConfigError, DeviceError, NotSupportedError
from lumion_hw.interfaces import (
    LockReport,
    Monitors,
    Performance,
    Quality,
    Reading,
    SignalStatus,
    StickyFlag,
    TransponderCapabilities,
    TransponderIdentity,
    TransponderSettings,
    TuningResult,
)
from lumion_hw.standards.cmis import FIELDS, flag_bytes
from lumion_hw.standards.cmis.codes import DataPathState, ModuleState
from lumion_hw.standards.cmis.lane_pages import HOST
from lumion_hw.standards.cmis.vdm import MODULE_RESOURCE

_COHERENT_FLAGS = 0x33
_FLAG_PAGES = (None, 0x11, 0x12, 0x14, 0x2C, _COHERENT_FLAGS)


class PathDriver:
    """Driver of data paths of one module; implements ``CoherentTransponder`` but for opening and closing.

    Args:
        shared: The module.
        scope: The data paths.
    """

    def __init__(self, shared: SharedModule, scope: Scope) -> None:
        self._shared = shared
        self._scope = scope

    # -- who and what it is

    def identify(self) -> TransponderIdentity:
        """Read the identity anew and compare it with the one that was opened. Raises ``IdentityError``."""
        module = self._opened
        module.guard()
        return module.identity

    def can_switch(self) -> bool:
        """Return whether the transmitter can be switched: not with a flat memory, as cables have."""
        return not self._opened.advertised.flat

    def capabilities(self) -> TransponderCapabilities:
        """Return what the module says of itself."""
        parts = self._shared.parts()
        module = parts.context
        module.memory.number("cmis_revision")  # a module that is gone has no capabilities
        performance = parts.performance.units(self._read_lanes(module))
        return module.advertised.capabilities(parts.vdm.has_statistics, parts.diagnostics.loopbacks, performance)

    # -- what is read, and changes nothing but flags

    def settings(self) -> TransponderSettings:
        """Read how the module is set. Raises ``NotSupportedError`` for a flat memory, which has no settings."""
        module = self._opened
        module.needs(not module.advertised.flat, "settings")
        memory = module.memory
        with memory.pages.transaction():
            lane = self._scope.media_lane_of(module)
            configured = tuning.configured_mhz(module, lane) if module.advertised.tunable else None
            power_dbm = None
            if module.advertised.tx_power_limits_dbm is not None:
                power_dbm = memory.value("target_output_power", lane)
            paths = self._scope.paths(module)
            return TransponderSettings(
                powered=memory.number("module_state") == ModuleState.READY,
                enabled=bool(dp.lanes_on(module, paths)),
                applications={path.first_lane: path.application for path in paths},
                frequency_thz=None if configured is None else configured / 1e6,
                tx_power_dbm=float(power_dbm) if isinstance(power_dbm, (int, float)) else None,
            )

    def laser(self) -> dict[str, Reading]:
        """Read configured and current frequency and the configured power: they differ while a request is refused."""
        module = self._opened
        module.needs(module.advertised.tunable, "tuning")
        memory, lane = module.memory, self._scope.media_lane_of(module)
        configured = tuning.configured_mhz(module, lane)
        current = memory.number("current_frequency", lane)
        in_order = configured is not None and abs(configured - current) <= tuning.TOLERANCE_MHZ
        quality = Quality.OK if in_order else Quality.INCONSISTENT
        found = {
            "configured_frequency": Reading(
                None if configured is None else configured / 1e6, "THz", quality, "12h:136"
            ),
            "current_frequency": Reading(current / 1e6, "THz", quality, "12h:168"),
        }
        if module.advertised.tx_power_limits_dbm is not None:
            power_dbm = memory.value("target_output_power", lane)
            number = float(power_dbm) if isinstance(power_dbm, (int, float)) else None
            found["target_output_power"] = Reading(number, "dBm", Quality.OK, "12h:200")
        return found

    def monitors(self) -> Monitors:
        """Read the module's monitors, powers and bias of the first media lane; :meth:`lane_readings` has all lanes.

        Raises:
            NotSupportedError: The module has none.
        """
        parts = self._shared.parts()
        parts.context.needs(not parts.context.advertised.flat, "reading monitors")
        return monitors.monitors(parts.context, parts.vdm, self._scope.media_lane_of(parts.context))

    def lane_readings(self, lane: int | None = None) -> dict[str, Reading]:
        """Read the monitors of a media lane, by name; of the first one if none is named."""
        module = self._opened
        module.needs(not module.advertised.flat, "reading lane monitors")
        return monitors.lane_readings(module, self._scope.media_lane_of(module) if lane is None else lane)

    def status(self) -> SignalStatus:
        """Read the live status: loss of signal and faults of any media lane count, and so does a lane that is on."""
        module = self._opened
        module.needs(not module.advertised.flat, "reading lane status")
        with module.memory.pages.transaction():
            paths = self._scope.paths(module)
            return monitors.status(module, paths, self._scope.media_lane_of(module))

    def performance(self) -> Performance:
        """End an interval of the module's statistics and return what it measured, cross-checked between its pages.

        The interval is the module's: it ends for all data paths.

        Raises:
            NotSupportedError: The module measures no link performance.
        """
        with self._shared.operation() as module:
            states = dp.states(module)
            active = [path for path in self._scope.paths(module) if states[path.first_lane] == DataPathState.ACTIVATED]
            lit = {lane for path in active for lane in path.media_lanes}
            live = module.flags.live(monitors.LANE_STATUS_PAGE)
            locked = {lane for lane in lit if not {("rx_los", lane), ("rx_lol", lane)} & live}
            lanes = LiveLanes(lit, dp.host_lanes(active), locked)
            return self._shared.parts().performance.read(self._read_lanes(module), lanes)

    def wait_for_lock(self, timeout_s: float) -> LockReport:
        """Wait until the link is up, at most ``timeout_s`` from now, and report what held it up.

        A module is up when all its data paths are. It ends early at what waiting does not change: absent, fault,
        refused configuration or tuning.

        Raises:
            ConnectError: The module is not open.
            NotSupportedError: A flat memory has no link state.
        """
        parts = self._shared.parts()
        # No operation of its own: while one thread waits for light, another may tune or switch off.
        return LockWatch(parts.context, parts.vdm, self._scope).wait(timeout_s)

    def lock_state(self) -> LockReport:
        """Look once whether the link is up."""
        return self.wait_for_lock(0.0)

    def flags(self) -> tuple[StickyFlag, ...]:
        """Read all flags, which clears them in the module, and return all seen since :meth:`clear_flags`."""
        module = self._opened
        for page in _FLAG_PAGES:
            if self._flag_page_exists(module, page):
                module.flags.read(page)
        return module.flags.all()

    def clear_flags(self) -> None:
        """Forget the flags seen so far; one whose cause lasts comes back at the next read."""
        self._opened.flags.clear()

    # -- what changes the module

    def power_up(self) -> None:
        """Bring the module out of low power: clear both requests, and wait until it is ready. It stays dark.

        Raises:
            DeviceTimeoutError: It is not ready within 1.5 times the advertised time.
            DeviceError: It went into its fault state.
        """
        with self._shared.operation() as module:
            power.power_up(module, self._shared.pins)

    def select_application(self, number: int, first_lane: int | None = None, *, check: bool = True) -> None:
        """Run an application from a host lane on; the transmitter is off and the lanes are down afterwards.

        Data paths on other lanes are left alone.

        Args:
            number: AppSel code.
            first_lane: First host lane, from 1; by default that of this path, or the first one that is offered.
            check: Refuse here what the module does not advertise; otherwise let the module refuse it.

        Raises:
            ConfigError: The module does not offer it there.
            ConfigRejectedError: The module refused it; lane and code say why.
            DeviceTimeoutError: A stage took too long.
        """
        with self._shared.operation() as module:
            start = self._scope.first_lane_of(module, number, first_lane)
            dp.select_application(module, number, start, check=check)

    def enable(self) -> None:
        """Switch the transmitters of the data paths on, and wait until every one of their media lanes launches light.

        The steps are done in their order: power up, initialise, switch on.

        Raises:
            DeviceError: No application is selected, or the module reports a fault.
            DeviceTimeoutError: A stage took longer than 1.5 times what the module advertises, or a lane stays dark.
        """
        with self._shared.operation() as module:
            module.guard()
            if module.state() != ModuleState.READY:
                power.power_up(module, self._shared.pins)
            paths = self._scope.paths(module)
            if not paths:
                raise module.error(
                    DeviceError,
                    f"no application is selected{self._scope.words()}",
                    "Call select_application() first.",
                )
            dp.await_steady(module, dp.host_lanes(paths))
            # Before the first step: what Ctrl-C leaves half switched on is switched off with the block.
            self._shared.lit |= {path.first_lane for path in paths}
            states = dp.states(module)
            if any(states[lane] != DataPathState.ACTIVATED for lane in dp.host_lanes(paths)):
                dp.initialise(module, paths)
            dp.switch_on(module, paths)
            light.await_light(module, self._shared.parts().vdm, _media_lanes(paths))

    def disable(self) -> None:
        """Switch the transmitters off and verify that every media lane is dark; the data paths stay initialised.

        The driver of a whole module also looks at the lanes that no data path uses.

        Raises:
            DeviceError: Another data path that is on sends on the same media lane.
            VerifyError: The module still reports power on a lane.
            DeviceTimeoutError: The data paths did not leave their active state.
        """
        with self._shared.operation() as module:
            module.needs(not module.advertised.flat, "switching the transmitter")
            module.guard()
            in_use = dp.data_paths(module)
            self.switch_off(module, [path for path in in_use if self._scope.has(path)], in_use)

    def switch_off(self, module: ModuleContext, paths: Collection[DataPath], in_use: Collection[DataPath]) -> None:
        """Switch off some of the data paths in use and verify that they are dark. Raises as :meth:`disable`."""
        others = dp.lanes_sent_on(module, [path for path in in_use if path not in paths])
        lanes = _media_lanes(paths)
        if self._scope.is_module and len(paths) == len(in_use):
            lanes = frozenset({*lanes, *module.advertised.media_lanes})
        for lane in sorted(lanes & others.keys()):
            raise module.error(
                DeviceError,
                f"media lane {lane} also carries the data path from host lane {others[lane].first_lane}",
                "Switch off the whole module, or the other data path first.",
            )
        if module.state() == ModuleState.READY:
            dp.switch_off(module, paths, lanes)
            light.check_dark(module, self._shared.parts().vdm, lanes)
        # No data path is up that could be watched; the request holds when another program powers the module up.
        elif module.advertised.supported("tx_disable"):
            module.memory.set_lanes("tx_disable", ALL_LANES if self._scope.is_module else lanes, True)
        self._shared.lit -= {path.first_lane for path in paths}

    def tune(self, frequency_thz: float, grid_ghz: float | None = None) -> TuningResult:
        """Tune the laser to any frequency that the module can make, and verify it.

        The frequency is rounded to MHz, in which modules report it. A data path that is up is taken down for it and
        brought up again.

        Args:
            frequency_thz: Frequency.
            grid_ghz: Use only the grid of this spacing.

        Raises:
            LimitError: The module cannot make this frequency; the nearest ones are named, nothing was changed.
            DeviceError: The module refused it; the flags say why, and the data path is left down.
            DeviceTimeoutError: The laser did not settle.
        """
        with self._shared.operation() as module:
            return tuning.tune(module, frequency_thz, grid_ghz, self._scope.media_lane_of(module))

    def set_tx_power_dbm(self, power_dbm: float) -> None:
        """Set the output power.

        Raises:
            LimitError: Outside the module's range; nothing was changed.
            VerifyError: The module did not take it.
        """
        with self._shared.operation() as module:
            tuning.set_power(module, power_dbm, self._scope.media_lane_of(module))

    # -- inside

    @property
    def _opened(self) -> ModuleContext:
        return self._shared.parts().context

    def _read_lanes(self, module: ModuleContext) -> ReadLanes:
        """Return the lanes whose link performance is read."""
        del module
        return ReadLanes(media_lane=self._scope.media_lane or 1)

    def _flag_page_exists(self, module: ModuleContext, page: int | None) -> bool:
        if module.advertised.flat or not flag_bytes(page):
            return page is None
        if page == _COHERENT_FLAGS:
            return module.advertised.coherent and module.memory.pages.has_page(page)
        if page == 0x12:
            return module.advertised.tunable
        if page == 0x14:
            return bool(module.advertised.supported("diagnostics_selector"))
        return page != 0x2C or bool(self._shared.parts().vdm.instances)


def _media_lanes(paths: Collection[DataPath]) -> frozenset[int]:
    return frozenset(lane for path in paths for lane in path.media_lanes)


class ModulePath(PathDriver):
    """Driver of one data path of a module; implements ``CoherentTransponder``. The module's driver opens and closes.

    What belongs to the whole module (low power, the statistics interval) is shared with its other paths.
    """

    def __init__(self, shared: SharedModule, first_lane: int) -> None:
        super().__init__(shared, Scope(first_lane=first_lane))
        self._first_lane = first_lane

    def __repr__(self) -> str:
        """Return one line: the module, and the host lane on which the path begins."""
        return f"<{type(self).__name__} {self._shared.device}, from host lane {self._first_lane}>"

    def power_down(self) -> None:
        """Refuse: low power darkens all data paths. Raises ``NotSupportedError``."""
        raise self._opened.error(
            NotSupportedError,
            "low power of one data path is not supported",
            "Call power_down() of the module: it darkens all its data paths.",
        )

    def close(self) -> None:
        """Do nothing: the way to the module belongs to the module's driver. The transmitter is left as it is."""

    def flags(self) -> tuple[StickyFlag, ...]:
        """Read all flags, which clears them in the module; return those of these lanes and of the module as a whole."""
        found = super().flags()
        path = self._lanes(self._opened)
        return tuple(flag for flag in found if _concerns(path, flag.name, flag.lane))

    def clear_flags(self) -> None:
        """Forget the flags of these lanes; one whose cause lasts comes back at the next read."""
        module = self._opened
        path = self._lanes(module)
        module.flags.forget(lambda key: key[1] is not None and _concerns(path, *key))

    def _lanes(self, module: ModuleContext) -> DataPath:
        """Return the data path, or the lanes it would have."""
        path = next(iter(self._scope.paths(module)), None)
        return path or DataPath(0, (self._first_lane,), (self._scope.media_lane_of(module),))

    def _read_lanes(self, module: ModuleContext) -> ReadLanes:
        path = self._lanes(module)
        return ReadLanes(self._scope.media_lane_of(module), self._first_lane, path.media_lanes, path.host_lanes)


def _concerns(path: DataPath, name: str, lane: int | None) -> bool:
    """Return whether a flag is one of these lanes, or of the module as a whole."""
    if lane is None or lane == MODULE_RESOURCE:
        return True
    field = FIELDS.get(f"{name}_flag")
    of_host = "host" in name.split("_") if field is None or field.array is None else field.array.of == HOST
    return lane in (path.host_lanes if of_host else path.media_lanes)


def path_of(shared: SharedModule, first_lane: int) -> ModulePath:
    """Return the driver of one data path. Raises ``ConfigError`` if no application begins on this host lane."""
    module = shared.parts().context
    starts = sorted({start for item in module.advertised.applications for start in item.first_host_lanes})
    if first_lane not in starts:
        raise module.error(
            ConfigError,
            f"the module has no path from host lane {first_lane}",
            f"Its applications begin on host lanes {', '.join(map(str, starts)) or 'none'}.",
        )
    return ModulePath(shared, first_lane)
