"""Firmware of an emulated module."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lumion_hw.emulator.transponders.cmis.cdb import TRIGGER_BYTE, CommandBlock, FirmwareCommands, FirmwareStore, Image
from lumion_hw.emulator.transponders.cmis.core import Core
from lumion_hw.emulator.transponders.cmis.diagnostics import RESULTS_PAGE, SELECTOR_BYTE, EmulatedDiagnostics
from lumion_hw.emulator.transponders.cmis.ends import TUNING_PAGE, Laser, Receivers, Transmitters, tuning_bytes
from lumion_hw.emulator.transponders.cmis.host_port import (
    CHANGE_BYTE,
    USER_EEPROM_PAGE,
    Effect,
    HostPort,
    Passwords,
    Written,
)
from lumion_hw.emulator.transponders.cmis.measurements import (
    FREEZE_BYTE,
    CoherentPages,
    EmulatedPerformance,
    ModuleMonitors,
    VdmPages,
)
from lumion_hw.emulator.transponders.cmis.memory import Flags, build_memory
from lumion_hw.emulator.transponders.cmis.optics import Emit, Optics
from lumion_hw.emulator.transponders.cmis.profiles import CdbProfile, ModuleProfile
from lumion_hw.emulator.transponders.cmis.states import ControlSets, DataPaths, ModuleMachine
from lumion_hw.standards.cmis import Page
from lumion_hw.standards.cmis.cdb import CDB_PAGE
from lumion_hw.standards.cmis.codes import ModuleState
from lumion_hw.standards.cmis.vdm import CONTROL_PAGE, SAMPLE_PAGE

_CONTROL_BYTE = 26
_SOFTWARE_RESET = 0x08
_LANE_CONTROL_PAGE = 0x10
_APPLY = (
    (0, 143, False),
    (0, 144, True),
    (0, 176, True),
    (0, 177, True),
    (1, 178, False),
    (1, 179, True),
    (1, 211, True),
    (1, 212, True),
)
"""Number of a staged control set, byte of its trigger on page 10h, and whether the trigger is ApplyImmediate."""
_MAX_STEPS = 64  # more steps than any path through the states has; stops endless loops caused by quirks
_IDLE_SAMPLES = 10
"""Ratio of the measurement intervals of a module that is not ready and of a ready module."""


class ModuleFirmware:
    """All parts of one module.

    Args:
        low_power_pin: Whether the host asserts the low-power pin.
        optics: Returns the light at the receivers.
    """

    def __init__(self, core: Core, serial: str, low_power_pin: bool, optics: Optics, emit: Emit) -> None:
        self._core, self._serial = core, serial
        self.optics, self.emit = optics, emit
        self.is_plugged = True
        self.machine = ModuleMachine(core, low_power_pin)
        self.paths = DataPaths(core)
        self._sets = ControlSets(core, self.paths)
        self._lasers = self._make_lasers()
        self.transmitters = Transmitters(core, self.paths, self._lasers)
        self._receivers = Receivers(core, self.paths, self._lasers, self.transmitters)
        self._monitors = ModuleMonitors(core, self.transmitters, self._receivers)
        self._performance = EmulatedPerformance(core, self.paths, self.transmitters, self._receivers, self._monitors)
        self._coherent = CoherentPages(core, self._performance)
        self._vdm = VdmPages(core, self._performance)
        self.diagnostics = EmulatedDiagnostics(core, self.paths, self._receivers)
        self._passwords = Passwords(core)
        self.banks = _initial_store(core.profile)
        self.commands, self._images = self._make_commands()
        self._renderers = self._make_renderers()
        self.port = HostPort(core, self.render, self._effects())
        self._reset_requested = False

    def _make_commands(self) -> tuple[CommandBlock | None, FirmwareCommands | None]:
        core, cdb = self._core, self._core.profile.cdb
        if cdb is None:
            return None, None
        images = FirmwareCommands(core, cdb, self.banks, self._reboot)
        return CommandBlock(core, cdb, self._passwords, images), images

    def _reboot(self, hitless: bool) -> None:
        if not hitless:
            self.restart()
            return
        self.banks.boot()
        self._passwords.restart()
        self.port.busy_until_s = self._core.now + self._core.timing.management_init_s
        if self._images is not None:
            self._images.show_versions()

    def _make_lasers(self) -> dict[int, Laser]:
        core, profile = self._core, self._core.profile.laser
        if profile is None:
            return {}
        bound = profile.frequency_error_mhz
        return {
            lane: Laser(core, self.paths, profile, lane, float(core.rng.uniform(-bound, bound)))
            for lane in range(1, core.profile.media_lanes + 1)
        }

    # -- register effects --------------------------------------------------------------------------------------------

    def _effects(self) -> dict[tuple[Page, int], Effect]:
        effects: dict[tuple[Page, int], Effect] = {(None, _CONTROL_BYTE): self._control}
        # By byte, not by register: a host may write a password in pieces, and the last byte triggers the check.
        effects |= {(None, byte): self._passwords.written for byte in range(CHANGE_BYTE, CHANGE_BYTE + 8)}
        for number, byte, immediate in _APPLY:
            effects[_LANE_CONTROL_PAGE, byte] = partial(self._apply, number, byte, immediate)
        effects |= {(TUNING_PAGE, byte): self._tune for byte in tuning_bytes(len(self._lasers))}
        effects[RESULTS_PAGE, SELECTOR_BYTE] = self.diagnostics.select
        effects[CONTROL_PAGE, FREEZE_BYTE] = self._vdm.written
        if self.commands is not None:
            effects[CDB_PAGE, TRIGGER_BYTE] = self.commands.triggered
        return effects

    def _control(self, written: Written) -> None:
        self._reset_requested = bool(written[None, _CONTROL_BYTE] & _SOFTWARE_RESET)

    def _apply(self, number: int, byte: int, immediate: bool, written: Written) -> None:
        self._sets.trigger(number, written[_LANE_CONTROL_PAGE, byte], immediate=immediate)

    def _tune(self, written: Written) -> None:
        for laser in self._lasers.values():
            laser.written(written)

    def store(self, offset: int, data: bytes) -> None:
        """Store a host's write transaction and perform the triggered actions."""
        self.port.store(offset, data)
        if self._reset_requested:
            self.restart()
        self.settle()

    def _make_renderers(self) -> dict[Page, Callable[[], None]]:
        renderers: dict[Page, Callable[[], None]] = {
            None: self._render_lower,
            0x11: self._monitors.write_registers,
            TUNING_PAGE: self._render_summaries,
            RESULTS_PAGE: self.diagnostics.write_results,
            0x34: self._coherent.write_media_fec,
            0x35: self._coherent.write_link,
            0x3A: self._coherent.write_host_fec,
        }
        for group in range(len(self._core.profile.vdm)):
            renderers[SAMPLE_PAGE + group] = partial(self._vdm.write_group, group)
        return renderers

    def render(self, page: Page) -> None:
        """Update the registers of a page before a read."""
        render = self._renderers.get(page)
        if render is not None and self._core.memory.has(page):
            render()

    def _render_summaries(self) -> None:
        self._core.flags.put_summaries()

    def _render_lower(self) -> None:
        self._monitors.write_registers()
        self._core.flags.put_summaries()
        self._core.memory.put("interrupt_deasserted", not self._core.flags.interrupt)

    # -- operation --------------------------------------------------------------------------------------------------

    @property
    def _is_powered(self) -> bool:
        return self.machine.state is ModuleState.READY

    def settle(self) -> None:
        """Run the state machines until no transition is left, then update light and flags."""
        if not self.is_plugged:
            return
        changed, before = False, self._is_powered
        for _ in range(_MAX_STEPS):
            if not self._step():
                break
            changed = True
        self.transmitters.update(self.emit)
        # Sample at once, so that no flag or monitor shows the previous state for a sample period.
        if self._is_powered != before:
            self._next_sample.cancel()
            self._sample()
        elif changed:
            self._receivers.sample(self.optics, self._is_powered)

    def _step(self) -> bool:
        machine = self.machine
        # The module goes before its data paths: they come up only once it is ready, and go down with it.
        moved = machine.step(self.paths.all_deactivated)
        for laser in self._lasers.values():
            moved = laser.step(self._is_powered) or moved
        ready = self._is_powered and not machine.low_power_requested
        faulty = machine.state is None or machine.state is ModuleState.FAULT
        moved = self.paths.step(ready, faulty) or moved
        return self._vdm.step(self._is_powered) or moved

    def _sample(self) -> None:
        self._receivers.sample(self.optics, self._is_powered)
        self._monitors.sample(self._is_powered)
        self._performance.sample(self._is_powered)
        self._vdm.check_thresholds(self._is_powered)
        if self._core.profile.diagnostics:
            self.diagnostics.sample(self._is_powered)
        period_s = self._core.timing.sample_s * (1 if self._is_powered else _IDLE_SAMPLES)
        self._next_sample = self._core.agenda.after(period_s, self._sample)

    # -- start-up ---------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Restart the module from its defaults, as after a reset (CMIS 6.3.2). User EEPROM and password stay."""
        self._reset_requested = False
        core = self._core
        core.agenda.clear()
        self.transmitters.switch_light_off(self.emit)
        # The user EEPROM is non-volatile; everything else returns to its default.
        old_memory = core.memory
        core.memory = build_memory(core.profile, core.quirks, self._serial)
        if core.profile.user_eeprom:
            core.memory.half(USER_EEPROM_PAGE)[:] = old_memory.half(USER_EEPROM_PAGE)
        core.flags = Flags(core.memory)
        self.banks.boot()
        if self._images is not None:
            self._images.show_versions()
        if core.has("drops_to_lowpwr_on_reset"):
            core.memory.put("low_pwr_request_sw", True)
        self._spoil_checksum()
        for part in (self._passwords, self.paths, self._receivers, self._performance, self._vdm, self.diagnostics):
            part.restart()
        for laser in self._lasers.values():
            laser.restart()
        if self.commands is not None:
            self.commands.restart()
        self.port.restart()
        self.machine.start()
        self._sample()

    def remove_power(self) -> None:
        """Switch the supply off: the light goes out at once and all activity stops."""
        self.is_plugged = False
        self._core.agenda.clear()
        self.transmitters.switch_light_off(self.emit)

    def restore_power(self) -> None:
        """Switch the supply on; no effect on a powered module."""
        if not self.is_plugged:
            self.is_plugged = True
            self.restart()

    def fault_changed(self, fault: str) -> None:
        """Update the module after the start or end of a fault."""
        if fault == "unplug":
            if self._core.has("unplug"):
                self.remove_power()
            else:
                self.restore_power()
        elif fault == "bad_checksum":
            self._core.memory.refresh_checksums()
            self._spoil_checksum()
        self.settle()

    def _spoil_checksum(self) -> None:
        if self._core.has("bad_checksum"):
            self._core.memory.put("page_00h_checksum", ~self._core.memory.count("page_00h_checksum") & 0xFF)


def _initial_store(profile: ModuleProfile) -> FirmwareStore:
    cdb = profile.cdb or CdbProfile()
    images = {bank: Image(version, valid=True) for bank, version in zip("AB", cdb.firmware, strict=True)}
    return FirmwareStore(images, cdb.factory)
