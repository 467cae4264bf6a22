"""Driver of CMIS modules."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Any, Literal

from lumion_hw.clock import Clock
from lumion_hw.drivers.life_cycle import Driver, close_on_error
from lumion_hw.drivers.transponders.cmis import cdb, data_paths as dp, firmware, masks, monitors, power, snapshots
from lumion_hw.drivers.transponders.cmis.data_paths import DataPath
from lumion_hw.drivers.transponders.cmis.diagnostics import Diagnostics, PatternCount, Vdm, VdmSample
from lumion_hw.drivers.transponders.cmis.firmware import Images, Progress
from lumion_hw.drivers.transponders.cmis.memory import FlagKey
from lumion_hw.drivers.transponders.cmis.opening import open_module
from lumion_hw.drivers.transponders.cmis.path_driver import ModulePath, PathDriver, lane_of, path_of
from lumion_hw.drivers.transponders.cmis.performance import PerformanceReader
from lumion_hw.drivers.transponders.cmis.scope import Scope
from lumion_hw.drivers.transponders.cmis.shared import OpenModule, SharedModule
from lumion_hw.errors import LumionError, NotSupportedError
from lumion_hw.interfaces import LaneMonitors, Reading
from lumion_hw.sessions.module.adapter import PinnedAdapter
from lumion_hw.sessions.module.paged_i2c import PagedI2c
from lumion_hw.sessions.module.pages import ModulePages
from lumion_hw.sessions.module.registers import I2cDevice, ModuleAbsentError
from lumion_hw.standards.cmis import codes
from lumion_hw.standards.cmis.codes import CDB_FIRMWARE_WRITES, ModuleState, Pattern
from lumion_hw.standards.cmis.firmware import FirmwareFeatures
from lumion_hw.standards.cmis.image import MemoryImage


class CmisTransponder(PathDriver, Driver):
    """Driver of one CMIS module; implements ``BreakoutTransponder``, ``LanedTransponder``. Thread-safe.

    Operations that write first check that the module was not replaced.

    Args:
        link: Access to the module: an ``I2cDevice`` at 0x50, or access by page, such as a memory file or a dump.
        clock: Clock for time-outs.
        expected_vendor: Required vendor name; any if omitted.
        expected_part_number: Required part number; any if omitted.
        expected_serial: Required serial number; any if omitted.
        quirks: Values of :class:`Quirks` by name, which override the known deviations of the module.
        bank: Use only the eight lanes of this bank, as lanes 1 to 8. By default all lanes are used: those of bank 1
            are lanes 9 to 16, and so on.
        lane: Use only the data paths on this media lane; default all.
        hold_off_s: Pause after writes and page changes, for slow boards (raw I2C only).
        pins: Adapter with the low-speed signals of the socket, if there is one.
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
        bank: int | None = None,
        lane: int | None = None,
        hold_off_s: float = 0.0,
        pins: PinnedAdapter | None = None,
    ) -> None:
        if not isinstance(link, ModulePages):
            link = PagedI2c(link, clock, device=device, hold_off_s=hold_off_s)
        super().__init__(SharedModule(link, clock, device, pins), Scope(media_lane=lane))
        self._device = device
        self._expected = {
            "vendor": expected_vendor,
            "part_number": expected_part_number,
            "serial": expected_serial,
        }
        self._quirks = dict(quirks or {})
        self._bank = bank

    # -- opening and closing

    def open(self) -> None:
        """Open the link and read identity, advertised capabilities and optional pages.

        Raises:
            ConnectError: The link cannot be opened.
            ModuleAbsentError: There is no module.
            NotRespondingError: The module does not respond within its start-up time.
            IdentityError: A different module is inserted, or it does not follow CMIS.
        """
        shared = self._shared
        with shared.changing, close_on_error(self.close):
            shared.pages.open()
            # Checked first, because an empty socket cannot be distinguished from a starting module on the bus.
            pins = shared.pins
            if pins is not None and "mod_prs_l" in pins.wired and not pins.is_asserted("mod_prs_l"):
                raise ModuleAbsentError(
                    "no module in the socket (ModPrsL is high)",
                    device=self._device,
                    address=shared.pages.name,
                    hint="Insert the module. If it is inserted, check the pin of ModPrsL.",
                )
            module = open_module(shared.pages, shared.clock, self._device, self._bank, self._expected, self._quirks)
            vdm, diagnostics = Vdm(module), Diagnostics(module)
            shared.opened = OpenModule(module, vdm, diagnostics, PerformanceReader(module, vdm, diagnostics))

    def close(self) -> None:
        """Close the link; idempotent, never raises. The transmitter does not change."""
        self._shared.opened = None
        self._shared.emitting.clear()
        self._shared.pages.close()

    def path(self, first_lane: int) -> ModulePath:
        """Return the driver of the data path that begins on a host lane. It does not affect other lanes.

        Args:
            first_lane: First host lane, from 1. Raises ``ConfigError`` if no application can begin on this lane.
        """
        return path_of(self._shared, first_lane)

    def media_lane(self, number: int) -> ModulePath:
        """Return the driver of the data path on a media lane. It does not affect other lanes.

        Args:
            number: Media lane, from 1. Raises ``ConfigError`` if the module does not have this lane.
        """
        return lane_of(self._shared, number)

    # -- properties

    @property
    def is_flat(self) -> bool:
        """Whether the module has only the lower memory and page 00h, as cables have."""
        return self._opened.advertised.flat

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems since opening that did not cause an error."""
        return tuple(self._opened.warnings)

    # -- readings

    def module_state(self) -> ModuleState | int:
        """Read the module state. Reserved codes are returned as numbers."""
        state = self._opened.memory.number("module_state")
        return ModuleState(state) if state in tuple(ModuleState) else state

    def data_paths(self) -> tuple[DataPath, ...]:
        """Read the data paths in use."""
        return dp.data_paths(self._opened)

    def data_path_states(self) -> dict[int, str]:
        """Read the name of the data path state of every host lane."""
        return {lane: codes.describe("data_path_state", state) for lane, state in dp.states(self._opened).items()}

    def module_readings(self) -> dict[str, Reading]:
        """Read the monitors of the module by name. Unsupported monitors are marked."""
        return monitors.module_readings(self._opened)

    def lane_monitors(self) -> tuple[LaneMonitors, ...]:
        """Read the monitors of all media lanes.

        Raises ``NotSupportedError`` if the module has a flat memory, which has no monitors.
        """
        module = self._opened
        module.needs(not module.advertised.flat, "reading lane monitors")
        return monitors.lane_monitors(module)

    def samples(self) -> tuple[VdmSample, ...]:
        """Read all VDM samples (monitored quantities) of the module, in all banks."""
        # This access raises an error if the module was removed, even if there are no samples.
        self._opened.memory.number("module_state")
        return self._shared.parts().vdm.samples(all_banks=True)

    def dump(self) -> MemoryImage:
        """Read the complete memory without clearing flags."""
        module = self._opened
        with module.memory.pages.transaction():
            return snapshots.dump(module, self._shared.parts().vdm)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Switch off the data paths that were switched on within this ``with`` block, and close."""
        if self._shared.emitting:
            # The error that ended the block matters more than one from this operation.
            with contextlib.suppress(LumionError), self._shared.operation() as module:
                module.guard()
                in_use = dp.data_paths(module)
                self.switch_off(module, [path for path in in_use if path.first_lane in self._shared.emitting], in_use)
        self.close()

    # -- power

    def power_down(self) -> None:
        """Set the module to low power and wait for the change. Raises the errors of :meth:`power_up`."""
        with self._shared.operation() as module:
            power.power_down(module, self._shared.pins)
            self._shared.emitting.clear()

    def reset(self) -> None:
        """Reset the module by its ResetL pin, or by software if the host cannot drive that pin, and reopen it.

        Application, tuning and power settings are lost.
        """
        with self._shared.operation() as module:
            power.reset(module, self._shared.pins)
            self._shared.emitting.clear()
            self.open()

    def interrupt(self) -> bool:
        """Return whether the module asserts IntL because of an unmasked flag. Reading the flags releases IntL.

        Raises ``NotSupportedError`` if IntL is not wired to a pin.
        """
        if self._shared.pins is None:
            raise self._opened.error(
                NotSupportedError,
                "the interrupt signal IntL is not wired to a pin",
                "Add IntL under 'pins' of an ftdi:// or mcp2221:// connection.",
            )
        return self._shared.pins.is_asserted("int_l")

    # -- diagnostics

    def set_loopback(self, kind: str, on: bool, lanes: Collection[int] | None = None) -> None:
        """Switch a loopback on or off: ``media_output``, ``media_input``, ``host_output`` or ``host_input``.

        Raises the errors of :meth:`~lumion_hw.drivers.transponders.cmis.diagnostics.Diagnostics.set_loopback`.

        Args:
            kind: Name of the loopback.
            on: ``True`` closes the loopback, ``False`` opens it.
            lanes: Lanes, from 1; by default all of the module.
        """
        with self._shared.operation():
            self._shared.parts().diagnostics.set_loopback(kind, on, lanes)

    def closed_loopbacks(self) -> dict[str, tuple[int, ...]]:
        """Read the lanes on which each supported loopback is closed. Empty if the module supports none."""
        with self._shared.operation():
            return self._shared.parts().diagnostics.closed_loopbacks()

    def patterns(self, end: str) -> tuple[Pattern, ...]:
        """Return the supported patterns of ``host_generator``, ``media_generator`` or of one of the checkers.

        Raises ``NotSupportedError`` if the module has no test patterns.
        """
        with self._shared.operation():
            return self._shared.parts().diagnostics.patterns(end)

    def start_pattern(self, end: str, pattern: Pattern, lanes: Collection[int] | None = None) -> None:
        """Start a test pattern at ``host_generator``, ``media_generator``, ``host_checker`` or ``media_checker``.

        Args:
            end: Generator or checker.
            pattern: Pattern.
            lanes: Lanes, from 1; by default all of the module.

        Raises:
            NotSupportedError: The module does not support this pattern.
            ConfigError: The module does not have a lane.
        """
        with self._shared.operation():
            self._shared.parts().diagnostics.start_pattern(end, pattern, lanes)

    def stop_pattern(self, end: str, lanes: Collection[int] | None = None) -> None:
        """Stop a test pattern. Raises the errors of :meth:`start_pattern`."""
        with self._shared.operation():
            self._shared.parts().diagnostics.stop_pattern(end, lanes)

    def pattern_ber(self, side: str, lane: int) -> Reading | None:
        """Return the bit error ratio measured by the ``host`` or ``media`` checker.

        The ratio is stale if that checker is not running. ``None`` if the module has no checker results.
        """
        self._opened.memory.number("module_state")
        return self._shared.parts().diagnostics.result(f"{side}_ber", lane)

    def pattern_counts(self, side: str, lanes: Collection[int]) -> dict[int, PatternCount]:
        """Read the bits and errors that the ``host`` or ``media`` checker of lanes has counted.

        The start of the count is arbitrary: use the difference of two calls. Each group of four lanes takes 0.2 s.

        Raises:
            NotSupportedError: The module does not count bits.
            ConfigError: The module does not have a lane.
            DeviceError: A checker is off, for example because the module was reset.
        """
        with self._shared.operation():
            return self._shared.parts().diagnostics.counts(side, lanes)

    # -- masks

    def masks(self) -> dict[FlagKey, bool]:
        """Read whether each flag is masked, by name and lane. A masked flag does not assert IntL.

        The flags of VDM quantities are not included.
        """
        with self._shared.operation() as module:
            return masks.read(module)

    def set_mask(self, name: str, lane: int | None, masked: bool) -> None:
        """Mask a flag, or let it assert IntL.

        Args:
            name: Name of the flag, such as ``rx_los``.
            lane: Lane; ``None`` for a flag of the whole module.
            masked: Whether to mask the flag.

        Raises:
            NotSupportedError: The module does not have this flag.
            VerifyError: The module ignores the register.
        """
        with self._shared.operation() as module:
            masks.write(module, name, lane, masked)

    # -- commands

    def cdb_command(self, number: int, payload: bytes = b"") -> bytes:
        """Run a command of the command data block and return its reply.

        Raises ``NotSupportedError`` for commands that change firmware; use the methods for firmware instead.
        """
        with self._shared.operation() as module:
            if number in CDB_FIRMWARE_WRITES:
                raise module.error(
                    NotSupportedError,
                    f"CDB command {number:04X}h changes the firmware and is refused here",
                    "Use the methods for firmware, such as download_firmware().",
                )
            return cdb.command(module, number, payload)

    # -- firmware

    def firmware(self) -> Images:
        """Return the stored firmware images A and B."""
        with self._shared.operation() as module:
            return firmware.images(module)

    def firmware_features(self) -> FirmwareFeatures:
        """Return which methods of firmware download the module supports."""
        with self._shared.operation() as module:
            return firmware.features(module)

    def download_firmware(self, file: bytes, progress: Progress = lambda done, of: None) -> None:
        """Write a vendor's file to the inactive bank; the module continues to run its present image.

        Raises the errors of :func:`~lumion_hw.drivers.transponders.cmis.firmware.download`. After error code 46h, call
        :meth:`enter_password` and try again.

        Args:
            file: Complete content of the file.
            progress: Called after every block with the bytes written and the size of the file.
        """
        with self._shared.operation() as module:
            firmware.download(module, file, progress)

    def run_firmware(self, *, inactive: bool = True, hitless: bool = False) -> None:
        """Restart the module with a firmware image, wait for its response, and reopen the module.

        Unless committed, the image is not used after the next reset. Without ``hitless`` the module is dark afterwards,
        in low power, without application and tuning. Raises the errors of
        :func:`~lumion_hw.drivers.transponders.cmis.firmware.run`.

        Args:
            inactive: Whether to start the inactive image instead of the active one.
            hitless: Whether to keep the traffic running, if the module supports this.
        """
        with self._shared.operation() as module:
            firmware.run(module, inactive=inactive, hitless=hitless)
            if not hitless:
                self._shared.emitting.clear()
            self.open()

    def commit_firmware(self) -> None:
        """Use the running image after future resets. Raises ``DeviceError``, ``VerifyError``."""
        with self._shared.operation() as module:
            firmware.commit(module)

    def copy_firmware(self, source: Literal["A", "B"]) -> None:
        """Copy an image to the other bank. Raises ``NotSupportedError``, ``DeviceError``, ``VerifyError``."""
        with self._shared.operation() as module:
            firmware.copy(module, source)

    # -- password and user memory

    def enter_password(self, password: int) -> None:
        """Unlock protected functions until the next reset. Raises ``DeviceError`` if the password is wrong.

        Args:
            password: Host password, 0 to 7FFFFFFFh; the factory setting is 00001011h.
        """
        with self._shared.operation() as module:
            cdb.enter_password(module, password)

    def change_password(self, password: int) -> None:
        """Change the host password. Enter the present password first.

        Raises:
            LimitError: The password is not 0 to 7FFFFFFFh; nothing was changed.
            DeviceError: The module is locked.
        """
        with self._shared.operation() as module:
            cdb.change_password(module, password)

    def user_memory(self) -> bytes:
        """Return the 128 bytes of user memory (page 03h). Raises ``NotSupportedError`` if the module has none."""
        with self._shared.operation() as module:
            return cdb.read_user_memory(module)

    def write_user_memory(self, offset: int, data: bytes) -> None:
        """Write a part of the user memory and read the bytes back.

        Raises the errors of :func:`~lumion_hw.drivers.transponders.cmis.cdb.write_user_memory`. After a
        ``VerifyError``, call :meth:`enter_password` and try again.
        """
        with self._shared.operation() as module:
            cdb.write_user_memory(module, offset, data)
