"""Monitor channels of the emulated board (protocol section 6.1) and telemetry streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import (
    FIRST_TELEMETRY_STREAM,
    EventCredit,
    StatsCounter,
    TelemetryEvent,
    is_newer,
    monitor_code,
)
from lumion_hw.emulator.mesh.lumion.core import BoardCore
from lumion_hw.emulator.mesh.lumion.profile import BoardProfile


class BoardMonitors:
    """Analogue-digital converters of the board's monitors.

    Args:
        profile: Resolution, full scale and scan time.
        sense_ma: Called with a number of scans and the time of the first; returns mean photocurrents in mA, shape
            ``(n_adc,)``.
    """

    def __init__(self, profile: BoardProfile, sense_ma: Callable[[int, float], NDArray[np.float64]]) -> None:
        self._profile = profile
        self._sense_ma = sense_ma

    def scan(self, n_avg: int, at_s: float) -> NDArray[np.uint16]:
        """Return the channel codes averaged over ``n_avg`` scans, shape ``(n_adc,)``; 65535 means saturated."""
        profile = self._profile
        current_na = np.asarray(self._sense_ma(n_avg, at_s), dtype=np.float64) * 1e6
        top = (1 << profile.adc_bits) - 1
        # Saturated at full scale, like a converter; codes on the wire always have 16 bits.
        native = np.clip(np.rint(current_na / profile.adc_full_scale * top), 0, top).astype(np.uint16)
        return monitor_code(native, profile.adc_bits)

    def scan_s(self, n_avg: int) -> float:
        """Return the duration of ``n_avg`` monitor scans in seconds."""
        return n_avg * self._profile.adc_scan_us * 1e-6


QUEUE_RECORDS = 8
"""Largest number of unsent records of one stream; beyond it the oldest is discarded."""

_U32 = 1 << 32


@dataclass(frozen=True)
class BoardSample:
    """One averaged scan of the monitors.

    Attributes:
        ready_s: Time at which the scans are over.
        tick: Tick at the start of the scans.
        generation: Number of the code table that is driven at the start of the scans.
        chip_temp: Chip temperature in 0.01 degrees C, or ``None``.
        adc: Codes of the selected channels.
    """

    ready_s: float
    tick: int
    generation: int
    chip_temp: int | None
    adc: NDArray[np.uint16]


@dataclass
class TelemetrySender:
    """One telemetry stream.

    Attributes:
        credit: Number of events that the host allows, and numbers of events sent and discarded.
        channels: Selected monitors, ascending.
        n_avg: Number of scans averaged per record.
        period: Ticks between records; 0 for a stopped stream.
        next_edge: Number of the tick at which the next scan begins.
        queue: Records that wait to be sent, oldest first.
    """

    credit: EventCredit = field(default_factory=lambda: EventCredit(0))
    channels: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    n_avg: int = 1
    period: int = 0
    next_edge: int = 0
    queue: deque[BoardSample] = field(default_factory=deque)

    @property
    def sendable_events(self) -> int:
        """Number of waiting events that the host allows to send now."""
        limit, next_event = self.credit.credit_limit, self.credit.next_event
        return (limit - next_event) % _U32 if is_newer(limit, next_event) else 0


class Telemetry:
    """All telemetry streams of a board.

    Scans are made only when a method is called. A scan that was due earlier sees the light at the time of the call.
    """

    def __init__(self, core: BoardCore, monitors: BoardMonitors) -> None:
        self._core = core
        self._monitors = monitors
        self.streams: dict[int, TelemetrySender] = {}

    def clear(self) -> None:
        """End all telemetry streams (docs/protocol.md, section 4.1)."""
        self.streams.clear()

    def open(self, number: int, stream: TelemetrySender) -> None:
        """Open a telemetry stream, in place of an earlier stream of the same number."""
        self.streams[number] = stream

    def exists(self, number: int) -> bool:
        """Return whether a telemetry stream with this number is open."""
        return FIRST_TELEMETRY_STREAM <= number < FIRST_TELEMETRY_STREAM + self._core.profile.n_streams

    # -- scans ------------------------------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """Return the time of the next telemetry scan; ``None`` without an open stream."""
        edges = [stream.next_edge for stream in self.streams.values() if stream.period]
        return self._core.edge_s(min(edges)) if edges else None

    def run_due(self, until_s: float, *, blocked: bool) -> None:
        """Carry out the due telemetry scan, or count it as dropped.

        Args:
            until_s: Time before which no other action is due.
            blocked: Whether no event can be sent to the host before ``until_s``.
        """
        core = self._core
        stream = min((item for item in self.streams.values() if item.period), key=lambda item: item.next_edge)
        due = max((core.tick_number(until_s) - stream.next_edge) // stream.period + 1, 1)
        scans = due if stream.sendable_events else 0
        if blocked:
            scans = min(scans, QUEUE_RECORDS)
        # Counted together, not scanned one by one: a stream without credit costs nothing.
        if scans < due:
            self._discard(stream, due - scans)
            stream.next_edge += (due - scans) * stream.period
            return
        at_s = core.edge_s(stream.next_edge)
        adc = self._monitors.scan(stream.n_avg, at_s)[stream.channels]
        ready_s = at_s + self._monitors.scan_s(stream.n_avg)
        stream.queue.append(BoardSample(ready_s, core.tick(at_s), core.generation, core.chip_temp, adc))
        stream.next_edge += stream.period
        # The newest records are the most useful; the gap shows in the number of dropped ones.
        while len(stream.queue) > min(QUEUE_RECORDS, stream.sendable_events):
            stream.queue.popleft()
            self._discard(stream, 1)

    def _discard(self, stream: TelemetrySender, records: int) -> None:
        stream.credit.discard(records)
        self._core.count(StatsCounter.EVENTS_DROPPED, records)

    # -- events -----------------------------------------------------------------------------------------------------

    def next_ready_s(self) -> float | None:
        """Return the earliest time to send a telemetry event; ``None`` if no event is waiting."""
        return min((stream.queue[0].ready_s for stream in self.streams.values() if stream.queue), default=None)

    def take_event(self) -> tuple[int, int, bytes]:
        """Remove the oldest waiting event. Return stream number, event number and payload."""
        number, stream = min(
            (item for item in self.streams.items() if item[1].queue), key=lambda item: item[1].queue[0].ready_s
        )
        sample = stream.queue.popleft()
        event = TelemetryEvent(sample.tick, stream.credit.dropped, sample.generation, sample.chip_temp, sample.adc)
        return number, stream.credit.send(), event.encode()
