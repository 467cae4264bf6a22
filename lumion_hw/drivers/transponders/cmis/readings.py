"""What is read from an open CMIS module: monitors, status, lock, performance, flags, and its memory."""

from __future__ import annotations

from lumion_hw.drivers.transponders.cmis import data_paths as dp
from lumion_hw.drivers.transponders.cmis import monitors, snapshots, tuning
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.core import OpenModule
from lumion_hw.drivers.transponders.cmis.data_paths import DataPath
from lumion_hw.drivers.transponders.cmis.lock import LockWatch
from lumion_hw.drivers.transponders.cmis.vdm import VdmSample
from lumion_hw.interfaces import (
    LockReport,
    Monitors,
    Performance,
    Quality,
    Reading,
    SignalStatus,
    StickyFlag,
)
from lumion_hw.standards.cmis import codes, flag_bytes
from lumion_hw.standards.cmis.codes import DataPathState, ModuleState
from lumion_hw.standards.cmis.image import MemoryImage

DARK_DBM = -30.0
"""A transmitter below this power is off; modules show their floor of -40 dBm then."""
_COHERENT_FLAGS = 0x33
_FLAG_PAGES = (None, 0x11, 0x12, 0x14, 0x2C, _COHERENT_FLAGS)


class ModuleReadings(OpenModule):
    """All that is read from a module and changes nothing in it but flags."""

    def module_state(self) -> ModuleState | int:
        """Read the module state; a reserved code comes as a number."""
        state = self._opened.memory.number("module_state")
        return ModuleState(state) if state in tuple(ModuleState) else state

    def data_paths(self) -> tuple[DataPath, ...]:
        """Read which lanes run which application together."""
        return dp.data_paths(self._opened)

    def data_path_states(self) -> dict[int, str]:
        """Read the data path state of every host lane, in words."""
        return {lane: codes.describe("data_path_state", state) for lane, state in dp.states(self._opened).items()}

    def laser(self) -> dict[str, Reading]:
        """Read configured and current frequency and the configured power: they differ while a request is refused."""
        module = self._opened
        module.needs(module.advertised.tunable, "tuning")
        memory, lane = module.memory, self._lane
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
        """Read the module's monitors. Raises ``NotSupportedError`` for a module that has none."""
        module = self._opened
        module.needs(not module.advertised.flat, "reading monitors")
        launched, received = (self._vdm.find(name) for name in ("tx_power", "rx_total_power"))
        return monitors.monitors(
            module,
            self._lane,
            self._sample(received.source, "rx_total_power") if received else None,
            self._sample(launched.source, "tx_power") if launched else None,
        )

    def module_readings(self) -> dict[str, Reading]:
        """Read the monitors of the module, by name; those it does not have are marked, not 0."""
        return monitors.module_readings(self._opened)

    def lane_readings(self, lane: int | None = None) -> dict[str, Reading]:
        """Read the monitors of a media lane, by name."""
        module = self._opened
        module.needs(not module.advertised.flat, "reading lane monitors")
        return monitors.lane_readings(module, lane or self._lane)

    def status(self) -> SignalStatus:
        """Read the live status of the media lane."""
        module = self._opened
        module.needs(not module.advertised.flat, "reading lane status")
        return monitors.status(module, self._lane)

    def samples(self) -> tuple[VdmSample, ...]:
        """Read all diagnostic samples, unfrozen."""
        self._opened.memory.number("module_state")
        return self._vdm.samples()

    def performance(self) -> Performance:
        """End an interval of the module's statistics and return what it measured, cross-checked between its pages.

        Raises:
            NotSupportedError: The module measures no link performance.
        """
        with self._operation() as module:
            paths = [path for path in dp.data_paths(module) if self._lane in path.media_lanes]
            states = dp.states(module)
            lit = any(states[lane] == DataPathState.ACTIVATED for path in paths for lane in path.host_lanes)
            live = module.flags.live(monitors.LANE_STATUS_PAGE)
            locked = not {("rx_los", self._lane), ("rx_lol", self._lane)} & live
            return self._performance.read(lit, locked)

    def wait_for_lock(self, timeout_s: float) -> LockReport:
        """Wait until the link is up, at most ``timeout_s`` from now, and report what held it up.

        It ends early at what waiting does not change: absent, fault, refused configuration or tuning.

        Raises:
            ConnectError: The module is not open.
            NotSupportedError: A flat memory has no link state.
        """
        module = self._module
        if module is None:
            raise self._not_open()
        return LockWatch(module, self._vdm, self._lane).wait(timeout_s)

    def lock_state(self) -> LockReport:
        """Look once whether the link is up."""
        return self.wait_for_lock(0.0)

    def flags(self) -> tuple[StickyFlag, ...]:
        """Read all flags, which clears them in the module, and return all seen since :meth:`clear_flags`."""
        module = self._opened
        for page in _FLAG_PAGES:
            supported = self._flag_page_exists(module, page)
            if supported:
                module.flags.read(page)
        return module.flags.all()

    def clear_flags(self) -> None:
        """Forget the flags seen so far; one whose cause lasts comes back at the next read."""
        self._opened.flags.clear()

    def dump(self) -> MemoryImage:
        """Read the whole memory without clearing a flag."""
        module = self._opened
        with module.memory.pages.transaction():
            return snapshots.dump(module, self._vdm)

    def _sample(self, source: str, name: str) -> Reading:
        value = self._vdm.current(name)
        floor = value is None or value <= DARK_DBM - 10.0
        return Reading(value, "dBm", Quality.BELOW_RANGE if floor else Quality.OK, source)

    def _flag_page_exists(self, module: ModuleContext, page: int | None) -> bool:
        if module.advertised.flat or not flag_bytes(page):
            return page is None
        if page == _COHERENT_FLAGS:
            return module.advertised.coherent and module.memory.pages.has_page(page)
        if page == 0x12:
            return module.advertised.tunable
        if page == 0x14:
            return bool(module.advertised.supported("diagnostics_selector"))
        return page != 0x2C or bool(self._vdm.instances)

    def _power_reading(self, module: ModuleContext) -> Reading | None:
        """Return the launched power, where the module measures it."""
        reading = monitors.lane_readings(module, self._lane)["tx_power"]
        if reading.quality is not Quality.NOT_SUPPORTED:
            return reading
        item = self._vdm.find("tx_power")
        return self._sample(item.source, "tx_power") if item else None
