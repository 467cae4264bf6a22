"""Driver functions for the data paths of a module."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from lumion_hw.drivers.transponders.cmis import (
    data_paths as dp,
    light,
    monitors,
    power,
    signal_integrity,
    squelch,
    tuning,
)
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.data_paths import DataPath
from lumion_hw.drivers.transponders.cmis.lock import LockWatch
from lumion_hw.drivers.transponders.cmis.performance import LiveLanes, ReadLanes
from lumion_hw.drivers.transponders.cmis.scope import Scope
from lumion_hw.drivers.transponders.cmis.shared import SharedModule
from lumion_hw.drivers.transponders.cmis.signal_integrity import ActiveSignalIntegrity, SignalIntegrity
from lumion_hw.drivers.transponders.squelch import Side, SquelchMode
from lumion_hw.drivers.transponders.switching import dark_after_failure
from lumion_hw.errors import ConfigError, DeviceError, DeviceTimeoutError, NotSupportedError
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

_COHERENT_FLAGS = 0x33
_FLAG_PAGES = (None, 0x11, 0x12, 0x14, 0x2C, _COHERENT_FLAGS)


class PathDriver:
    """Driver of data paths of one module; implements ``CoherentTransponder`` except opening and closing.

    Args:
        shared: Module, shared with the drivers of its other data paths.
        scope: Data paths that this driver uses.
    """

    def __init__(self, shared: SharedModule, scope: Scope) -> None:
        self._shared = shared
        self._scope = scope

    # -- properties

    def identify(self) -> TransponderIdentity:
        """Read the identity again. Raises ``IdentityError`` if the module is a different one."""
        module = self._opened
        module.guard()
        return module.identity

    def can_switch(self) -> bool:
        """Return whether the transmitter can be switched. Cables cannot."""
        return not self._opened.advertised.flat

    def capabilities(self) -> TransponderCapabilities:
        """Return the capabilities of the module."""
        parts = self._shared.parts()
        module = parts.context
        module.memory.number("cmis_revision")  # raises an error if the module was removed
        performance = parts.performance.units(self._read_lanes(module))
        return module.advertised.capabilities(parts.vdm.has_statistics, parts.diagnostics.loopbacks, performance)

    def missing_monitors(self) -> frozenset[str]:
        """Return the quantities of ``Monitors`` that the module does not measure; empty if it is not open."""
        opened = self._shared.opened
        return frozenset() if opened is None else monitors.missing(opened.context, opened.vdm)

    # -- readings

    def settings(self) -> TransponderSettings:
        """Read the settings. Raises ``NotSupportedError`` for cables."""
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
        """Read the configured frequency, the present frequency and the configured power of the laser."""
        module = self._opened
        module.needs(module.advertised.tunable, "tuning")
        memory, lane = module.memory, self._scope.media_lane_of(module)
        configured = tuning.configured_mhz(module, lane)
        current = memory.number("current_frequency", lane)
        is_tuned = configured is not None and abs(configured - current) <= tuning.TOLERANCE_MHZ
        quality = Quality.OK if is_tuned else Quality.INCONSISTENT
        readings = {
            "configured_frequency": Reading(
                None if configured is None else configured / 1e6, "THz", quality, "12h:136"
            ),
            "current_frequency": Reading(current / 1e6, "THz", quality, "12h:168"),
        }
        if module.advertised.tx_power_limits_dbm is not None:
            power_dbm = memory.value("target_output_power", lane)
            number = float(power_dbm) if isinstance(power_dbm, (int, float)) else None
            readings["target_output_power"] = Reading(number, "dBm", Quality.OK, "12h:200")
        return readings

    def monitors(self) -> Monitors:
        """Read the monitors of the module and of its first media lane; ``None`` stands for a missing monitor.

        Bias and powers of lanes that share a fibre are added up.

        Raises ``NotSupportedError`` if the module has a flat memory, which has no monitors.
        """
        parts = self._shared.parts()
        parts.context.needs(not parts.context.advertised.flat, "reading monitors")
        return monitors.monitors(parts.context, parts.vdm, self._scope.media_lane_of(parts.context))

    def lane_readings(self, lane: int | None = None) -> dict[str, Reading]:
        """Read the monitors of a media lane by name; by default of the first lane."""
        module = self._opened
        module.needs(not module.advertised.flat, "reading lane monitors")
        return monitors.lane_readings(module, self._scope.media_lane_of(module) if lane is None else lane)

    def status(self) -> SignalStatus:
        """Read the live status. A bit is set if its condition is met on any of the media lanes."""
        module = self._opened
        module.needs(not module.advertised.flat, "reading lane status")
        with module.memory.pages.transaction():
            paths = self._scope.paths(module)
            return monitors.status(module, paths, self._scope.media_lane_of(module))

    def performance(self) -> Performance:
        """End the statistics interval of the whole module and return the link performance in it.

        Raises ``NotSupportedError`` if the module does not report link performance.
        """
        with self._shared.operation() as module:
            states = dp.states(module)
            active = [path for path in self._scope.paths(module) if states[path.first_lane] == DataPathState.ACTIVATED]
            emitting_lanes = {lane for path in active for lane in path.media_lanes}
            live = module.flags.live(monitors.LANE_STATUS_PAGE)
            locked = {lane for lane in emitting_lanes if not {("rx_los", lane), ("rx_lol", lane)} & live}
            lanes = LiveLanes(emitting_lanes, dp.host_lanes(active), locked)
            return self._shared.parts().performance.read(self._read_lanes(module), lanes)

    def wait_for_lock(self, timeout_s: float) -> LockReport:
        """Wait until the link is up. Return a report, with the reason if the link stays down.

        The call ends early if waiting cannot help.

        Raises:
            ConnectError: The module is not open.
            NotSupportedError: The module is a cable.
        """
        parts = self._shared.parts()
        # Not an exclusive operation: another thread may tune or switch off during the wait.
        return LockWatch(parts.context, parts.vdm, self._scope).wait(timeout_s)

    def lock_state(self) -> LockReport:
        """Check once whether the link is up. Return a report, with the reason if the link is down."""
        return self.wait_for_lock(0.0)

    def flags(self) -> tuple[StickyFlag, ...]:
        """Read the flags and return all flags set since the last :meth:`clear_flags`."""
        module = self._opened
        for page in _FLAG_PAGES:
            if self._flag_page_exists(module, page):
                module.flags.read(page)
        return module.flags.all()

    def clear_flags(self) -> None:
        """Remove the stored flags. Flags that are still present return with the next reading."""
        self._opened.flags.clear()

    # -- changes

    def power_up(self) -> None:
        """Leave low power and wait until the module is ready. The transmitters stay dark.

        Raises the errors of :func:`~lumion_hw.drivers.transponders.cmis.power.power_up`.
        """
        with self._shared.operation() as module:
            power.power_up(module, self._shared.pins)

    def select_application(self, number: int, first_lane: int | None = None, *, check: bool = True) -> None:
        """Run an application on host lanes; the transmitter is off afterwards. Other data paths do not change.

        Raises the errors of :meth:`CoherentTransponder.select_application`, and ``DeviceTimeoutError`` if a step took
        too long.

        Args:
            number: Number of the application in the module's list (AppSel code).
            first_lane: First host lane, from 1; by default that of this data path, or the first possible one.
            check: Whether to refuse applications that the module does not advertise.
        """
        with self._shared.operation() as module:
            start = self._scope.first_lane_of(module, number, first_lane)
            dp.select_application(module, number, start, check=check)

    def enable(self) -> None:
        """Power up, initialise, switch the transmitters on, and wait until all media lanes emit light.

        After an error, the lanes that were off are switched off again; after a time-out they stay enabled, so that
        :meth:`lock_state` shows the reason.

        Raises:
            DeviceError: No application is selected, or the module reports a fault.
            DeviceTimeoutError: A step took longer than 1.5 times the advertised time, or a lane stays dark.
        """
        with self._shared.operation() as module:
            module.guard()
            if module.state() != ModuleState.READY:
                power.power_up(module, self._shared.pins)
            paths = self._scope.paths(module)
            if not paths:
                raise self._no_application(module)
            dp.await_steady(module, dp.host_lanes(paths))
            # Set first, so that after Ctrl-C the end of the block switches the paths off.
            self._shared.emitting |= {path.first_lane for path in paths}
            dark = _media_lanes(paths) - dp.lanes_on(module, paths)
            with dark_after_failure(module.clock, lambda: _disable(module, dark), unless=(DeviceTimeoutError,)):
                states = dp.states(module)
                if any(states[lane] != DataPathState.ACTIVATED for lane in dp.host_lanes(paths)):
                    dp.initialise(module, paths)
                dp.switch_on(module, paths)
                light.await_light(module, self._shared.parts().vdm, _media_lanes(paths))

    def disable(self) -> None:
        """Switch the transmitters off and check that all media lanes are dark. The data paths stay initialised.

        Raises:
            DeviceError: Another active data path uses the same media lane.
            VerifyError: The module still reports power on a lane.
            DeviceTimeoutError: The data paths did not leave their active state.
        """
        with self._shared.operation() as module:
            module.needs(not module.advertised.flat, "switching the transmitter")
            module.guard()
            in_use = dp.data_paths(module)
            self.switch_off(module, [path for path in in_use if self._scope.has(path)], in_use)

    def switch_off(self, module: ModuleContext, paths: Collection[DataPath], in_use: Collection[DataPath]) -> None:
        """Switch data paths off and check that their lanes are dark. Raises the errors of :meth:`disable`."""
        other_lanes = dp.emitting_lanes(module, [path for path in in_use if path not in paths])
        lanes = _media_lanes(paths)
        if self._scope.is_module and len(paths) == len(in_use):
            lanes = frozenset({*lanes, *module.advertised.media_lanes})
        for lane in sorted(lanes & other_lanes.keys()):
            raise module.error(
                DeviceError,
                f"media lane {lane} also carries the data path from host lane {other_lanes[lane].first_lane}",
                "Switch off the whole module, or the other data path first.",
            )
        if module.state() == ModuleState.READY:
            dp.switch_off(module, paths, lanes)
            light.check_dark(module, self._shared.parts().vdm, lanes)
        # There is no active data path; the request takes effect when the module is powered up.
        elif module.advertised.supported("tx_disable"):
            module.memory.set_lanes("tx_disable", module.memory.lanes if self._scope.is_module else lanes, True)
        self._shared.emitting -= {path.first_lane for path in paths}

    def tune(self, frequency_thz: float, grid_ghz: float | None = None) -> TuningResult:
        """Tune the laser to a frequency, rounded to MHz, and check the frequency.

        An active data path is dark meanwhile. Raises the errors of
        :func:`~lumion_hw.drivers.transponders.cmis.tuning.tune`.

        Args:
            frequency_thz: Frequency to tune to.
            grid_ghz: Grid to use, by its spacing; default any.
        """
        with self._shared.operation() as module:
            return tuning.tune(module, frequency_thz, grid_ghz, self._scope.media_lane_of(module))

    def set_tx_power_dbm(self, power_dbm: float) -> None:
        """Set the output power of the laser. Raises the errors of :meth:`CoherentTransponder.set_tx_power_dbm`."""
        with self._shared.operation() as module:
            tuning.set_power(module, power_dbm, self._scope.media_lane_of(module))

    def squelch(self, side: Side) -> dict[int, SquelchMode]:
        """Read the squelch mode of each media lane (``tx``) or host lane (``rx``).

        Raises ``NotSupportedError`` if the module does not advertise a control of this squelch.
        """
        module = self._opened
        squelch.check(module, side)
        return squelch.read(module, side, self._lanes_of(module, side))

    def set_squelch(self, side: Side, mode: SquelchMode, lanes: Collection[int] | None = None) -> None:
        """Set the squelch mode of media lanes (``tx``) or host lanes (``rx``). A forced squelch ends their output.

        Raises the errors of :func:`~lumion_hw.drivers.transponders.cmis.squelch.write`.

        Args:
            side: Transmitter or receiver.
            mode: ``automatic``, ``off`` or ``forced``.
            lanes: Lanes of this driver; default all. ``ConfigError`` for other lanes.
        """
        with self._shared.operation() as module:
            squelch.check(module, side, mode)
            squelch.write(module, side, mode, self._chosen_lanes(module, side, lanes))

    def signal_integrity(self) -> dict[int, ActiveSignalIntegrity]:
        """Read the signal-integrity settings in use of the host lanes of this driver's data paths.

        Raises ``NotSupportedError`` for modules with flat memory.
        """
        module = self._opened
        module.needs(not module.advertised.flat, "signal integrity")
        with module.memory.pages.transaction():
            return signal_integrity.read(module, dp.host_lanes(self._scope.paths(module)))

    def set_signal_integrity(self, settings: SignalIntegrity, lanes: Collection[int] | None = None) -> None:
        """Set equalizers, output levels and clock recovery of host lanes, in use at once (ExplicitControl = 1).

        The settings last until an application is selected. Raises the errors of
        :func:`~lumion_hw.drivers.transponders.cmis.signal_integrity.write`.

        Args:
            settings: Settings to change; ``None`` keeps a value.
            lanes: Host lanes; by default all of this driver's data paths.
        """
        with self._shared.operation() as module:
            signal_integrity.check(module, settings)
            signal_integrity.write(module, settings, self._path_lanes(module, lanes))

    def use_default_signal_integrity(self, lanes: Collection[int] | None = None) -> None:
        """Return host lanes to the signal-integrity settings of their application (ExplicitControl = 0).

        Raises the errors of :meth:`set_signal_integrity`.
        """
        with self._shared.operation() as module:
            signal_integrity.write(module, None, self._path_lanes(module, lanes))

    def check_settings(
        self,
        *,
        application: int | None = None,
        first_lane: int | None = None,
        frequency_thz: float | None = None,
        power_dbm: float | None = None,
        squelch_modes: Mapping[Side, SquelchMode] = MappingProxyType({}),
        integrity: SignalIntegrity | None = None,
        lanes: Collection[int] | None = None,
    ) -> None:
        """Compare requested settings with what the module advertises. Nothing is changed.

        Raises the errors that setting these values would raise before a change.

        Args:
            application: Argument of :meth:`select_application`.
            first_lane: Argument of :meth:`select_application`.
            frequency_thz: Argument of :meth:`tune`.
            power_dbm: Argument of :meth:`set_tx_power_dbm`.
            squelch_modes: Arguments of :meth:`set_squelch`, by side.
            integrity: Argument of :meth:`set_signal_integrity`.
            lanes: Argument of :meth:`set_squelch` and :meth:`set_signal_integrity`.
        """
        with self._shared.operation() as module:
            if application is not None:
                dp.offered(module, application, self._scope.first_lane_of(module, application, first_lane))
            if frequency_thz is not None:
                tuning.plan_tuning(module, frequency_thz, None)
            if power_dbm is not None:
                tuning.check_power(module, power_dbm)
            for side, mode in squelch_modes.items():
                squelch.check(module, side, mode)
                self._chosen_lanes(module, side, lanes)
            if integrity is not None:
                signal_integrity.check(module, integrity)
                if application is None:
                    signal_integrity.check_lanes(module, self._path_lanes(module, lanes))

    # -- helpers

    def _path_lanes(self, module: ModuleContext, lanes: Collection[int] | None) -> tuple[int, ...]:
        """Return the requested host lanes; by default all of this driver's data paths."""
        if lanes is not None:
            return self._chosen_lanes(module, "rx", lanes)
        return dp.host_lanes(self._scope.paths(module))

    def _lanes_of(self, module: ModuleContext, side: Side) -> tuple[int, ...]:
        """Return the media lanes (``tx``) or host lanes (``rx``) of this driver."""
        if self._scope.is_module:
            return module.advertised.media_lanes if side == "tx" else module.memory.lanes
        if side == "tx" and self._scope.media_lane is not None:
            return (self._scope.media_lane,)
        paths = self._scope.paths(module)
        if not paths:
            raise self._no_application(module)
        return tuple(sorted(_media_lanes(paths))) if side == "tx" else dp.host_lanes(paths)

    def _chosen_lanes(self, module: ModuleContext, side: Side, lanes: Collection[int] | None) -> tuple[int, ...]:
        own = self._lanes_of(module, side)
        others = sorted(set(lanes or ()) - set(own))
        if others:
            kind = "media" if side == "tx" else "host"
            raise module.error(
                ConfigError,
                f"there is no {kind} lane {', '.join(map(str, others))}{self._scope.suffix()}",
                f"The {kind} lanes are {', '.join(map(str, own))}.",
            )
        return own if lanes is None else tuple(sorted(lanes))

    def _no_application(self, module: ModuleContext) -> DeviceError:
        return module.error(
            DeviceError, f"no application is selected{self._scope.suffix()}", "Call select_application() first."
        )

    @property
    def _opened(self) -> ModuleContext:
        return self._shared.parts().context

    def _read_lanes(self, module: ModuleContext) -> ReadLanes:
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
    """Driver of one data path of a module; implements ``CoherentTransponder``.

    Low power and the statistics interval belong to the whole module.

    Args:
        shared: Module, shared with the drivers of its other data paths.
        scope: The data path, by its first host lane or by a media lane.
    """

    def __init__(self, shared: SharedModule, scope: Scope) -> None:
        super().__init__(shared, scope)

    def __repr__(self) -> str:
        """Return the module and the data path as one line of text."""
        return f"<{type(self).__name__} {self._shared.device},{self._scope.suffix()}>"

    def power_down(self) -> None:
        """Raise ``NotSupportedError``, because low power affects all data paths."""
        raise self._opened.error(
            NotSupportedError,
            "a single data path cannot be set to low power",
            "Call power_down() of the module, which affects all its data paths.",
        )

    def close(self) -> None:
        """Do nothing: the module's driver closes the link. The transmitter does not change."""

    def flags(self) -> tuple[StickyFlag, ...]:
        """Read the flags and return those of this data path's lanes and of the whole module."""
        flags = super().flags()
        path = self._lanes(self._opened)
        return tuple(flag for flag in flags if _belongs_to(path, flag.name, flag.lane))

    def clear_flags(self) -> None:
        """Remove the stored flags of this data path's lanes.

        Flags that are still present return with the next reading.
        """
        module = self._opened
        path = self._lanes(module)
        module.flags.forget(lambda key: key[1] is not None and _belongs_to(path, *key))

    def _lanes(self, module: ModuleContext) -> DataPath:
        path = next(iter(self._scope.paths(module)), None)
        return path or DataPath(0, (self._scope.first_lane or 1,), (self._scope.media_lane_of(module),))

    def _read_lanes(self, module: ModuleContext) -> ReadLanes:
        path = self._lanes(module)
        return ReadLanes(self._scope.media_lane_of(module), path.host_lanes[0], path.media_lanes, path.host_lanes)


def _belongs_to(path: DataPath, name: str, lane: int | None) -> bool:
    if lane is None:
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
            f"no data path can begin on host lane {first_lane}",
            f"The module offers applications from host lanes {', '.join(map(str, starts)) or 'none'}.",
        )
    return ModulePath(shared, Scope(first_lane=first_lane))


def lane_of(shared: SharedModule, number: int) -> ModulePath:
    """Return the driver of one media lane. Raises ``ConfigError`` if the module does not have it."""
    module = shared.parts().context
    lanes = module.advertised.media_lanes
    if number not in lanes:
        raise module.error(
            ConfigError,
            f"there is no media lane {number}",
            f"The module has media lanes {', '.join(map(str, lanes))}.",
        )
    return ModulePath(shared, Scope(media_lane=number))


def _disable(module: ModuleContext, media_lanes: Collection[int]) -> None:
    if media_lanes and module.advertised.supported("tx_disable"):
        module.memory.set_lanes("tx_disable", media_lanes, True)
