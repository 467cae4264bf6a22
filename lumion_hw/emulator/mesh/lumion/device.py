"""The emulated mesh controller as a device, with its connections and fault hooks."""

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

    The board acts when :meth:`advance` is called or bytes are exchanged. It then carries out all overdue actions, each
    at its scheduled time. Only the light is that of the call: a monitor scan that is carried out late sees the heat of
    its scheduled time, but the light that enters the chip now. To prevent this, :meth:`next_due` returns the time of
    every scan, and an in-memory link or the emulator's server calls the board then.

    Args:
        name: Device name in the bench file.
        rng: Random numbers for ``boot_id``.
        drive: Called with the outputs, shape ``(n_dac,)`` in mA (mV for voltage drive), and the exact time, whenever
            they change. Times never run backwards but may lie before the clock's present time.
        sense_ma: Called with a number of scans and the exact time of the first; returns the mean photocurrents in mA,
            shape ``(n_adc,)``.
        profile: Properties of the board.
    """

    what = "the mesh controller"
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
        """State of the board's outputs, as of the last :meth:`advance`."""
        return self.core.state

    @property
    def driven_codes(self) -> NDArray[np.uint16]:
        """Copy of the table of output codes driven at the last :meth:`advance`; shape ``(n_dac,)``."""
        return self.core.driven.copy()

    @property
    def boot_id(self) -> int:
        """Random number that identifies this power-up of the board."""
        return self.core.boot_id

    def connect(self) -> DeviceConnection:
        """Open another connection to the device. Raises ``ConnectError`` if power or cable is missing."""
        self._require_reachable()
        peer = BoardPeer(self, self._pacing, self.profile.mtu)
        self._processor.peers.append(peer)
        return DeviceConnection(self, peer)

    def disconnect(self, peer: BoardPeer) -> None:
        """Remove a closed connection; requests that have already arrived from its host are still executed."""
        self.advance()
        peer.is_open = False
        peer.waiting.clear()
        if peer in self._processor.peers:
            self._processor.peers.remove(peer)
        if self._context.transmitter.session_connection is peer:
            self._context.transmitter.session_connection = None

    def count_lost_bytes(self, count: int) -> None:
        """Count bytes that were lost because a host sent them while the receive buffer was full."""
        self.core.count(StatsCounter.UART_ERRORS, count)

    def next_due(self) -> float | None:
        """Return the next time at which the board acts without a request, or ``None``."""
        if self._frozen_s is not None or not self.powered:
            return self._hw_reset_due()
        due = self._processor.next_due(self._processor.time)
        return None if due is None else due[0]

    def advance(self) -> None:
        """Carry out all of the board's actions due up to now, each at its scheduled time."""
        if self._advancing:  # a scan reads the optical world, which makes every device advance
            return
        self._advancing = True
        try:
            now = self._clock.now()
            self._check_hw_watchdog(now)
            if self._frozen_s is None and self.powered:
                self._processor.run(now)
        finally:
            self._advancing = False

    # -- fault hooks ------------------------------------------------------------------------------------------------

    def trip(
        self, source: int, *, channel: int | None = None, value: int = 0, limit: int = 0, present: bool = False
    ) -> int | None:
        """Make a fault source of the board trip now.

        Return the id of the latched fault, or ``None`` if the active configuration does not enable the source. A
        persistent condition then trips as soon as the source is enabled.

        Args:
            source: Number of the source (``FaultSource``, or 24 to 31).
            channel: Channel at which the fault occurs.
            value: Measured value, in the unit of the source.
            limit: The threshold, in the unit of the source.
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
        """Remove a fault condition; a latched fault stays latched until it is cleared by its id."""
        self.advance()
        self.core.faults.set_present(source, channel, None)

    def trigger(self) -> None:
        """Apply the external trigger: the commit or sweep point that waits for it latches at the next tick edge."""
        self.advance()
        self.core.trigger(self._processor.time)
        self._context.sweeper.trigger(self._processor.time)

    def set_chip_temperature(self, temperature_c: float) -> None:
        """Set the chip temperature in degrees C; above ``temp_trip`` the board trips, if configured."""
        self.advance()
        self.core.set_chip_temp(round(temperature_c * 100), self._processor.time)
        self.advance()

    def lose_frames(self, count: int) -> None:
        """Make the board drop the next ``count`` valid frames without counting or answering them."""
        self._processor.frames_to_lose += count

    def corrupt(self, rate: float, seed: int = 0) -> None:
        """From now on, replace bytes in both directions by random bytes with a probability of ``rate``; 0 ends this."""
        self.advance()
        self._processor.noise = Noise(rate, seed) if rate else None

    def stop_reading(self) -> None:
        """Make the board stop reading bytes until :meth:`resume_reading` or a reset, so that the host must wait.

        All other functions continue, so the watchdog trips after a while.
        """
        self.advance()
        self._processor.reading = False

    def resume_reading(self) -> None:
        """Make the board read bytes again, beginning with the accumulated bytes."""
        self._processor.reading = True
        self.advance()

    def reset(self) -> None:
        """Restart the board's processor: new ``boot_id``, outputs 0; connections stay open but lose pending bytes."""
        self.advance()
        self._reboot(self._clock.now())

    def _lose_power(self) -> None:
        self.core.enter_safe(self._clock.now())
        for peer in self._processor.peers:
            peer.clear()

    def _regain_power(self) -> None:
        self._reboot(self._clock.now())

    def freeze(self) -> None:
        """Freeze the board's processor until :meth:`thaw` or a reset: no ticks, no replies, unchanged outputs.

        A board with the feature HW_WATCHDOG is reset after ``hw_watchdog_s``.
        """
        self.advance()
        if self._frozen_s is None:
            self._frozen_s = self._clock.now()

    def thaw(self) -> None:
        """End a freeze of the processor. The board's time continues from the start of the freeze."""
        self.advance()
        if self._frozen_s is None:
            return
        now = self._clock.now()
        frozen_s = now - self._frozen_s
        self._frozen_s = None
        # No time has passed for the processor, so all its scheduled times are shifted.
        self.core.shift(frozen_s)
        self.core.count(StatsCounter.TICK_OVERRUNS, int(frozen_s / self.profile.tick_s))
        self._context.sweeper.shift(frozen_s)
        self._processor.shift(frozen_s, now)
        self.advance()

    def _hw_reset_due(self) -> float | None:
        if self._frozen_s is None or not self.powered or not self.profile.has(Feature.HW_WATCHDOG):
            return None
        return self._frozen_s + self.profile.hw_watchdog_s

    def _check_hw_watchdog(self, now: float) -> None:
        # The hardware watchdog is independent of the processor and acts although the processor hangs.
        due = self._hw_reset_due()
        if due is not None and due <= now:
            self._reboot(due)

    def _reboot(self, at_s: float) -> None:
        """Power up or reset: drop all sessions, streams, the sweep image and the run. Connections stay open."""
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
