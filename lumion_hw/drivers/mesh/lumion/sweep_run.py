"""One run of a sweep on the LUMION mesh controller: load, start, collect, acknowledge (protocol sections 10.2 to 10.4).

Records are pushed as events; what is lost on the way is fetched by its index, so that a result is whole or an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import (
    SWEEP_PUSH_MS,
    AnyEvent,
    EndReason,
    RecordTrack,
    RunState,
    Stream,
    SweepAbortRequest,
    SweepAckRequest,
    SweepDataEvent,
    SweepDoneEvent,
    SweepReadReply,
    SweepReadRequest,
    SweepStartRequest,
    load_requests,
    max_elements,
)
from lumion_hw.clock import Clock
from lumion_hw.drivers.mesh.lumion.config import limit_in_ma
from lumion_hw.drivers.mesh.lumion.sweep_plan import PlannedSweep
from lumion_hw.errors import DeviceError, FrameError, LimitError, LinkTimeout, LumionError
from lumion_hw.sessions.framed import FramedSession
from lumion_hw.sessions.framed_errors import Where

_log = logging.getLogger(__name__)

_QUIET_S = 0.1  # silence after which the state of the run is asked for, on top of the time of two points
_STALLED_S = 5.0  # a run that makes no progress for so long, on top of the time of ten points, has failed
_TICKS = 1 << 32


class SweepRun:
    """One run.

    Args:
        session: The open session.
        clock: Its clock.
        planned: What to run.
        generation: Number of the run, newer than what is driven.
        keep_going: Called while waiting: feeds the watchdog; raises to end the run. Returns the time of its next call.
    """

    def __init__(
        self,
        session: FramedSession,
        clock: Clock,
        planned: PlannedSweep,
        generation: int,
        keep_going: Callable[[], float],
    ) -> None:
        self._session = session
        self._where = Where(session.device, session.address)
        self._clock = clock
        self._planned = planned
        self._generation = generation
        self._keep_going = keep_going
        self._values = np.zeros((planned.n_points, len(planned.monitors)), dtype=np.uint16)
        self._track = RecordTrack(planned.window)
        self._produced = 0
        self._due = 0
        self._acknowledged = 0
        self._start_tick = 0
        self._done: SweepDoneEvent | None = None
        self._reason: EndReason | None = None
        point_s = planned.dwell_ticks * session.hello.tick_us * 1e-6
        self._quiet_s = _QUIET_S + 1e-3 * SWEEP_PUSH_MS + 2 * point_s
        self._stalled_s = _STALLED_S + 10 * point_s

    def run(self, base_crc32: int) -> tuple[NDArray[np.uint16], int]:
        """Run the sweep to its end.

        Args:
            base_crc32: CRC-32 of the table that is believed to be driven.

        Returns:
            Monitor codes of shape ``(n_points, n_monitors)``, and the number of late points.

        Raises:
            DeviceError: The run ended early or stopped; the message says why and how many points were recorded.
            LumionError: As of every request. In all cases a run that was started is aborted, if the link allows.
        """
        hello = self._session.hello
        image = self._planned.image
        self._session.request_all(list(load_requests(self._generation, image, hello.fw_rx_max)))
        self._session.listen(Stream.SWEEP, self._take)
        try:
            self._start(base_crc32)
            self._collect()
            return self._values, self._late()
        finally:
            self._session.unlisten(Stream.SWEEP)

    def _start(self, base_crc32: int) -> None:
        try:
            reply = self._session.request(
                SweepStartRequest(self._generation, self._generation, base_crc32, self._planned.window)
            )
        except LimitError as error:
            raise limit_in_ma(error, self._session.hello.dac_full_scale * 1e-3, self._where) from error
        except LinkTimeout:  # it may have been started all the same
            self._abort()
            raise
        self._start_tick = reply.tick
        told, planned = (reply.records, reply.n_adc), self._values.shape
        if told != planned:
            self._abort()
            raise FrameError(
                f"SWEEP_START: the controller announces {told[0]} records of {told[1]} values instead of "
                f"{planned[0]} of {planned[1]}.",
                device=self._session.device,
                address=self._session.address,
                hint="Compare the versions of firmware and lumion-hw.",
            )

    def _collect(self) -> None:
        try:
            self._receive_all()
        except BaseException:  # also Ctrl-C: a sweep nobody waits for must not go on driving heaters
            self._abort()
            raise

    def _abort(self) -> None:
        if not self._session.is_open:
            return
        try:
            self._session.request(SweepAbortRequest(self._generation))
        except LumionError as error:
            _log.warning("the sweep could not be aborted: %s", error)

    def _receive_all(self) -> None:
        asked_s = moved_s = self._clock.now()
        seen = -1
        while not self._ended():
            due_s = self._keep_going()
            self._session.wait_events(min(asked_s + self._quiet_s, due_s))
            now = self._clock.now()
            if self._track.in_a_row + self._produced > seen:
                seen = self._track.in_a_row + self._produced
                asked_s = moved_s = now
            elif now >= asked_s + self._quiet_s:
                self._ask_state()
                asked_s = now
            if now - moved_s > self._stalled_s:
                raise self._error(f"made no progress for {now - moved_s:.1f} s")
            self._fetch_holes()
            self._acknowledge(least=max(1, self._planned.window // 2))
        self._acknowledge(least=1)

    def _ended(self) -> bool:
        """Whether everything is here; raises if the run has ended with less."""
        if self._reason is None:
            return False
        if self._reason is not EndReason.COMPLETE:
            raise self._error(f"ended early ({self._reason.name})")
        if self._produced < self._planned.n_points:
            raise self._error("ended as if it were complete")
        return self._track.in_a_row >= self._planned.n_points

    def _take(self, seq: int, event: AnyEvent) -> None:
        """Take one event of the stream; anything of another run is left alone."""
        del seq
        if isinstance(event, SweepDoneEvent) and event.generation == self._generation:
            self._done, self._reason = event, event.reason
            self._produced = self._due = min(event.records, self._planned.n_points)
        elif isinstance(event, SweepDataEvent) and event.generation == self._generation:
            self._store(event.first, event.values)
            self._due = max(self._due, min(event.first + len(event.values), self._planned.n_points))

    def _store(self, first: int, values: NDArray[np.uint16]) -> None:
        """Keep the records that are new; anything of another shape is left alone."""
        n_points, n_monitors = self._values.shape
        if values.shape[1] != n_monitors or not 0 < len(values) <= n_points - first:
            return
        for fresh in self._track.receive(first, len(values)):
            self._values[fresh.start : fresh.stop] = values[fresh.start - first : fresh.stop - first]
        self._produced = max(self._produced, first + len(values))

    def _ask_state(self) -> None:
        """Ask how far the run is. After this silence every record produced has arrived, or was lost on the way."""
        self._take_state(self._session.request(SweepReadRequest(self._generation)))
        self._due = self._produced

    def _take_state(self, reply: SweepReadReply) -> None:
        if reply.generation != self._generation:
            return
        self._produced = max(self._produced, min(reply.produced, self._planned.n_points))
        if reply.run_state is RunState.ENDED and self._reason is None:
            self._reason = reply.reason

    def _fetch_holes(self) -> None:
        """Ask by index for the records that should be here."""
        per_frame = max_elements(SweepReadReply, self._session.hello.fw_tx_max, row=len(self._planned.monitors))
        pieces = [
            SweepReadRequest(self._generation, first, min(per_frame, hole.stop - first))
            for hole in self._track.missing(self._due)
            for first in range(hole.start, hole.stop, per_frame)
        ]
        for piece, reply in zip(pieces, self._session.request_all(pieces), strict=True):
            if isinstance(reply, SweepReadReply):
                if reply.first == piece.first and len(reply.values) <= piece.count:
                    self._store(reply.first, reply.values)
                self._take_state(reply)

    def _acknowledge(self, least: int) -> None:
        """Release what is here, so that the controller never has to pause for room."""
        up_to, credit_limit = self._track.acknowledgement()
        if up_to - self._acknowledged >= least:
            self._session.request(SweepAckRequest(self._generation, up_to, credit_limit))
            self._acknowledged = up_to

    def _late(self) -> int:
        """Return the number of late points.

        Only SWEEP_DONE carries it. If that was lost, the length of the whole run bounds it: a late point takes at
        least two ticks more than planned, no point takes less than planned.
        """
        until = self._clock.now() + self._quiet_s
        while self._done is None and self._clock.now() < until:
            self._session.wait_events(until)
        if self._done is not None:
            return self._done.late
        reply = self._session.request(SweepAbortRequest(self._generation))  # of a run that has ended: changes nothing
        planned = self._planned.n_points * self._planned.dwell_ticks
        at_most = min(self._planned.n_points, max(0, (reply.tick - self._start_tick) % _TICKS - planned) // 2)
        _log.warning("the end of the sweep was lost on the way; at most %d points were late", at_most)
        return at_most

    def _error(self, what: str) -> DeviceError:
        return DeviceError(
            f"sweep {self._generation} {what}: {self._produced} of {self._planned.n_points} points were recorded.",
            command="SWEEP_START",
            device=self._session.device,
            address=self._session.address,
            hint="Look at faults(); the table from before the sweep is driven again unless a fault keeps it off.",
        )
