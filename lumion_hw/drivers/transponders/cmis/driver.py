"""The driver of one CMIS module."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Any, Literal

from lumion_hw.clock import Clock
from lumion_hw.drivers.life_cycle import Driver, close_on_error
from lumion_hw.drivers.transponders.cmis import cdb, data_paths as dp, firmware, monitors, power, snapshots
from lumion_hw.drivers.transponders.cmis.data_paths import ALL_LANES, DataPath
from lumion_hw.drivers.transponders.cmis.diagnostics import Diagnostics, Vdm, VdmSample
from lumion_hw.drivers.transponders.cmis.firmware import Images, Progress
from lumion_hw.drivers.transponders.cmis.opening import open_module
from lumion_hw.drivers.transponders.cmis.path_driver import ModulePath, PathDriver, path_of
from lumion_hw.drivers.transponders.cmis.performance import PerformanceReader
from lumion_hw.drivers.transponders.cmis.scope import Scope
from lumion_hw.drivers.transponders.cmis.shared import OpenModule, SharedModule
from lumion_hw.errors import LumionError, NotSupportedError
from lumion_hw.interfaces import Reading
from lumion_hw.sessions.module.adapter import PinnedAdapter
from lumion_hw.sessions.module.paged_i2c import PagedI2c
from lumion_hw.sessions.module.pages import ModulePages
from lumion_hw.sessions.module.registers import I2cDevice, ModuleAbsentError
from lumion_hw.standards.cmis import codes
from lumion_hw.standards.cmis.codes import CDB_FIRMWARE_WRITES, ModuleState, Pattern
from lumion_hw.standards.cmis.firmware import FirmwareFeatures
from lumion_hw.standards.cmis.image import MemoryImage


class CmisTransponder(PathDriver, Driver):
    """Driver of one module; implements ``CoherentTransponder``, ``BreakoutTransponder``. Thread-safe.

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
        lane: Serve only the data paths on this media lane, as where only its fibre is plugged in; by default all of the
            module. :meth:`path` serves one.
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
        """Open the way to the module and read its identity, what it advertises, and what its optional pages list.

        Raises:
            ConnectError: The way cannot be opened.
            ModuleAbsentError: No module.
            NotRespondingError: The module does not answer within its start-up time.
            IdentityError: Another module than expected, or one that is not managed by CMIS.
        """
        shared = self._shared
        with shared.changing, close_on_error(self.close):
            shared.pages.open()
            # Asked before the bus is: an empty socket does not acknowledge, and neither does a module that starts up.
            pins = shared.pins
            if pins is not None and "mod_prs_l" in pins.wired and not pins.is_asserted("mod_prs_l"):
                raise ModuleAbsentError(
                    "ModPrsL is high: no module in the socket",
                    device=self._device,
                    address=shared.pages.name,
                    hint="Plug it in; if there is one, check which pin ModPrsL is wired to.",
                )
            module = open_module(shared.pages, shared.clock, self._device, self._bank, self._expected, self._quirks)
            vdm, diagnostics = Vdm(module), Diagnostics(module)
            shared.opened = OpenModule(module, vdm, diagnostics, PerformanceReader(module, vdm, diagnostics))

    def close(self) -> None:
        """Release the way to the module; idempotent, never raises. The transmitter is left as it is."""
        self._shared.opened = None
        self._shared.lit.clear()
        self._shared.pages.close()

    def path(self, first_lane: int) -> ModulePath:
        """Return the driver of one data path: the one that begins on a host lane, as after :meth:`select_application`.

        It selects, enables, proves, locks and reads its own lanes, and leaves those of other paths alone.

        Args:
            first_lane: First host lane, from 1.

        Raises:
            ConfigError: No application of the module begins there.
        """
        return path_of(self._shared, first_lane)

    # -- who and what it is

    @property
    def is_flat(self) -> bool:
        """Whether the module has only the lower memory and page 00h, as cables have."""
        return self._opened.advertised.flat

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

    def module_readings(self) -> dict[str, Reading]:
        """Read the monitors of the module, by name; those it does not have are marked, not 0."""
        return monitors.module_readings(self._opened)

    def samples(self) -> tuple[VdmSample, ...]:
        """Read all diagnostic samples, unfrozen."""
        # Also where there is nothing to sample: a module that is gone is an error, not an empty answer.
        self._opened.memory.number("module_state")
        return self._shared.parts().vdm.samples()

    def dump(self) -> MemoryImage:
        """Read the whole memory without clearing a flag."""
        module = self._opened
        with module.memory.pages.transaction():
            return snapshots.dump(module, self._shared.parts().vdm)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Switch off the data paths that were switched on in this block, and close."""
        if self._shared.lit:
            # The error that ended the block says more than one from a module that may be gone by now.
            with contextlib.suppress(LumionError), self._shared.operation() as module:
                module.guard()
                in_use = dp.data_paths(module)
                self.switch_off(module, [path for path in in_use if path.first_lane in self._shared.lit], in_use)
        self.close()

    # -- power

    def power_down(self) -> None:
        """Put the module in low power, and wait until it is. Raises as :meth:`power_up`."""
        with self._shared.operation() as module:
            power.power_down(module, self._shared.pins)
            self._shared.lit.clear()

    def reset(self) -> None:
        """Reset the module and open it anew; it forgets application, tuning and power.

        By ResetL where that is wired, which also reaches a module that hangs on its bus; otherwise by software.
        """
        with self._shared.operation() as module:
            power.reset(module, self._shared.pins)
            self._shared.lit.clear()
            self.open()

    def interrupt(self) -> bool:
        """Whether the module pulls IntL: one of its flags that is not masked is up. Reading the flags releases it.

        Raises:
            NotSupportedError: IntL is not wired to a pin.
        """
        if self._shared.pins is None:
            raise self._opened.error(
                NotSupportedError, "IntL is not wired to a pin", "Name it under 'pins' of an ftdi:// or mcp2221:// way."
            )
        return self._shared.pins.is_asserted("int_l")

    # -- diagnostics

    def set_loopback(self, kind: str, on: bool, lanes: Collection[int] = ALL_LANES) -> None:
        """Close or open a loopback: ``media_output``, ``media_input``, ``host_output`` or ``host_input``.

        Raises:
            NotSupportedError: The module does not offer it.
        """
        with self._shared.operation():
            self._shared.parts().diagnostics.set_loopback(kind, on, lanes)

    def start_pattern(self, end: str, pattern: Pattern, lanes: Collection[int] = ALL_LANES) -> None:
        """Start a test pattern at ``host_generator``, ``media_generator``, ``host_checker`` or ``media_checker``.

        Raises:
            NotSupportedError: The module does not offer it.
        """
        with self._shared.operation():
            self._shared.parts().diagnostics.start_pattern(end, pattern, lanes)

    def stop_pattern(self, end: str, lanes: Collection[int] = ALL_LANES) -> None:
        """Stop a test pattern. Raises as :meth:`start_pattern`."""
        with self._shared.operation():
            self._shared.parts().diagnostics.stop_pattern(end, lanes)

    def pattern_ber(self, side: str, lane: int) -> Reading | None:
        """Return the bit error ratio that the checker of ``host`` or ``media`` counts.

        It is stale while that checker does not run, and ``None`` if the module has no such results.
        """
        self._opened.memory.number("module_state")
        return self._shared.parts().diagnostics.result(f"{side}_ber", lane)

    def cdb_command(self, number: int, payload: bytes = b"") -> bytes:
        """Run a command of the command data block and return its reply.

        Raises:
            NotSupportedError: It changes the firmware: there are calls for that, in an order that is safe.
        """
        with self._shared.operation() as module:
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
        with self._shared.operation() as module:
            return firmware.images(module)

    def firmware_features(self) -> FirmwareFeatures:
        """Return how the module takes firmware."""
        with self._shared.operation() as module:
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
        with self._shared.operation() as module:
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
        with self._shared.operation() as module:
            firmware.run(module, inactive=inactive, hitless=hitless)
            if not hitless:
                self._shared.lit.clear()
            self.open()

    def commit_firmware(self) -> None:
        """Make the running image the one that starts from now on. Raises ``DeviceError``, ``VerifyError``."""
        with self._shared.operation() as module:
            firmware.commit(module)

    def copy_firmware(self, source: Literal["A", "B"]) -> None:
        """Copy an image into the other bank. Raises ``NotSupportedError``, ``DeviceError``, ``VerifyError``."""
        with self._shared.operation() as module:
            firmware.copy(module, source)

    # -- password and user memory

    def enter_password(self, password: int) -> None:
        """Unlock what the module protects, until its next reset.

        Args:
            password: The host's password, 0 to 7FFFFFFFh; 00001011h until it was changed.

        Raises:
            DeviceError: It is wrong.
        """
        with self._shared.operation() as module:
            cdb.enter_password(module, password)

    def change_password(self, password: int) -> None:
        """Give the module another host password; the present one has been entered.

        Raises:
            LimitError: Not from 0 to 7FFFFFFFh; what lies above belongs to the maker. Nothing was changed.
            DeviceError: The module is locked.
        """
        with self._shared.operation() as module:
            cdb.change_password(module, password)

    def user_memory(self) -> bytes:
        """Return the 128 bytes that the module keeps for its user (page 03h). Raises ``NotSupportedError``."""
        with self._shared.operation() as module:
            return cdb.read_user_memory(module)

    def write_user_memory(self, offset: int, data: bytes) -> None:
        """Write some of the 128 bytes of the user and read them back.

        Raises:
            NotSupportedError: The module keeps none.
            LimitError: They do not fit; nothing was written.
            VerifyError: The module keeps others: it may want its password first.
        """
        with self._shared.operation() as module:
            cdb.write_user_memory(module, offset, data)
