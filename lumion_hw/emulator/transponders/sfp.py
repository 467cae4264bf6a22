"""Emulated SFP+ module of type 10GBASE-ER.

Register map and number formats: :mod:`lumion_hw.standards.sff8472.registers`. Behaviour: SFF-8472 (start-up, soft
control, status lag, flags), SFF-8431 (TX_FAULT recovery) and IEEE 802.3 clause 52 (optical levels).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.emulator.transponders.sfp_image import (
    THRESHOLDS,
    WRITE_MASKS,
    diagnostics_image,
    identity_image,
    raw_value,
)
from lumion_hw.quantities import ratio_from_db, w_from_dbm
from lumion_hw.standards.registers import encode_unscaled
from lumion_hw.standards.sff8472.registers import A0H, A2H, BITS, FIELDS, FLAG_BITS, MEMORY_SIZE

ROW_BYTES = 8
"""Row size in bytes; a write must stay within one row (SFF-8472 section 4.4)."""

_MONITORS = tuple(THRESHOLDS)
_FLAG_OFFSETS = (112, 113, 116, 117)


@dataclass(frozen=True)
class SfpProfile:
    """Properties of an SFP+ module; the defaults are those of a 10GBASE-ER module.

    Attributes:
        launch_dbm: True launch power.
        bias_ma: Laser bias while the laser emits.
        los_assert_dbm: Optical power below which LOS is asserted.
        los_release_dbm: Optical power above which LOS is released.
        monitor_noise_db: RMS noise of the two power monitors.
        monitor_offset_db: Largest fixed error of the power monitors.
        bus_ready_s: Time from power-up until the bus responds.
        laser_ready_s: Time from power-up until the laser emits.
        data_ready_s: Time from power-up until the monitors are valid.
        refresh_s: Update period of the monitors.
        soft_control_s: Time from a soft TX_DISABLE write to its effect (at most 100 ms, SFF-8472).
        status_lag_s: Time from an event to the soft status bits (at most 100 ms).
        reinit_s: Time from the end of TX_DISABLE to light after a fault; also the duration of a change of power level.
        latched_flags: Whether alarm and warning flags stay set until they are read; vendors differ.
        thresholds: High alarm, low alarm, high warning and low warning by monitor, in degC, V, mA (bias) and dBm
            (powers).
    """

    launch_dbm: float = 1.0
    bias_ma: float = 85.0
    temperature_c: float = 45.0
    supply_v: float = 3.30
    los_assert_dbm: float = -21.0
    los_release_dbm: float = -19.5
    monitor_noise_db: float = 0.05
    monitor_offset_db: float = 1.0
    bus_ready_s: float = 0.3
    laser_ready_s: float = 2.0
    data_ready_s: float = 1.0
    refresh_s: float = 0.05
    soft_control_s: float = 0.09
    status_lag_s: float = 0.09
    reinit_s: float = 0.3
    latched_flags: bool = False
    thresholds: Mapping[str, tuple[float, float, float, float]] = field(default_factory=lambda: THRESHOLDS)


class _LaggedBit:
    """A status bit whose register shows a change only after a delay."""

    def __init__(self, value: bool) -> None:
        self.value = value
        self._reported_value = value
        self._since = -math.inf

    def change(self, value: bool, at_s: float, lag_s: float) -> None:
        """Record a change of the status bit."""
        if value != self.value:
            # Until the lag is over, the register keeps the value that it shows now.
            self._reported_value = self.reported_value(at_s, lag_s)
            self.value, self._since = value, at_s

    def reported_value(self, at_s: float, lag_s: float) -> bool:
        """Return the register value of the status bit."""
        return self.value if at_s - self._since >= lag_s else self._reported_value


class SfpModule:
    """One emulated SFP+ module: an I2C target at addresses 0x50 and 0x51.

    Args:
        emit_w: Called with the launched power in W at every change, also from the constructor.
        rx_power_w: Returns the average optical power at the receiver in W.
        vendor: Vendor name, at most 16 ASCII characters (as the next two), else ``ValueError``.
        part_number: Part number.
        serial: Serial number.
        warm: Whether the module was powered long before the clock's present time.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        *,
        emit_w: Callable[[float], None],
        rx_power_w: Callable[[], float],
        vendor: str = "LUMION EMU",
        part_number: str = "EMU-10G-ER",
        serial: str = "EMU0000001",
        profile: SfpProfile | None = None,
        warm: bool = False,
    ) -> None:
        self.name = name
        self.profile = profile or SfpProfile()
        self._clock, self._rng, self._emit_w, self._rx_power_w = clock, rng, emit_w, rx_power_w
        bound = self.profile.monitor_offset_db
        self.tx_offset_db, self.rx_offset_db = (float(value) for value in rng.uniform(-bound, bound, 2))
        self._memory = {
            A0H: identity_image(vendor, part_number, serial),
            A2H: diagnostics_image(self.profile.thresholds),
        }
        self._emitted_w = 0.0
        self._laser_broken = False
        self._pin = False
        self._reset(-math.inf if warm else clock.now())
        self._evolve(clock.now())

    def _reset(self, powered_at: float) -> None:
        diagnostics = self._memory[A2H]
        diagnostics[FIELDS["temperature"].byte : FIELDS["user_eeprom"].byte] = bytes(32)
        self.powered = True
        self._powered_at = powered_at
        self._time = self._clock.now()
        self._lasing_from = powered_at + self.profile.laser_ready_s
        self._disabled = {"pin": self._pin, "soft": False}
        self._controls: list[tuple[float, int, str, bool]] = []
        self._n_controls = 0
        self._reinit = False
        self._tx_fault = _LaggedBit(False)
        self._los = _LaggedBit(True)
        self._los_sampled_at = -math.inf
        self._refreshed_at = -math.inf
        self._level_change: tuple[float, int] | None = None
        self._busy_until = -math.inf
        self._pointer = {A0H: 0, A2H: 0}
        self._selected: int | None = None
        self._written: bytearray | None = None

    # -- the host's power, pins and hooks ---------------------------------------------------------------------------

    def power_off(self) -> None:
        """Cut the module's supply: the light goes out at once and the module stops responding."""
        self.advance()
        self.powered = False
        self._update_emission()

    def power_on(self) -> None:
        """Restore the module's supply, which starts the module."""
        if not self.powered:
            self._reset(self._clock.now())
            self.advance()

    def set_tx_disable_pin(self, disabled: bool) -> None:
        """Set the TX_DISABLE pin: light off within 100 us, on within 2 ms (SFF-8431)."""
        self.advance()
        self._pin = disabled
        self._schedule_disable("pin", disabled, self._time + (100e-6 if disabled else 2e-3))

    def break_laser(self, *, persistent: bool = False) -> None:
        """Make the laser fail: TX_FAULT is set and the light goes out. ``persistent``: until :meth:`repair_laser`."""
        self.advance()
        self._laser_broken = persistent
        if self.powered:
            self._latch_fault(self._time)
        self._update_emission()

    def repair_laser(self) -> None:
        """Repair a persistent laser failure. TX_FAULT stays set until TX_DISABLE is toggled."""
        self._laser_broken = False

    @property
    def launched_w(self) -> float:
        """Launched optical power in W at the last :meth:`advance`."""
        return self._emitted_w

    # -- time -------------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Advance the module to the clock's present time."""
        self._evolve(self._clock.now())

    def next_event(self) -> float | None:
        """Return the next time at which the module changes without a host access; ``None`` if there is none."""
        if not self.powered:
            return None
        start = self._powered_at
        times = [start + self.profile.bus_ready_s, start + self.profile.data_ready_s, self._lasing_from]
        times += [self._busy_until, *(entry[0] for entry in self._controls[:1])]
        if self._level_change is not None:
            times.append(self._level_change[0])
        return min((time for time in times if time > self._time), default=None)

    def _evolve(self, at_s: float) -> None:
        at_s = max(at_s, self._time)
        while self._controls and self._controls[0][0] <= at_s:
            due, _, source, disabled = heapq.heappop(self._controls)
            self._apply_disable(source, disabled, due)
        if self._level_change is not None and self._level_change[0] <= at_s:
            state = BITS["power_level_state"]
            level = self._memory[A2H][state.byte] & ~state.mask
            self._memory[A2H][state.byte] = level | (state.mask if self._level_change[1] else 0)
            self._level_change = None
        self._time = at_s
        # The cause remains: the laser fails again as soon as it would emit.
        if self._laser_broken and self._may_emit():
            self._latch_fault(max(self._lasing_from, self._powered_at))
        self._update_emission()

    def _schedule_disable(self, source: str, disabled: bool, due: float) -> None:
        self._n_controls += 1
        heapq.heappush(self._controls, (due, self._n_controls, source, disabled))

    def _apply_disable(self, source: str, disabled: bool, due: float) -> None:
        before = any(self._disabled.values())
        self._disabled[source] = disabled
        after = any(self._disabled.values())
        # The beginning of TX_DISABLE clears TX_FAULT; light needs t_reinit from its end (SFF-8431).
        if after and not before and self._tx_fault.value:
            self._tx_fault.change(False, due, self.profile.status_lag_s)
            self._reinit = True
        if before and not after and self._reinit:
            self._lasing_from = max(self._lasing_from, due + self.profile.reinit_s)
            self._reinit = False

    def _latch_fault(self, at_s: float) -> None:
        self._tx_fault.change(True, at_s, self.profile.status_lag_s)

    def _may_emit(self) -> bool:
        ready = self.powered and self._time >= self._lasing_from
        return ready and not any(self._disabled.values()) and not self._tx_fault.value

    def _update_emission(self) -> None:
        power_w = w_from_dbm(self.profile.launch_dbm) if self._may_emit() else 0.0
        if power_w != self._emitted_w:
            self._emitted_w = power_w
            self._emit_w(power_w)

    # -- measurement ------------------------------------------------------------------------------------------------

    def _observe(self) -> None:
        received_w = max(self._rx_power_w(), 0.0)
        limit_dbm = self.profile.los_release_dbm if self._los.value else self.profile.los_assert_dbm
        # The change may be as old as the previous sample; assuming so keeps the real lag below its bound.
        dark = received_w < w_from_dbm(limit_dbm)
        self._los.change(dark, self._los_sampled_at, self.profile.status_lag_s)
        self._los_sampled_at = self._time
        if self._time >= self._powered_at + self.profile.data_ready_s:
            if self._time - self._refreshed_at >= self.profile.refresh_s:
                self._refreshed_at = self._time
                self._refresh_monitors(received_w)
            self._write_flags()
        self._write_status()

    def _refresh_monitors(self, received_w: float) -> None:
        profile = self.profile
        noise = self._rng.standard_normal(5)
        bias_ma = profile.bias_ma + 0.1 * float(noise[2]) if self._emitted_w else 0.0
        tx_db = self.tx_offset_db + profile.monitor_noise_db * float(noise[3])
        rx_db = self.rx_offset_db + profile.monitor_noise_db * float(noise[4])
        values = {
            "temperature": profile.temperature_c + 0.05 * float(noise[0]),
            "supply": profile.supply_v + 0.001 * float(noise[1]),
            "tx_bias": bias_ma,
            "tx_power": self._emitted_w * ratio_from_db(tx_db),
            "rx_power": received_w * ratio_from_db(rx_db),
        }
        for name, value in values.items():
            entry = FIELDS[name]
            self._memory[A2H][entry.byte : entry.end] = encode_unscaled(entry, raw_value(name, value))

    def _raw_value(self, name: str) -> int:
        entry = FIELDS[name]
        data = self._memory[A2H][entry.byte : entry.end]
        return int.from_bytes(data, "big", signed=name.startswith("temperature"))

    def _write_flags(self) -> None:
        for register, kind in (("alarm_flags", "alarm"), ("warning_flags", "warning")):
            word = 0
            for monitor in _MONITORS:
                value = self._raw_value(monitor)
                if value > self._raw_value(f"{monitor}_high_{kind}"):
                    word |= 1 << FLAG_BITS[f"{monitor}_high"]
                if value < self._raw_value(f"{monitor}_low_{kind}"):
                    word |= 1 << FLAG_BITS[f"{monitor}_low"]
            # Vendors differ: flags either stay set until they are read, or follow the monitors.
            if self.profile.latched_flags:
                word |= self._raw_value(register)
            entry = FIELDS[register]
            self._memory[A2H][entry.byte : entry.end] = encode_unscaled(entry, word)

    def _write_status(self) -> None:
        lag_s = self.profile.status_lag_s
        bits = {
            "tx_disable_state": self._pin,  # the pin only: the soft bit has its own register bit
            "tx_fault": self._tx_fault.reported_value(self._time, lag_s),
            "rx_los": self._los.reported_value(self._time, lag_s),
            "data_not_ready": self._time < self._powered_at + self.profile.data_ready_s,
        }
        offset = FIELDS["status_control"].byte
        value = self._memory[A2H][offset] & WRITE_MASKS[offset]
        for name, is_set in bits.items():
            value |= BITS[name].mask if is_set else 0
        self._memory[A2H][offset] = value

    # -- the I2C side -----------------------------------------------------------------------------------------------

    def i2c_start(self, address: int, read: bool, at_s: float) -> bool:
        """Receive START and an address. Return whether the module acknowledges."""
        self._finish_write(at_s)
        self._selected = None
        if not self.powered:
            return False
        self._evolve(at_s)
        starting = self._time < self._powered_at + self.profile.bus_ready_s
        if address not in self._memory or starting or self._time < self._busy_until:
            return False
        self._selected = address
        self._written = None if read else bytearray()
        if read and address == A2H:
            self._observe()
        return True

    def i2c_write(self, value: int) -> bool:
        """Receive one byte: first the memory address, then data. Return whether the module acknowledges."""
        if self._selected is None or self._written is None:
            return False
        if self._written:
            row = self._written[0] // ROW_BYTES
            # A byte beyond the row is not acknowledged, and the write is lost.
            if (self._written[0] + len(self._written) - 1) // ROW_BYTES != row:
                self._written = self._written[:1]
                self._selected = None
                return False
        self._written.append(value)
        self._pointer[self._selected] = self._written[0]
        return True

    def i2c_read(self) -> int:
        """Return the next byte of a read; 0xFF when not addressed."""
        if self._selected is None:
            return 0xFF
        offset = self._pointer[self._selected]
        self._pointer[self._selected] = (offset + 1) % MEMORY_SIZE
        value = self._memory[self._selected][offset]
        if self._selected == A2H and self.profile.latched_flags and offset in _FLAG_OFFSETS:
            self._memory[A2H][offset] = 0
        return value

    def i2c_stop(self, at_s: float) -> None:
        """End the transaction. The module is busy while it stores the written data."""
        self._finish_write(at_s)
        self._selected = None

    def _finish_write(self, at_s: float) -> None:
        written, address = self._written, self._selected
        self._written = None
        if written is None or address is None or len(written) < 2 or not self.powered:
            return
        self._evolve(at_s)
        offset, data = written[0], written[1:]
        self._pointer[address] = (offset + len(data)) % MEMORY_SIZE
        if address == A0H:
            return
        # 40 ms up to four bytes, 80 ms up to eight (SFF-8472).
        self._busy_until = self._time + (0.040 if len(data) <= ROW_BYTES // 2 else 0.080)
        for index, value in enumerate(data, offset):
            mask = WRITE_MASKS[index]
            old = self._memory[A2H][index]
            self._memory[A2H][index] = (old & ~mask) | (value & mask)
            self._control(index, old, self._memory[A2H][index])

    def _control(self, offset: int, old: int, new: int) -> None:
        disable, level = BITS["soft_tx_disable"], BITS["power_level_select"]
        if offset == disable.byte and (old ^ new) & disable.mask:
            self._schedule_disable("soft", bool(new & disable.mask), self._time + self.profile.soft_control_s)
        if offset == level.byte and (old ^ new) & level.mask:
            self._level_change = (self._time + self.profile.reinit_s, new & level.mask)
