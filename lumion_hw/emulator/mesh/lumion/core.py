"""Core of the emulated board: time in ticks, outputs and their states, watchdog, faults."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import (
    EndReason,
    FaultRecord,
    FaultSource,
    Feature,
    OutputsState,
    StatsCounter,
    WatchdogPolicy,
    is_newer,
    native_code,
    table_crc32,
)
from lumion_hw.emulator.mesh.lumion.configuration import PendingConfiguration, StoredConfiguration
from lumion_hw.emulator.mesh.lumion.faults import Condition, FaultLog
from lumion_hw.emulator.mesh.lumion.profile import BoardProfile


class Bank:
    """Output codes that the host prepares before they are driven together (staging bank)."""

    def __init__(self, n_dac: int) -> None:
        self.codes: NDArray[np.uint16] = np.zeros(n_dac, dtype=np.uint16)
        self.staged: NDArray[np.bool_] = np.zeros(n_dac, dtype=np.bool_)
        self.generation = 0

    def clear(self) -> None:
        """Delete all prepared codes."""
        self.codes[:] = 0
        self.staged[:] = False
        self.generation = 0

    def accepts(self, generation: int) -> bool:
        """Return whether codes with this table number (generation) may be added."""
        return generation == self.generation or is_newer(generation, self.generation)

    def stage_codes(
        self,
        generation: int,
        channels: NDArray[np.int64],
        codes: NDArray[np.uint16],
        base: NDArray[np.uint16] | None = None,
    ) -> None:
        """Write output codes of some channels to the bank. For a channel listed twice the last code counts.

        Args:
            generation: Number of the code table. A newer number restarts the bank.
            channels: Channel numbers.
            codes: One code per channel number.
            base: Codes of all other channels when the bank restarts; ``None`` leaves them empty.
        """
        if generation != self.generation:
            self.clear()
            self.generation = generation
            if base is not None:
                self.codes[:] = base
                self.staged[:] = True
        # One by one, because numpy does not define which of two values for one channel remains.
        for channel, code in zip(channels.tolist(), codes.tolist(), strict=True):
            self.codes[channel] = code
        self.staged[channels] = True

    @property
    def n_staged(self) -> int:
        """Number of channels with a prepared code."""
        return int(self.staged.sum())

    def first_missing(self) -> int | None:
        """Return the first channel without a prepared code; ``None`` if there is none."""
        missing = np.flatnonzero(~self.staged)
        return int(missing[0]) if missing.size else None

    def crc32(self) -> int:
        """Return the CRC-32 of all prepared codes. Channels without a code count as 0."""
        return table_crc32(self.codes)


DEFAULT_WATCHDOG_MS = 2000
"""Host silence in ms that ends a session on a board without configuration (docs/protocol.md, section 4.1)."""

_U32 = 1 << 32
_ROUNDING = 1e-4  # in ticks or milliseconds: sums of floating-point times have rounding errors


@dataclass(frozen=True)
class ArmedCommit:
    """A request to drive prepared codes that waits for its time or for the external trigger."""

    generation: int
    bank: int
    codes: NDArray[np.uint16]
    crc32: int
    edge: int | None


class BoardCore:
    """Core state of the emulated board: time, outputs, watchdog and faults.

    Args:
        drive: Called with the outputs in mA (mV for voltage drive) and the time, whenever they change.

    Attributes:
        on_sweep_end: Called with the reason and the tick when a sweep ends early.
    """

    def __init__(
        self,
        profile: BoardProfile,
        drive: Callable[[NDArray[np.float64], float], None],
        boot_at: float,
        boot_id: int,
    ) -> None:
        self.profile = profile
        self._drive = drive
        self.faults = FaultLog()
        self.flash: StoredConfiguration | None = None
        self.stats = np.zeros(len(StatsCounter), dtype=np.uint32)
        self.driven: NDArray[np.uint16] = np.zeros(profile.n_dac, dtype=np.uint16)
        self.events: list[FaultRecord] = []
        self.on_sweep_end: Callable[[EndReason, int], None] = lambda reason, tick: None
        self._chip_temp = round(profile.chip_temp_c * 100)
        self._is_hot = False
        self.boot(boot_at, boot_id)

    def boot(self, at_s: float, boot_id: int) -> None:
        """Power up with outputs at 0. Flash memory, uncleared faults and external conditions are kept (section 11)."""
        profile = self.profile
        # Latched faults survive a restart (docs/protocol.md, section 11.3): power-cycling must not bypass an interlock.
        self.faults.restart()
        self.boot_id = boot_id
        self.origin_s = at_s
        self.state = OutputsState.SAFE if self.faults.latched else OutputsState.BOOT
        self.generation = 0
        self.latch_tick = 0
        self.active = self.flash
        self.pending: PendingConfiguration | None = None
        self.banks = [Bank(profile.n_dac) for _ in range(profile.n_banks)]
        self.armed: ArmedCommit | None = None
        self.last_fed_s = -math.inf
        self.stats[:] = 0
        self._grace_from_s = at_s
        self._grace_codes = self.driven
        self._grace_step = 0
        self._base = self.driven
        self.events.clear()
        self._set_outputs(np.zeros(profile.n_dac, dtype=np.uint16), at_s)
        for source, channel in list(self.faults.conditions):
            self._latch_condition(source, channel, at_s)

    # -- time -------------------------------------------------------------------------------------------------------

    def tick_number(self, at_s: float) -> int:
        """Return the number of ticks since power-up, without wrapping."""
        return math.floor((at_s - self.origin_s) / self.profile.tick_s + _ROUNDING)

    def tick(self, at_s: float) -> int:
        """Return the number of ticks since power-up, wrapped to 32 bits."""
        return self.tick_number(at_s) % _U32

    def edge_s(self, number: int) -> float:
        """Return the time at which a tick begins."""
        return self.origin_s + number * self.profile.tick_s

    def edge_from(self, at_s: float) -> int:
        """Return the number of the first tick that begins at or after a time."""
        return math.ceil((at_s - self.origin_s) / self.profile.tick_s - _ROUNDING)

    def uptime_ms(self, at_s: float) -> int:
        """Return the milliseconds since power-up, wrapped to 32 bits."""
        return int((at_s - self.origin_s) * 1e3 + _ROUNDING) % _U32

    def shift(self, seconds: float) -> None:
        """Delay all future ticks by the duration of a freeze of the processor (protocol section 15, frozen tick)."""
        self.origin_s += seconds
        self.last_fed_s += seconds
        self._grace_from_s += seconds

    def count(self, counter: StatsCounter, amount: int = 1) -> None:
        """Add to a statistics counter of the board, which wraps."""
        self.stats[counter] = (int(self.stats[counter]) + amount) % _U32

    # -- outputs ----------------------------------------------------------------------------------------------------

    @property
    def driven_crc32(self) -> int:
        """CRC-32 of the driven output codes."""
        return table_crc32(self.driven)

    def _set_outputs(self, codes: NDArray[np.uint16], at_s: float) -> None:
        if np.array_equal(codes, self.driven):
            return
        self.driven = codes
        profile = self.profile
        # Codes on the wire always have 16 bits; the outputs move in steps of the converter.
        native = native_code(codes, profile.dac_bits).astype(np.float64)
        unit = 1e-3 * profile.dac_full_scale  # uA -> mA, uV -> mV
        self._drive(native / ((1 << profile.dac_bits) - 1) * unit, at_s)

    def latch(self, generation: int, codes: NDArray[np.uint16], number: int) -> None:
        """Drive a table of output codes from the start of a tick on (section 8)."""
        self.armed = None
        self.generation = generation
        self.latch_tick = number % _U32
        self.count(StatsCounter.LATCHES)
        self._set_outputs(codes.copy(), self.edge_s(number))

    def trigger(self, at_s: float) -> None:
        """Receive the external trigger. Prepared codes that wait for it are driven from the next tick on."""
        if self.armed is not None and self.armed.edge is None:
            # The next edge: an edge at the same time as the trigger has passed.
            self.armed = replace(self.armed, edge=self.tick_number(at_s) + 1)

    # -- sweep ------------------------------------------------------------------------------------------------------

    def enter_sweep(self, generation: int) -> None:
        """Start a sweep. The present outputs can be restored at its end."""
        self.state = OutputsState.SWEEP
        self.armed = None
        self.generation = generation
        self._base = self.driven

    def end_sweep(self, number: int, *, restore: bool) -> None:
        """End a sweep at the start of a tick. ``restore`` brings back the outputs before the sweep."""
        self.state = OutputsState.READY
        if restore:
            self.latch(self.generation, self._base, number)

    # -- temperature ------------------------------------------------------------------------------------------------

    @property
    def chip_temp(self) -> int | None:
        """Chip temperature in 0.01 degrees C; ``None`` if the board does not measure it."""
        return self._chip_temp if self.profile.has(Feature.CHIP_TEMPERATURE) else None

    def set_chip_temp(self, chip_temp: int, at_s: float) -> None:
        """Set the chip temperature in 0.01 degrees C. Above ``temp_trip`` a fault can trip."""
        self._chip_temp = chip_temp
        self._check_temperature()
        if self._is_hot:
            self._latch_condition(FaultSource.OVER_TEMPERATURE, None, at_s)

    def _check_temperature(self) -> None:
        limit = None if self.active is None else self.active.common.temp_trip
        measured = self.chip_temp
        if limit is not None and measured is not None and measured > limit:
            self._is_hot = True
            self.faults.set_present(FaultSource.OVER_TEMPERATURE, None, Condition(measured, limit))
        elif self._is_hot:
            self._is_hot = False
            self.faults.set_present(FaultSource.OVER_TEMPERATURE, None, None)

    # -- faults -----------------------------------------------------------------------------------------------------

    def enabled(self, source: int) -> bool:
        """Return whether a fault source can trip now (docs/protocol.md, section 11.3)."""
        try:
            feature = FaultSource(source).feature
        except ValueError:
            return True
        if feature is None:
            return True
        return (
            self.profile.has(feature)
            and self.active is not None
            and bool(self.active.common.fault_enable >> source & 1)
        )

    def trip(
        self, source: int, at_s: float, *, channel: int | None = None, value: int = 0, limit: int = 0
    ) -> FaultRecord:
        """Record a fault and return the record. All sources except WATCHDOG set the outputs to 0 at once."""
        record, is_new = self.faults.latch(source, self.tick(at_s), channel, value, limit)
        if is_new:
            self.count(StatsCounter.FAULTS)
            self.events.append(record)
        if source != FaultSource.WATCHDOG:
            self.enter_safe(at_s, EndReason.ESTOP if source == FaultSource.ESTOP else EndReason.FAULT)
        return record

    def enter_safe(self, at_s: float, reason: EndReason = EndReason.FAULT) -> None:
        """Enter the state SAFE with outputs at 0. A running sweep ends with the given reason."""
        was_sweeping = self.state is OutputsState.SWEEP
        self.state = OutputsState.SAFE
        self.armed = None
        self._set_outputs(np.zeros(self.profile.n_dac, dtype=np.uint16), at_s)
        if was_sweeping:
            self.on_sweep_end(reason, self.tick(at_s))

    def _latch_condition(self, source: int, channel: int | None, at_s: float) -> None:
        condition = self.faults.conditions[source, channel]
        if self.enabled(source):
            self.trip(source, at_s, channel=channel, value=condition.value, limit=condition.limit)

    def leave_safe(self) -> None:
        """Leave SAFE and GRACE after the last fault is cleared.

        The next state is READY, or BOOT for a board in SAFE without configuration.
        """
        if self.state in (OutputsState.SAFE, OutputsState.GRACE) and not self.faults.latched:
            self.state = OutputsState.BOOT if self.active is None else OutputsState.READY

    def activate(self, configuration: StoredConfiguration, at_s: float) -> None:
        """Make a configuration active (docs/protocol.md, section 7.2)."""
        # An armed commit was checked against the old limits. Applying the same configuration again changes nothing.
        if self.active is None or configuration.crc32 != self.active.crc32:
            self.active = configuration
            self.armed = None
        if self.state is OutputsState.BOOT and not self.faults.latched:
            self.state = OutputsState.READY
        self._check_temperature()
        for source, channel in list(self.faults.conditions):
            self._latch_condition(source, channel, at_s)

    # -- scheduled actions, at tick edges ---------------------------------------------------------------------------

    @property
    def watchdog_s(self) -> float:
        """Host silence in seconds after which the watchdog trips."""
        return (DEFAULT_WATCHDOG_MS if self.active is None else self.active.common.wd_timeout_ms) * 1e-3

    def next_due(self) -> float | None:
        """Return the next time at which the outputs change without a request; ``None`` if there is none."""
        number = self._next_edge()
        return None if number is None else self.edge_s(number)

    def _next_edge(self) -> int | None:
        edges = []
        if self.state is OutputsState.GRACE:
            edges.append(self._next_grace_edge())
        # The watchdog trips at a tick edge, like all changes of outputs.
        elif self._is_watched():
            edges.append(self.edge_from(self.last_fed_s + self.watchdog_s))
        if self.armed is not None and self.armed.edge is not None:
            edges.append(self.armed.edge)
        return min(edges, default=None)

    def _is_watched(self) -> bool:
        return self.state is OutputsState.SWEEP or (self.state is OutputsState.READY and bool(self.driven.any()))

    def _next_grace_edge(self) -> int:
        end = self.edge_from(self._grace_from_s + self._grace_duration_s())
        # RAMP changes the outputs at every tick, HOLD only at its end.
        if self._policy() is WatchdogPolicy.HOLD:
            return end
        return min(end, self.edge_from(self._grace_from_s) + self._grace_step + 1)

    def _policy(self) -> WatchdogPolicy:
        return WatchdogPolicy.OFF if self.active is None else WatchdogPolicy(self.active.common.wd_policy)

    def _grace_duration_s(self) -> float:
        return 0.0 if self.active is None else self.active.common.wd_param_ms * 1e-3

    def remaining_grace_ms(self, at_s: float) -> int:
        """Return the remaining time in ms of the state GRACE, in which outputs ramp down or hold."""
        return max(math.ceil((self._grace_from_s + self._grace_duration_s() - at_s) * 1e3 - _ROUNDING), 0)

    def run_due(self) -> None:
        """Carry out the actions due at the start of the next tick."""
        number = self._next_edge()
        if number is None:
            return
        if self.state is OutputsState.GRACE:
            if self._next_grace_edge() == number:
                self._step_grace(number)
        elif self._is_watched() and self.edge_from(self.last_fed_s + self.watchdog_s) == number:
            self._trip_watchdog(number)
        armed = self.armed
        if armed is not None and armed.edge == number:
            self.armed = None
            self.latch(armed.generation, armed.codes, number)

    def _trip_watchdog(self, number: int) -> None:
        at_s = self.edge_s(number)
        silence_ms = round((at_s - self.last_fed_s) * 1e3)
        self.count(StatsCounter.WD_TRIPS)
        self.trip(FaultSource.WATCHDOG, at_s, value=silence_ms, limit=round(self.watchdog_s * 1e3))
        if self._policy() is WatchdogPolicy.OFF:
            self.enter_safe(at_s, EndReason.WATCHDOG)
            return
        was_sweeping = self.state is OutputsState.SWEEP
        if was_sweeping:  # the policy applies to the base table (docs/protocol.md, section 10.4)
            self.latch(self.generation, self._base, number)
        self.state = OutputsState.GRACE
        if was_sweeping:
            self.on_sweep_end(EndReason.WATCHDOG, number % _U32)
        self.armed = None
        self._grace_from_s, self._grace_codes, self._grace_step = at_s, self.driven, 0

    def _step_grace(self, number: int) -> None:
        """Carry out one tick of GRACE, in which outputs ramp down or hold.

        At e ms into a ramp of P ms, a code is its first value x (P - e) // P.
        """
        at_s = self.edge_s(number)
        period_ms = round(self._grace_duration_s() * 1e3)
        elapsed_ms = math.floor((at_s - self._grace_from_s) * 1e3 + _ROUNDING)
        # Counted in edges, because ticks may be shorter than the milliseconds of the ramp.
        self._grace_step = number - self.edge_from(self._grace_from_s)
        if elapsed_ms >= period_ms:
            self.enter_safe(at_s)
        else:
            # In the integers of section 11.2, so that every implementation drives the same codes.
            ramped = self._grace_codes.astype(np.uint64) * np.uint64(period_ms - elapsed_ms) // np.uint64(period_ms)
            self._set_outputs(ramped.astype(np.uint16), at_s)
