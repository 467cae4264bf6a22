"""The emulated mesh controller as a device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import EndReason, FaultSource, Feature, OutputsState, StatsCounter
from lumion_hw.clock import Clock
from lumion_hw.emulator.mesh.lumion.connection import BoardPeer
from lumion_hw.emulator.mesh.lumion.context import Context
from lumion_hw.emulator.mesh.lumion.core import BoardCore
from lumion_hw.emulator.mesh.lumion.faults import Condition
from lumion_hw.emulator.mesh.lumion.firmware import BoardFirmware
from lumion_hw.emulator.mesh.lumion.monitors import BoardMonitors, Telemetry
from lumion_hw.emulator.mesh.lumion.processor import Noise, Processor
from lumion_hw.emulator.mesh.lumion.profile import BoardProfile
from lumion_hw.emulator.mesh.lumion.session import Session
from lumion_hw.emulator.mesh.lumion.sweeper import Sweeper
from lumion_hw.emulator.mesh.lumion.transmitter import Transmitter
from lumion_hw.emulator.mesh.lumion.watching import MonitorWatch
from lumion_hw.emulator.mesh.lumion.wires import Pacing
from lumion_hw.emulator.wires.mains import DeviceConnection, Switchable


class MeshBoard(Switchable):
    """An emulated mesh controller (wire protocol version 1).

    Overdue actions are carried out at their scheduled times, but monitors read the light at the time of the call. Call
    :meth:`advance` at the times of :meth:`next_due` to avoid a difference.

    Args:
        drive: Called with the outputs, shape ``(n_dac,)`` in mA (mV for voltage drive), and the exact time, whenever
            they change. Times never run backwards but may lie before the clock's present time.
        sense_ma: Called with a number of scans and the exact time of the first; returns the mean photocurrents in mA,
            shape ``(n_adc,)``.
    """

    description = "the mesh controller"
    keeps_connections = True

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        *,
        drive: Callable[[NDArray[np.float64], float], None],
        sense_ma: Callable[[int, float], NDArray[np.float64]],
        profile: BoardProfile | None = None,
    ) -> None:
        super().__init__(name, clock)
        self._rng = rng
        self.profile = profile or BoardProfile()
        self._pacing = Pacing.parse(self.profile.pacing)
        self.core = BoardCore(self.profile, drive, clock.now(), self._draw_boot_id())
        self._session = Session(self.profile.window)
        monitors = BoardMonitors(self.profile, sense_ma)
        sweeper, telemetry = Sweeper(self.core, monitors), Telemetry(self.core, monitors)
        watch = MonitorWatch(self.core, monitors)
        transmitter = Transmitter(self.core, self._session, sweeper, telemetry, watch)
        self._context = Context(self.core, self._session, monitors, sweeper, telemetry, watch, transmitter)
        self._processor = Processor(self._context, BoardFirmware(self._context), clock.now())
        self._frozen_s: float | None = None
        self._advancing = False

    def _draw_boot_id(self) -> int:
        return int(self._rng.integers(1, 1 << 32))

    # -- the device -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> OutputsState:
        """State of the outputs at the last :meth:`advance`."""
        return self.core.state

    @property
    def driven_codes(self) -> NDArray[np.uint16]:
        """Copy of the output codes at the last :meth:`advance`; shape ``(n_dac,)``."""
        return self.core.driven.copy()

    @property
    def boot_id(self) -> int:
        """Random number of this power-up."""
        return self.core.boot_id

    def connect(self) -> DeviceConnection:
        """Open another connection. Raises ``ConnectError`` without power or cable."""
        self._require_reachable()
        peer = BoardPeer(self, self._pacing, self.profile.mtu)
        self._processor.peers.append(peer)
        return DeviceConnection(self, peer)

    def disconnect(self, peer: BoardPeer) -> None:
        """Remove a closed connection. Requests that have already arrived are still executed."""
        self.advance()
        peer.is_open = False
        peer.waiting.clear()
        if peer in self._processor.peers:
            self._processor.peers.remove(peer)
        if self._context.transmitter.session_connection is peer:
            self._context.transmitter.session_connection = None

    def count_lost_bytes(self, count: int) -> None:
        """Count bytes that were lost because the receive buffer was full."""
        self.core.count(StatsCounter.UART_ERRORS, count)

    def next_due(self) -> float | None:
        """Return the next time at which the board acts without a request; ``None`` if there is none."""
        if self._frozen_s is not None or not self.powered:
            return self._hw_reset_due()
        due = self._processor.next_due(self._processor.time)
        return None if due is None else due[0]

    def advance(self) -> None:
        """Carry out all actions due up to now."""
        if self._advancing:  # a scan reads the optical world, which makes every device advance
            return
        self._advancing = True
        try:
            now_s = self._clock.now()
            self._check_hw_watchdog(now_s)
            if self._frozen_s is None and self.powered:
                self._processor.run(now_s)
        finally:
            self._advancing = False

    # -- fault hooks ------------------------------------------------------------------------------------------------

    def trip(
        self, source: int, *, channel: int | None = None, value: int = 0, limit: int = 0, present: bool = False
    ) -> int | None:
        """Trip a fault source of the board now.

        Return the id of the recorded fault, or ``None`` if the active configuration does not enable the source. A
        persistent condition trips again as soon as the source is enabled.

        Args:
            source: Number of the source (``FaultSource``, or 24 to 31).
            channel: Channel at which the fault occurs.
            value: Measured value, in the unit of the source.
            limit: Threshold, in the unit of the source.
            present: Whether the condition persists, even over a reset, until :meth:`remove_condition`.
        """
        self.advance()
        core = self.core
        if present:
            core.faults.set_present(source, channel, Condition(value, limit))
        if not core.enabled(source):
            return None
        record = core.trip(source, self._processor.time, channel=channel, value=value, limit=limit)
        # A manual trip follows no watchdog policy: the outputs go to 0 as with every other source.
        if source == FaultSource.WATCHDOG:
            core.enter_safe(self._processor.time, EndReason.WATCHDOG)
        self.advance()
        return record.fault_id

    def remove_condition(self, source: int, channel: int | None = None) -> None:
        """Remove a fault condition. The recorded fault stays until it is cleared by its id."""
        self.advance()
        self.core.faults.set_present(source, channel, None)

    def trigger(self) -> None:
        """Receive the external trigger. Codes or sweep points that wait for it are driven from the next tick on."""
        self.advance()
        self.core.trigger(self._processor.time)
        self._context.sweeper.trigger(self._processor.time)

    def set_chip_temperature(self, temperature_c: float) -> None:
        """Set the chip temperature in degrees C. Above ``temp_trip`` the board trips, if configured."""
        self.advance()
        self.core.set_chip_temp(round(temperature_c * 100), self._processor.time)
        self.advance()

    def lose_frames(self, count: int) -> None:
        """Drop the next ``count`` valid frames silently."""
        self._processor.frames_to_lose += count

    def corrupt(self, rate: float, seed: int = 0) -> None:
        """Corrupt bytes in both directions at random from now on, with a probability of ``rate``; 0 ends this."""
        self.advance()
        self._processor.noise = Noise(rate, seed) if rate else None

    def stop_reading(self) -> None:
        """Stop reading bytes until :meth:`resume_reading` or a reset. The watchdog trips after a while."""
        self.advance()
        self._processor.reading = False

    def resume_reading(self) -> None:
        """Read bytes again, beginning with the accumulated bytes."""
        self._processor.reading = True
        self.advance()

    def reset(self) -> None:
        """Restart the processor: new ``boot_id``, outputs 0. Connections stay open but lose pending bytes."""
        self.advance()
        self._reboot(self._clock.now())

    def _lose_power(self) -> None:
        self.core.enter_safe(self._clock.now())
        for peer in self._processor.peers:
            peer.clear()

    def _regain_power(self) -> None:
        self._reboot(self._clock.now())

    def freeze(self) -> None:
        """Freeze the processor until :meth:`thaw` or a reset: no ticks, no replies, unchanged outputs.

        A board with the feature HW_WATCHDOG is reset after ``hw_watchdog_s``.
        """
        self.advance()
        if self._frozen_s is None:
            self._frozen_s = self._clock.now()

    def thaw(self) -> None:
        """End a freeze. The board's time continues from the start of the freeze."""
        self.advance()
        if self._frozen_s is None:
            return
        now_s = self._clock.now()
        frozen_s = now_s - self._frozen_s
        self._frozen_s = None
        # No time has passed for the processor, so all its scheduled times are shifted.
        self.core.shift(frozen_s)
        self.core.count(StatsCounter.TICK_OVERRUNS, int(frozen_s / self.profile.tick_s))
        self._context.sweeper.shift(frozen_s)
        self._processor.shift(frozen_s, now_s)
        self.advance()

    def _hw_reset_due(self) -> float | None:
        if self._frozen_s is None or not self.powered or not self.profile.has(Feature.HW_WATCHDOG):
            return None
        return self._frozen_s + self.profile.hw_watchdog_s

    def _check_hw_watchdog(self, now_s: float) -> None:
        # The hardware watchdog is independent of the processor and acts although the processor hangs.
        due = self._hw_reset_due()
        if due is not None and due <= now_s:
            self._reboot(due)

    def _reboot(self, at_s: float) -> None:
        self._frozen_s = None
        self._processor.reading = True
        self._processor.reset(at_s)
        # Before the boot: faults that are latched again must not find a session to report to.
        self._session.close()
        self._context.telemetry.clear()
        self._context.sweeper.reset()
        self._context.transmitter.reset()
        self.core.boot(at_s, self._draw_boot_id())
        self._context.watch.clear()
        self._context.transmitter.collect_faults()
