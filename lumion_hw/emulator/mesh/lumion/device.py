"""The emulated mesh controller as a device: connections, and the hooks for its faults."""

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

    It acts when it is looked at (:meth:`advance`, or bytes in either direction) and makes up for everything that fell
    due meanwhile, each thing at its own instant. Monitors are read at theirs as far as the light around can tell what
    was: heat follows the instants, but what enters the chip is what enters it when the board acts. So
    :meth:`next_due` names every instant of a scan, and an in-memory link or the emulator's server lets the board act
    there. A sweep or a telemetry stream that nobody polls still latches every point, settles, and counts every record
    at the right tick.

    Args:
        name: Device name of the bench file.
        clock: The clock of the bench.
        rng: Draws ``boot_id``.
        drive: Called with the outputs, shape ``(n_dac,)`` in mA (mV for voltage drive), and the exact instant, whenever
            they change. Instants never run backwards but may lie before the clock's present time.
        sense_ma: Called with a number of scans and the exact instant of the first, as for ``drive``; returns the mean
            photocurrents in mA, shape ``(n_adc,)``.
        profile: What the board is.
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
        self._frozen_at: float | None = None
        self._advancing = False

    def _draw_boot_id(self) -> int:
        return int(self._rng.integers(1, 1 << 32))

    # -- the device -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> OutputsState:
        """State of the outputs, as of the last :meth:`advance`."""
        return self.core.state

    @property
    def driven_codes(self) -> NDArray[np.uint16]:
        """Copy of the table driven, as of the last :meth:`advance`; shape ``(n_dac,)``."""
        return self.core.driven.copy()

    @property
    def boot_id(self) -> int:
        """Random number of this power-up."""
        return self.core.boot_id

    def connect(self) -> DeviceConnection:
        """Open one more connection. Raises ``ConnectError`` without power or cable."""
        self._require_reachable()
        peer = BoardPeer(self, self._pacing, self.profile.mtu)
        self._processor.peers.append(peer)
        return DeviceConnection(self, peer)

    def disconnect(self, peer: BoardPeer) -> None:
        """Forget a connection; what has arrived from it is still executed."""
        self.advance()
        peer.is_open = False
        peer.waiting.clear()
        if peer in self._processor.peers:
            self._processor.peers.remove(peer)
        if self._context.transmitter.speaker is peer:
            self._context.transmitter.speaker = None

    def lost_bytes(self, count: int) -> None:
        """Count bytes a host sent although there was no room for them."""
        self.core.count(StatsCounter.UART_ERRORS, count)

    def next_due(self) -> float | None:
        """Return the next time at which the board does something by itself, or ``None``."""
        if self._frozen_at is not None or not self.powered:
            return self._hw_reset_due()
        due = self._processor.next_due(self._processor.time)
        return None if due is None else due[0]

    def advance(self) -> None:
        """Do everything that falls due up to the clock's present time, each thing at its own instant."""
        if self._advancing:  # a scan asks the optical world, which asks every device to advance
            return
        self._advancing = True
        try:
            now = self._clock.now()
            self._check_hw_watchdog(now)
            if self._frozen_at is None and self.powered:
                self._processor.run(now)
        finally:
            self._advancing = False

    # -- fault hooks ------------------------------------------------------------------------------------------------

    def trip(
        self, source: int, *, channel: int | None = None, value: int = 0, limit: int = 0, present: bool = False
    ) -> int | None:
        """Let a fault source trip now.

        Args:
            source: Number of the source (``FaultSource``, or 24 to 31).
            channel: Channel concerned.
            value: What was measured, in the unit of the source.
            limit: The threshold, in the unit of the source.
            present: The condition stays until :meth:`remove_condition`, also over a reset.

        Returns:
            Id of the latched fault, or ``None`` when the active configuration does not enable the source (a condition
            that is present then trips as soon as it is enabled).
        """
        self.advance()
        core = self.core
        if present:
            core.faults.set_present(source, channel, Condition(value, limit))
        if not core.enabled(source):
            return None
        record = core.trip(source, self._processor.time, channel=channel, value=value, limit=limit)
        # By hand there is no policy to follow: the outputs go to 0 as with every other source.
        if source == FaultSource.WATCHDOG:
            core.go_safe(self._processor.time, EndReason.WATCHDOG)
        self.advance()
        return record.fault_id

    def remove_condition(self, source: int, channel: int | None = None) -> None:
        """End a fault condition; a latched fault stays latched until it is cleared by its id."""
        self.advance()
        self.core.faults.set_present(source, channel, None)

    def trigger(self) -> None:
        """Give the external trigger: a commit armed for it, or a sweep's point, latches at the next tick edge."""
        self.advance()
        self.core.trigger(self._processor.time)
        self._context.sweeper.trigger(self._processor.time)

    def set_chip_temperature(self, temperature_c: float) -> None:
        """Heat or cool the chip, in degrees C: above ``temp_trip`` the board trips, if its configuration says so."""
        self.advance()
        self.core.set_chip_temp(round(temperature_c * 100), self._processor.time)
        self.advance()

    def lose_frames(self, count: int) -> None:
        """Lose the next ``count`` good frames without a trace."""
        self._processor.frames_to_lose += count

    def corrupt(self, rate: float, seed: int = 0) -> None:
        """Replace bytes at random in both directions from now on.

        Args:
            rate: Probability per byte, 0 to 1; 0 ends it.
            seed: Seed.
        """
        self.advance()
        self._processor.noise = Noise(rate, seed) if rate else None

    def stop_reading(self) -> None:
        """Read no more bytes, until :meth:`resume_reading` or a reset: they pile up, and the host has to wait.

        Everything else goes on, and so the watchdog trips.
        """
        self.advance()
        self._processor.reading = False

    def resume_reading(self) -> None:
        """Read again, beginning with what has piled up."""
        self._processor.reading = True
        self.advance()

    def reset(self) -> None:
        """Restart the processor: new ``boot_id``, outputs 0, connections stay open but forget what is under way."""
        self.advance()
        self._reboot(self._clock.now())

    def _lose_power(self) -> None:
        """Outputs 0 now, nothing answers."""
        self.core.go_safe(self._clock.now())
        for peer in self._processor.peers:
            peer.clear()

    def _regain_power(self) -> None:
        self._reboot(self._clock.now())

    def freeze(self) -> None:
        """Let the processor hang: no ticks, no answers, outputs as they are, until :meth:`thaw` or a reset.

        A board with the feature HW_WATCHDOG is reset after ``hw_watchdog_s``.
        """
        self.advance()
        if self._frozen_at is None:
            self._frozen_at = self._clock.now()

    def thaw(self) -> None:
        """End a freeze; to the board no time has passed."""
        self.advance()
        if self._frozen_at is None:
            return
        now = self._clock.now()
        stood_s = now - self._frozen_at
        self._frozen_at = None
        # To the processor no time has passed: all its instants move along.
        self.core.shift(stood_s)
        self.core.count(StatsCounter.TICK_OVERRUNS, int(stood_s / self.profile.tick_s))
        self._context.sweeper.shift(stood_s)
        self._processor.shift(stood_s, now)
        self.advance()

    def _hw_reset_due(self) -> float | None:
        if self._frozen_at is None or not self.powered or not self.profile.has(Feature.HW_WATCHDOG):
            return None
        return self._frozen_at + self.profile.hw_watchdog_s

    def _check_hw_watchdog(self, now: float) -> None:
        # The hardware watchdog is apart from the processor: it acts although that one hangs.
        due = self._hw_reset_due()
        if due is not None and due <= now:
            self._reboot(due)

    def _reboot(self, at_s: float) -> None:
        """Power-up or reset: sessions, streams, image and run are gone, connections stay open."""
        self._frozen_at = None
        self._processor.reading = True
        self._processor.reset(at_s)
        # Before the boot: faults that are latched again find no session to be told to.
        self._session.close()
        self._context.telemetry.clear()
        self._context.sweeper.reset()
        self._context.transmitter.reset()
        self.core.boot(at_s, self._draw_boot_id())
        self._context.watch.clear()
        self._context.transmitter.collect_faults()
