"""An emulated QSFP+ or QSFP28 module.

Follows SFF-8636 rev 2.11 (memory and behaviour) and SFF-8679 (low-speed signals, times). Choices where the
standards are open:

- A page that the module does not have is not accepted: the page select byte reverts to 0 and upper page 00h is read
  (clause 6.1). Modules with flat memory ignore page select, and have no writable byte.
- The module does not stretch the clock. While it stores a write it does not acknowledge its address.
- In low-power mode the lasers, the clock recovery and the host outputs are off. The monitors, the receivers and Rx LOS
  work. Tx LOS, LOL and Tx fault are not reported.
- Until initialisation has ended, no flags are set. Later, lanes that are dark on purpose have low biases and powers,
  and therefore low alarms.
- After initialisation the interrupt is asserted until the host has read byte 2 with Data_Not_Ready 0 and then a flag
  byte. A warm module begins without this interrupt and without the initialisation flag.
- The light is sampled at every access and at most once per ``refresh_s`` when time advances. Flags are late by the
  times of the profile, counted from the last sample before the change.
"""

from __future__ import annotations

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.emulator.transponders.agenda import Agenda, Appointment
from lumion_hw.emulator.transponders.module_fault import FaultPanel
from lumion_hw.emulator.transponders.qsfp import offsets
from lumion_hw.emulator.transponders.qsfp.faults import FAULTS
from lumion_hw.emulator.transponders.qsfp.flags import EmulatedQsfpFlags
from lumion_hw.emulator.transponders.qsfp.lanes import DelayedLanes
from lumion_hw.emulator.transponders.qsfp.light import ModuleLight
from lumion_hw.emulator.transponders.qsfp.memory import EmulatedQsfpMemory
from lumion_hw.emulator.transponders.qsfp.monitors import EmulatedQsfpMonitors
from lumion_hw.emulator.transponders.qsfp.offsets import LANES
from lumion_hw.emulator.transponders.qsfp.port import TwoWirePort
from lumion_hw.emulator.transponders.qsfp.profiles import QsfpProfile
from lumion_hw.quantities import w_from_dbm

ALL_LANES = 0x0F
"""Mask of the four lanes."""
_WARM_UP_S = 10.0
_ENABLE_BITS = {
    5: offsets.ENABLE_5_TO_7_BIT,
    6: offsets.ENABLE_5_TO_7_BIT,
    7: offsets.ENABLE_5_TO_7_BIT,
    8: offsets.ENABLE_8_BIT,
}
_RESERVED_BITS = {offsets.STATUS: 0xF8, offsets.TX_DISABLE: 0xF0, offsets.POWER_CONTROL: 0x70}


class QsfpModule(TwoWirePort):
    """One emulated module: an I2C target at address 50h. To be used by one thread at a time.

    Args:
        rng: Source of fixed errors and noise.
        profile: Type of the module.
        serial: Serial number, at most 16 ASCII characters, else ``ValueError``.
        light: Receives the launched light and returns the received light.
        warm: Whether the module was powered long before the clock's present time.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        *,
        profile: QsfpProfile,
        serial: str,
        light: ModuleLight,
        warm: bool = False,
    ) -> None:
        super().__init__()
        self.name = name
        self._clock, self._rng, self._light = clock, rng, light
        # A warm module starts in the past, and catches up before its first use.
        self._agenda = Agenda(clock.now() - (_WARM_UP_S if warm else 0.0))
        self._disabled, self._squelched = DelayedLanes(self._agenda), DelayedLanes(self._agenda)
        self.faults = FaultPanel(name, FAULTS, {}, self._agenda, self._fault_changed, self.advance)
        self._powered = self._plugged = self._module_selected = True
        self._reset_pin = self._low_power_pin = False
        self._host_signal = ALL_LANES
        self._launched: dict[int, float] = dict.fromkeys(LANES, 0.0)
        self._is_built = self._advancing = False
        self._insert(profile, serial)
        self._restart()
        self._follow(clock.now())
        if warm:
            self._flags.reset()
            self._reset_interrupt = False
        self._is_built = True
        for lane in self._optical_lanes:
            light.emit(lane, self._launched[lane])

    def _insert(self, profile: QsfpProfile, serial: str) -> None:
        self.profile = profile
        self.serial = serial
        self._memory = EmulatedQsfpMemory(profile, serial)
        self._flags = EmulatedQsfpFlags(self._memory)
        self._monitors = EmulatedQsfpMonitors(profile, self._memory, self._flags, self._rng)
        self._broken = 0
        self._optical_lanes = LANES if profile.wavelengths_nm else ()

    # -- supply, pins and hooks -------------------------------------------------------------------------------------

    @property
    def plugged(self) -> bool:
        """Whether the module is in its socket (ModPrsL is low)."""
        return self._plugged

    @property
    def interrupt(self) -> bool:
        """Whether the module asserts its interrupt pin (IntL is low)."""
        self.advance()
        return self._asserts_interrupt()

    @property
    def is_high_power(self) -> bool:
        """Whether the module is initialised and in high-power mode."""
        self.advance()
        return self._high_power

    def launched_w(self, lane: int) -> float:
        """Return the launched power of a lane in W."""
        self.advance()
        return self._launched[lane]

    @property
    def host_output(self) -> int:
        """Mask of the lanes whose received data reach the host: not squelched and not disabled."""
        self.advance()
        if not self._high_power:
            return 0
        squelch_disabled = self._memory.byte(3, offsets.SQUELCH_DISABLE) >> 4
        output_disabled = self._memory.byte(3, offsets.OUTPUT_DISABLE) >> 4
        return ALL_LANES & ~output_disabled & ~(self._dark & ~squelch_disabled)

    def power_off(self) -> None:
        """Cut the supply: the light goes out at once and the module stops responding."""
        self.advance()
        self._powered = False
        self._stop()

    def power_on(self) -> None:
        """Restore the supply, which starts the module; no effect while it has its supply."""
        if not self._powered:
            self.advance()
            self._powered = True
            self._start()

    def unplug(self) -> None:
        """Unplug the module: the light goes out at once and the module stops responding."""
        self.advance()
        self._plugged = False
        self._stop()

    def plug(self) -> None:
        """Plug the module in, which starts it; no effect while it is plugged in."""
        if not self._plugged:
            self.advance()
            self._plugged = True
            self._start()

    def swap(self, serial: str, profile: QsfpProfile | None = None) -> None:
        """Replace the module with another one, by default of the same type, which starts.

        Args:
            serial: Serial number of the other module, at most 16 ASCII characters, else ``ValueError``.
            profile: Type of the other module.
        """
        self.advance()
        self._stop()
        self._insert(profile or self.profile, serial)
        self._plugged = True
        self._start()

    def set_low_power_pin(self, asserted: bool) -> None:
        """Set the LPMode pin (asserted: high)."""
        self.advance()
        self._low_power_pin = asserted
        self._settle(self.profile.pin_low_power_s)

    def set_module_select(self, selected: bool) -> None:
        """Set the ModSelL pin (selected: low). A module that is not selected does not acknowledge."""
        self.advance()
        self._module_selected = selected

    def set_reset_pin(self, asserted: bool) -> None:
        """Set the ResetL pin (asserted: low). The module is off while it is asserted, and then starts."""
        self.advance()
        if asserted == self._reset_pin:
            return
        self._reset_pin = asserted
        if asserted:
            self._stop()
        else:
            self._start()

    def reset(self) -> None:
        """Pulse the ResetL pin: all volatile registers return to their defaults, and the module starts again."""
        self.set_reset_pin(True)
        self.set_reset_pin(False)

    def break_laser(self, lane: int) -> None:
        """Make the laser of a lane fail: it is dark, and Tx fault is flagged, until :meth:`repair_laser`."""
        self.advance()
        self._broken |= 1 << (lane - 1)
        self._settle()

    def repair_laser(self, lane: int) -> None:
        """Repair the laser of a lane."""
        self.advance()
        self._broken &= ~(1 << (lane - 1))
        self._settle()

    def set_host_signal(self, lanes: int) -> None:
        """Set the mask of the host lanes with a good electrical signal."""
        self.advance()
        self._host_signal = lanes & ALL_LANES
        self._settle()

    def _fault_changed(self, name: str) -> None:
        if name == "unplug":
            if self.faults.strength(name) is None:
                self._plugged = True
                self._start()
            else:
                self._plugged = False
                self._stop()
        if name == "stuck_init" and self._runs and not self._initialised:
            self._restart()
        self._settle()

    # -- time -------------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Advance the module to the clock's present time."""
        if self._advancing:  # the light of this module depends on another module, whose light depends on this one
            return
        self._advancing = True
        try:
            self._follow(self._clock.now())
            if self._data_ready and self._agenda.now - self._observed_s >= self.profile.refresh_s:
                self._observe()
        finally:
            self._advancing = False

    def next_event(self) -> float | None:
        """Return the next time at which the module changes without a host access; ``None`` if there is none."""
        due = (self._agenda.next_s(), self._flags.next_s(), self._busy_until_s)
        return min((time for time in due if time is not None and time > self._agenda.now), default=None)

    def _follow(self, until_s: float) -> None:
        while self._agenda.run_next(until_s):
            self._settle()
        self._agenda.now = max(self._agenda.now, until_s)
        self._flags.settle(self._agenda.now)

    @property
    def _runs(self) -> bool:
        return self._powered and self._plugged and not self._reset_pin

    def _stop(self) -> None:
        self._restart()
        self._settle()

    def _start(self) -> None:
        self._restart()
        self._follow(self._agenda.now)
        self._settle()

    def _restart(self) -> None:
        """Return to the defaults, and schedule the steps of the start-up if the module can run."""
        self._agenda.clear()
        self._memory.reset()
        self._flags.reset()
        self._monitors.clear()
        self._disabled.reset()
        self._squelched.reset()
        self.reset_port()
        self._bus_ready = self._data_ready = self._initialised = False
        self._high_power = self._wanted_power = False
        self._power_timer: Appointment | None = None
        self._reset_interrupt = self._status_was_read = False
        self._busy_until_s = self._agenda.now
        self._observed_s = self._refreshed_s = float("-inf")
        self._dark = ALL_LANES
        if not self._runs:
            return
        factor = self.faults.strength("slow_init") or 1.0
        self._agenda.after(factor * self.profile.bus_ready_s, self._accept_commands)
        if self.faults.strength("stuck_init") is None:
            self._agenda.after(factor * self.profile.data_ready_s, self._finish_measurement)
            self._agenda.after(factor * self.profile.init_s, self._finish_start)

    def _accept_commands(self) -> None:
        self._bus_ready = True

    def _finish_measurement(self) -> None:
        self._data_ready = True

    def _finish_start(self) -> None:
        self._initialised = True
        # Power and disabled lanes take effect without delay: nothing has been switched on yet.
        self._high_power = self._wanted_power = self._wants_high_power()
        self._refreshed_s = float("-inf")  # the next comparison with the thresholds must include the light
        self._reset_interrupt = not self.profile.is_flat
        if self.profile.has("init_complete_flag"):
            self._flags.latch(offsets.TEMPERATURE_FLAGS, offsets.INIT_COMPLETE_BIT)

    # -- power mode and light ---------------------------------------------------------------------------------------

    def _wants_high_power(self) -> bool:
        """Return the requested power mode (SFF-8636 Table 6-11)."""
        profile, control = self.profile, self._memory.lower[offsets.POWER_CONTROL]
        if profile.power_class == 1:
            return True
        if self.faults.strength("stuck_low_power") is not None and not self._wanted_power:
            return False
        by_software = bool(control & offsets.OVERRIDE_BIT)
        if bool(control & offsets.LOW_POWER_BIT) if by_software else self._low_power_pin:
            return False
        needed = _ENABLE_BITS.get(profile.power_class, 0) if profile.waits_for_high_power else 0
        return control & needed == needed

    def _settle(self, enter_low_power_s: float | None = None) -> None:
        """Follow the controls and pins: power mode, disabled lanes, squelch and light."""
        profile, lower = self.profile, self._memory.lower
        wanted = self._wants_high_power()
        if self._initialised and wanted != self._wanted_power:
            self._wanted_power = wanted
            if self._power_timer is not None:
                self._power_timer.cancel()
            low_s = profile.enter_low_power_s if enter_low_power_s is None else enter_low_power_s
            delay_s = profile.leave_low_power_s if wanted else low_s
            self._power_timer = self._agenda.after(delay_s, self._change_power)
        self._disabled.request(lower[offsets.TX_DISABLE] & ALL_LANES, profile.tx_off_s, profile.tx_on_s)
        squelch = 0
        if profile.has("tx_squelch") and profile.has("tx_squelch_of_average_power"):
            squelch = ALL_LANES & ~self._host_signal & ~self._memory.byte(3, offsets.SQUELCH_DISABLE)
        self._squelched.request(squelch, profile.squelch_s, profile.squelch_s)
        self._update_light()

    def _change_power(self) -> None:
        self._high_power = self._wanted_power

    @property
    def _broken_lanes(self) -> int:
        return ALL_LANES if self.faults.strength("tx_failure") is not None else self._broken

    def _update_light(self) -> None:
        dark = self._disabled.value | self._squelched.value | self._broken_lanes
        for lane in LANES:
            shines = self._high_power and lane in self._optical_lanes and not dark >> (lane - 1) & 1
            power_w = w_from_dbm(self.profile.launch_dbm) if shines else 0.0
            if power_w != self._launched[lane]:
                self._launched[lane] = power_w
                if self._is_built:
                    self._light.emit(lane, power_w)

    # -- measurement ------------------------------------------------------------------------------------------------

    def _observe(self) -> None:
        """Sample the light, update flags, and refresh the monitors if their period is over."""
        profile, now = self.profile, self._agenda.now
        if not profile.has_monitors or not self._data_ready:
            return
        is_dark = self.faults.strength("los") is not None
        received = {lane: 0.0 if is_dark else max(self._light.received_w(lane), 0.0) for lane in LANES}
        for lane, power_w in received.items():
            bit = 1 << (lane - 1)
            # Hysteresis: a dark receiver needs more light.
            limit_dbm = profile.los_release_dbm if self._dark & bit else profile.los_assert_dbm
            self._dark = self._dark | bit if power_w < w_from_dbm(limit_dbm) else self._dark & ~bit
        if self._initialised:
            # The change may be as old as the previous sample; assuming so keeps the real lag below its bound.
            self._report_conditions(self._observed_s)
        self._observed_s = now
        if now - self._refreshed_s >= profile.refresh_s:
            self._monitors.refresh(lambda name, lane: self._true_value(name, lane, received))
            if self._initialised:
                self._monitors.compare(self._refreshed_s + profile.fault_s)
            self._refreshed_s = now
        self._flags.settle(now)  # conditions that began long before this sample

    def _report_conditions(self, since_s: float) -> None:
        profile = self.profile
        cdr = self._memory.lower[offsets.CDR_CONTROL]
        unlocked = ALL_LANES if self.faults.strength("lol") is not None else self._dark
        no_signal = ALL_LANES & ~self._host_signal
        failed = self._broken_lanes & ~self._disabled.value
        powered = ALL_LANES if self._high_power else 0
        conditions = (
            (offsets.LOS_FLAGS, 0, self._dark, profile.los_s, True),
            (offsets.LOS_FLAGS, 4, no_signal & powered, profile.los_s, profile.has("tx_los")),
            (offsets.FAULT_FLAGS, 0, failed & powered, profile.fault_s, profile.has("tx_fault")),
            (offsets.LOL_FLAGS, 0, unlocked & cdr & powered, profile.los_s, profile.has("rx_cdr_lol")),
            (offsets.LOL_FLAGS, 4, no_signal & cdr >> 4 & powered, profile.los_s, profile.has("tx_cdr_lol")),
        )
        for byte, shift, lanes, lag_s, exists in conditions:
            if exists:
                for lane in LANES:
                    bit = 1 << (lane - 1)
                    self._flags.hold(byte, bit << shift, bool(lanes & bit), since_s + lag_s)

    def _true_value(self, name: str, lane: int, received: dict[int, float]) -> float:
        profile = self.profile
        if name == "rx_power":
            return received[lane]
        if name == "tx_power":
            return self._launched[lane]
        if name == "tx_bias":
            return profile.bias_ma if self._launched[lane] else 0.0
        if name == "temperature":
            return profile.temperature_c + (self.faults.strength("temp_high") or 0.0)
        return max(profile.supply_v - (self.faults.strength("supply_low") or 0.0), 0.0)

    def _asserts_interrupt(self) -> bool:
        return self._runs and self._data_ready and (self._reset_interrupt or self._flags.interrupt)

    # -- the I2C side -----------------------------------------------------------------------------------------------

    def _acknowledges(self, at_s: float) -> bool:
        self._follow(min(at_s, self._clock.now()))
        if not self._runs or not self._module_selected:
            return False
        if not self._bus_ready or self._agenda.now < self._busy_until_s:
            return False
        if self.faults.strength("nack") is not None:
            self.faults.use_up("nack")
            return False
        return True

    def _begin_read(self) -> None:
        if self._advancing:
            return
        self._advancing = True  # reading the light may bring all modules of the bench up to date
        try:
            self._observe()
        finally:
            self._advancing = False

    def _read_byte(self, address: int) -> int:
        value = self._plain_byte(address)
        if self.faults.strength("reserved_bits_set") is not None:
            value |= _RESERVED_BITS.get(address, 0)
        return value

    def _plain_byte(self, address: int) -> int:
        if address == offsets.STATUS:
            return self._read_status()
        if offsets.LOS_FLAGS <= address <= offsets.LAST_FLAGS:
            if self._status_was_read:
                self._reset_interrupt = False
            return self._flags.take(address)
        value = self._memory.read(address)
        if address == offsets.BASE_CHECKSUM and self._memory.page == 0 and self.faults.strength("bad_checksum"):
            return value ^ 0xFF
        if address % 2 and self.faults.strength("torn_read") is not None:
            previous = self._monitors.previous_byte(address)
            return value if previous is None else previous
        return value

    def _read_status(self) -> int:
        value = offsets.FLAT_MEMORY_BIT if self.profile.is_flat else 0
        if not self._asserts_interrupt():
            value |= offsets.INTERRUPT_RELEASED_BIT
        if not self._data_ready:
            value |= offsets.DATA_NOT_READY_BIT
        elif self._initialised:
            self._status_was_read = True
        return value

    def _write_bytes(self, addresses: list[int], data: bytes, at_s: float) -> None:
        self._follow(min(at_s, self._clock.now()))
        if not self._runs:
            return
        stored = [self._memory.write(address, value) for address, value in zip(addresses, data, strict=True)]
        if self._memory.lower[offsets.POWER_CONTROL] & offsets.SOFTWARE_RESET_BIT:
            self._start()
            return
        busy_s = self.profile.eeprom_write_s if any(stored) else self.profile.register_write_s
        if addresses != [offsets.PAGE_SELECT] or any(stored):
            self._busy_until_s = self._agenda.now + busy_s
        self._settle()
