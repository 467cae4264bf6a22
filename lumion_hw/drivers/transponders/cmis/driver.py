"""The driver of one CMIS module."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal

from lumion_hw.clock import Clock
from lumion_hw.drivers.life_cycle import Driver, closed_if_failed, not_open
from lumion_hw.drivers.transponders.cmis import cdb, firmware, monitors, power, snapshots, tuning
from lumion_hw.drivers.transponders.cmis import data_paths as dp
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.data_paths import ALL_LANES, DataPath
from lumion_hw.drivers.transponders.cmis.diagnostics import Diagnostics, Vdm, VdmSample
from lumion_hw.drivers.transponders.cmis.firmware import Images, Progress
from lumion_hw.drivers.transponders.cmis.lock import LockWatch
from lumion_hw.drivers.transponders.cmis.opening import open_module
from lumion_hw.drivers.transponders.cmis.performance import PerformanceReader
from lumion_hw.errors import ConnectError, DeviceError, LumionError, NotSupportedError, VerifyError
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
from lumion_hw.links.owner import fork_safe
from lumion_hw.sessions.module.adapter import PinnedAdapter
from lumion_hw.sessions.module.paged_i2c import PagedI2c
from lumion_hw.sessions.module.pages import ModulePages
from lumion_hw.sessions.module.registers import I2cDevice, ModuleAbsentError
from lumion_hw.standards.cmis import codes, flag_bytes
from lumion_hw.standards.cmis.codes import CDB_FIRMWARE_WRITES, DataPathState, ModuleState, Pattern
from lumion_hw.standards.cmis.firmware import FirmwareFeatures
from lumion_hw.standards.cmis.image import MemoryImage

DARK_DBM = -30.0
"""A transmitter below this power is off; modules show their floor of -40 dBm then."""
_COHERENT_FLAGS = 0x33
_FLAG_PAGES = (None, 0x11, 0x12, 0x14, 0x2C, _COHERENT_FLAGS)
LIGHT_S = 5.0
"""Time from an active data path to a power reading above the floor."""


class CmisTransponder(Driver):
    """Driver of one module; implements ``CoherentTransponder``. Thread-safe.

    State is read from the module, never remembered: only what cannot change while it is plugged in is kept, and every
    operation that writes first makes sure that it is still the same module. Short accesses of several threads take
    turns on the module; operations that change it (power, application, tuning, enable) wait for each other.

    Args:
        link: The module: an ``I2cDevice`` at 0x50, or page-level access such as a linear file or the replay of a dump.
        clock: Measures deadlines.
        device: Device name, for messages.
        expected_vendor: Vendor name that must be found; any if omitted.
        expected_part_number: The same for the part number.
        expected_serial: The same for the serial number.
        quirks: Options of ``Quirks`` by name, over those that the module's identity brings along.
        bank: Bank of lanes of a module with more than eight.
        lane: Media lane, the one that carries the light of a coherent module.
        hold_off_s: Pause after writes and page changes, for slow boards (raw I2C only).
        pins: Low-speed signals of the socket, where an adapter has them.
    """

    def __init__(
        self,
        link: I2cDevice | ModulePages,
        clock: Clock,
        *,
        device: str = "transponder",
        expected_vendor: str | None = None,
        expected_part_number: str | None = None,
        expected_serial: str | None = None,
        quirks: Mapping[str, Any] | None = None,
        bank: int = 0,
        lane: int = 1,
        hold_off_s: float = 0.0,
        pins: PinnedAdapter | None = None,
    ) -> None:
        self._pages: ModulePages
        if isinstance(link, ModulePages):
            self._pages = link
        else:
            self._pages = PagedI2c(link, clock, device=device, hold_off_s=hold_off_s)
        self._clock = clock
        self._device = device
        self._expected = {
            "vendor": expected_vendor,
            "part_number": expected_part_number,
            "serial": expected_serial,
        }
        self._quirks = dict(quirks or {})
        self._bank = bank
        self._lane = lane
        self._pins = pins
        self._changing = fork_safe(threading.RLock())
        self._module: ModuleContext | None = None
        self._lit_here = False

    # -- opening and closing

    def open(self) -> None:
        """Open the way to the module and read its identity, what it advertises, and what its optional pages list.

        Raises:
            ConnectError: The way cannot be opened.
            ModuleAbsentError: No module.
            NotRespondingError: The module does not answer within its start-up time.
            IdentityError: Another module than expected, or one that is not managed by CMIS.
        """
        with self._changing, closed_if_failed(self.close):
            self._pages.open()
            # Asked before the bus is: an empty socket does not acknowledge, and neither does a module that starts up.
            if self._pins is not None and "mod_prs_l" in self._pins.wired and not self._pins.is_asserted("mod_prs_l"):
                raise ModuleAbsentError(
                    "ModPrsL is high: no module in the socket",
                    device=self._device,
                    address=self._pages.name,
                    hint="Plug it in; if there is one, check which pin ModPrsL is wired to.",
                )
            module = open_module(self._pages, self._clock, self._device, self._bank, self._expected, self._quirks)
            self._vdm = Vdm(module)
            self._diagnostics = Diagnostics(module)
            self._performance = PerformanceReader(module, self._vdm, self._diagnostics, self._lane)
            # Last of all: a thread that finds a module open finds everything that belongs to it.
            self._module = module

    def close(self) -> None:
        """Release the way to the module; idempotent, never raises. The transmitter is left as it is."""
        self._module = None
        self._pages.close()

    # -- who and what it is

    def identify(self) -> TransponderIdentity:
        """Read the identity anew and compare it with the one that was opened. Raises ``IdentityError``."""
        module = self._opened
        module.guard()
        return module.identity

    @property
    def is_flat(self) -> bool:
        """Whether the module has only the lower memory and page 00h, as cables have."""
        return self._opened.advertised.flat

    def can_switch(self) -> bool:
        """Tell whether the transmitter can be switched: not with a flat memory, as cables have."""
        return not self._opened.advertised.flat

    def capabilities(self) -> TransponderCapabilities:
        """Return what the module says of itself."""
        module = self._opened
        module.memory.number("cmis_revision")  # a module that is gone has no capabilities
        loopbacks, performance = self._diagnostics.loopbacks, self._performance.units()
        return module.advertised.capabilities(self._vdm.has_statistics, loopbacks, performance)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What went wrong without stopping anything, since the module was opened."""
        return tuple(self._opened.warnings)

    # -- what is read, and changes nothing but flags

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

    def settings(self) -> TransponderSettings:
        """Read what the module has been told. Raises ``NotSupportedError`` for a flat memory, which is told nothing."""
        module = self._opened
        module.needs(not module.advertised.flat, "settings")
        with module.memory.pages.transaction():
            configured = tuning.configured_mhz(module, self._lane) if module.advertised.tunable else None
            power_dbm = None
            if module.advertised.tx_power_limits_dbm is not None:
                power_dbm = module.memory.value("target_output_power", self._lane)
            return TransponderSettings(
                powered=module.memory.number("module_state") == ModuleState.READY,
                enabled=not monitors.status(module, self._lane).tx_disabled,
                applications={path.host_lanes[0]: path.application for path in dp.data_paths(module)},
                frequency_thz=None if configured is None else configured / 1e6,
                tx_power_dbm=float(power_dbm) if isinstance(power_dbm, (int, float)) else None,
            )

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
        # Also where there is nothing to sample: a module that is gone is an error, not an empty answer.
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
        # No operation of its own: while one thread waits for light, another may tune or switch off.
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Switch the transmitter off if it was switched on in this block, and close."""
        if self._lit_here:
            # The error that ended the block says more than one from a module that may be gone by now.
            with contextlib.suppress(LumionError):
                self.disable()
        self.close()

    # -- power

    def power_up(self) -> None:
        """Bring the module out of low power: clear both requests, and wait until it is ready. It stays dark.

        Raises:
            DeviceTimeoutError: It is not ready within 1.5 times the advertised time.
            DeviceError: It went into its fault state.
        """
        with self._operation() as module:
            power.power_up(module, self._pins)

    def power_down(self) -> None:
        """Put the module in low power, and wait until it is. Raises as :meth:`power_up`."""
        with self._operation() as module:
            power.power_down(module, self._pins)
            self._lit_here = False

    def reset(self) -> None:
        """Reset the module and open it anew; it forgets application, tuning and power.

        By ResetL where that is wired, which also reaches a module that hangs on its bus; otherwise by software.
        """
        with self._operation() as module:
            power.reset(module, self._pins)
            self._lit_here = False
            self.open()

    def interrupt(self) -> bool:
        """Whether the module pulls IntL: one of its flags that is not masked is up. Reading the flags releases it.

        Raises:
            NotSupportedError: IntL is not wired to a pin.
        """
        if self._pins is None:
            raise self._opened.error(
                NotSupportedError, "IntL is not wired to a pin", "Name it under 'pins' of an ftdi:// or mcp2221:// way."
            )
        return self._pins.is_asserted("int_l")

    def select_application(self, number: int, first_lane: int = 1, *, check: bool = True) -> None:
        """Run an application from a host lane on; the transmitter is off and the lanes are down afterwards.

        Args:
            number: AppSel code.
            first_lane: First host lane, from 1.
            check: Refuse here what the module does not advertise; otherwise let the module refuse it.

        Raises:
            ConfigError: The module does not offer it there.
            ConfigRejectedError: The module refused it; lane and code say why.
            DeviceTimeoutError: A stage took too long.
        """
        with self._operation() as module:
            dp.select_application(module, number, first_lane, check=check)

    def enable(self) -> None:
        """Switch the transmitters of all data paths on, and wait until there is light.

        What it takes is done in its order: power up, initialise, switch on.

        Raises:
            DeviceError: No application is selected, or the module reports a fault.
            DeviceTimeoutError: A stage took longer than 1.5 times what the module advertises.
        """
        with self._operation() as module:
            module.guard()
            if module.state() != ModuleState.READY:
                power.power_up(module, self._pins)
            dp.await_steady(module)
            paths = dp.data_paths(module)
            if not paths:
                raise module.error(DeviceError, "no application is selected", "Call select_application() first.")
            # Before the first step: what Ctrl-C leaves half switched on is switched off with the block.
            self._lit_here = True
            states = dp.states(module)
            if any(states[lane] != DataPathState.ACTIVATED for lane in dp.host_lanes(paths)):
                dp.initialise(module, paths)
            dp.switch_on(module, paths)
            self._await_light(module)

    def disable(self) -> None:
        """Switch all transmitters off and verify that they are dark; the data paths stay initialised.

        Raises:
            VerifyError: The module still reports power.
            DeviceTimeoutError: The data paths did not leave their active state.
        """
        with self._operation() as module:
            module.needs(not module.advertised.flat, "switching the transmitter")
            module.guard()
            paths = dp.data_paths(module)
            if module.state() == ModuleState.READY:
                dp.switch_off(module, paths or (DataPath(0, ALL_LANES, ALL_LANES),))
                self._check_dark(module)
            # No data path is up that could be watched; the request holds when somebody else powers the module up.
            elif module.advertised.supported("tx_disable"):
                module.memory.set_lanes("tx_disable", ALL_LANES, True)
            self._lit_here = False

    # -- laser

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
        with self._operation() as module:
            return tuning.tune(module, frequency_thz, grid_ghz, self._lane)

    def set_tx_power_dbm(self, power_dbm: float) -> None:
        """Set the output power.

        Raises:
            LimitError: Outside the module's range; nothing was changed.
            VerifyError: The module did not take it.
        """
        with self._operation() as module:
            tuning.set_power(module, power_dbm, self._lane)

    # -- diagnostics

    def set_loopback(self, kind: str, on: bool, lanes: Collection[int] = ALL_LANES) -> None:
        """Close or open a loopback: ``media_output``, ``media_input``, ``host_output`` or ``host_input``.

        Raises:
            NotSupportedError: The module does not offer it.
        """
        with self._operation():
            self._diagnostics.set_loopback(kind, on, lanes)

    def start_pattern(self, end: str, pattern: Pattern, lanes: Collection[int] = ALL_LANES) -> None:
        """Start a test pattern at ``host_generator``, ``media_generator``, ``host_checker`` or ``media_checker``.

        Raises:
            NotSupportedError: The module does not offer it.
        """
        with self._operation():
            self._diagnostics.start_pattern(end, pattern, lanes)

    def stop_pattern(self, end: str, lanes: Collection[int] = ALL_LANES) -> None:
        """Stop a test pattern. Raises as :meth:`start_pattern`."""
        with self._operation():
            self._diagnostics.stop_pattern(end, lanes)

    def pattern_ber(self, side: str, lane: int) -> Reading | None:
        """Return the bit error ratio that the checker of ``host`` or ``media`` counts.

        It is stale while that checker does not run, and ``None`` if the module has no such results.
        """
        self._opened.memory.number("module_state")
        return self._diagnostics.result(f"{side}_ber", lane)

    def cdb_command(self, number: int, payload: bytes = b"") -> bytes:
        """Run a command of the command data block and return its reply.

        Raises:
            NotSupportedError: It changes the firmware: there are calls for that, in an order that is safe.
        """
        with self._operation() as module:
            if number in CDB_FIRMWARE_WRITES:
                raise module.error(
                    NotSupportedError,
                    f"CDB command {number:04X}h changes firmware",
                    "Use download_firmware() and so on.",
                )
            return cdb.command(module, number, payload)

    # -- firmware

    def firmware(self) -> Images:
        """Return the stored firmware images A and B."""
        with self._operation() as module:
            return firmware.images(module)

    def firmware_features(self) -> FirmwareFeatures:
        """Return how the module takes firmware."""
        with self._operation() as module:
            return firmware.features(module)

    def download_firmware(self, file: bytes, progress: Progress = lambda done, of: None) -> None:
        """Write a vendor's file into the bank that does not run; the module runs on as it did.

        Args:
            file: The file, whole.
            progress: Told the bytes written and those of the file, after every block.

        Raises:
            NotSupportedError: The module takes no firmware this way.
            DeviceError: The module refused the file or a part of it; code 46h asks for :meth:`enter_password`.
            VerifyError: The module took it all and does not call the image valid.
        """
        with self._operation() as module:
            firmware.download(module, file, progress)

    def run_firmware(self, *, inactive: bool = True, hitless: bool = False) -> None:
        """Restart the module with the other image, wait until it answers, and open it anew.

        Not committed, the image is gone with the next reset. Without ``hitless`` the module is as after a reset: dark,
        in low power, application and tuning forgotten.

        Args:
            inactive: Start the image that does not run; otherwise the one that does, again.
            hitless: Leave the traffic alone, where the module can.

        Raises:
            NotSupportedError: The module does not restart without a hit.
            DeviceError: The image is not valid, or the module refused.
            DeviceTimeoutError: It did not come back.
            VerifyError: It came back with another image.
        """
        with self._operation() as module:
            firmware.run(module, inactive=inactive, hitless=hitless)
            self._lit_here = self._lit_here and hitless
            self.open()

    def commit_firmware(self) -> None:
        """Make the running image the one that starts from now on. Raises ``DeviceError``, ``VerifyError``."""
        with self._operation() as module:
            firmware.commit(module)

    def copy_firmware(self, source: Literal["A", "B"]) -> None:
        """Copy an image into the other bank. Raises ``NotSupportedError``, ``DeviceError``, ``VerifyError``."""
        with self._operation() as module:
            firmware.copy(module, source)

    # -- password and user memory

    def enter_password(self, password: int) -> None:
        """Unlock what the module protects, until its next reset.

        Args:
            password: The host's password, 0 to 7FFFFFFFh; 00001011h until it was changed.

        Raises:
            DeviceError: It is wrong.
        """
        with self._operation() as module:
            cdb.enter_password(module, password)

    def change_password(self, password: int) -> None:
        """Give the module another host password; the present one has been entered.

        Raises:
            LimitError: Not from 0 to 7FFFFFFFh; what lies above belongs to the maker. Nothing was changed.
            DeviceError: The module is locked.
        """
        with self._operation() as module:
            cdb.change_password(module, password)

    def user_memory(self) -> bytes:
        """Return the 128 bytes that the module keeps for its user (page 03h). Raises ``NotSupportedError``."""
        with self._operation() as module:
            return cdb.read_user_memory(module)

    def write_user_memory(self, offset: int, data: bytes) -> None:
        """Write some of the 128 bytes of the user and read them back.

        Raises:
            NotSupportedError: The module keeps none.
            LimitError: They do not fit; nothing was written.
            VerifyError: The module keeps others: it may want its password first.
        """
        with self._operation() as module:
            cdb.write_user_memory(module, offset, data)

    # -- inside

    @property
    def _opened(self) -> ModuleContext:
        if self._module is None:
            raise self._not_open()
        return self._module

    def _not_open(self) -> ConnectError:
        return not_open("the module", self._device, self._pages.name)

    @contextlib.contextmanager
    def _operation(self) -> Iterator[ModuleContext]:
        """Let one thread change the module at a time."""
        with self._changing:
            yield self._opened

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

    def _await_light(self, module: ModuleContext) -> None:
        if self._power_reading(module) is None:
            return

        def lit() -> bool:
            module.state()
            reading = self._power_reading(module)
            return reading is not None and reading.value is not None and reading.value > DARK_DBM

        module.wait(lit, LIGHT_S, lambda: f"tx_failure: media lane {self._lane} launches no light")

    def _check_dark(self, module: ModuleContext) -> None:
        end = self._clock.now() + 1.0
        while (reading := self._power_reading(module)) is not None and (reading.value or DARK_DBM) > DARK_DBM:
            if self._clock.now() >= end:
                raise VerifyError(
                    "the transmitter is not dark",
                    wrote="Tx disable",
                    read=f"{reading.value:.2f} dBm",
                    device=self._device,
                    address=self._pages.name,
                    hint="Treat the fibre as lit; unplug the module if it has to be dark.",
                )
            self._clock.sleep(0.1)
