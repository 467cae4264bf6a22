"""Monitor readings that the LUMION mesh controller sends periodically (protocol sections 9.1 and 9.2)."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Self

from firmware_protocol import (
    FIRST_TELEMETRY_STREAM,
    AnyEvent,
    EventTrack,
    HelloReply,
    SubscribeFlag,
    SubscribeRequest,
    TelemetryEvent,
    mask_from_channels,
    max_elements,
    monitor_from_code,
)
from lumion_hw.clock import Clock, Deadline
from lumion_hw.drivers.mesh.lumion.config import out_of_range_error
from lumion_hw.drivers.mesh.lumion.monitors import check_average, checked_monitors
from lumion_hw.errors import BusyError, DeviceAddress, FrameError, LinkLost, LinkTimeout, LumionError
from lumion_hw.interfaces import MonitorReading, TelemetrySample
from lumion_hw.sessions.framed.session import FramedSession

_log = logging.getLogger(__name__)

# The credit lasts for about one second, so that the renewal arrives in time.
_MIN_WINDOW = 16
_MAX_WINDOW = 1024
_SILENT_S = 1.0  # silence, in addition to the time of four records, after which the state of the stream is requested
_MAX_SILENCES = 5  # consecutive requests without a record after which the stream has failed
_MAX_U32 = 0xFFFFFFFF


def subscription(
    hello: HelloReply,
    period_s: float,
    monitors: tuple[int, ...] | None,
    n_avg: int,
    target: DeviceAddress,
) -> SubscribeRequest:
    """Return the request that starts a stream of monitor readings. The caller sets the stream number.

    Raises:
        LimitError: Period or average is out of range, or the scans take longer than the period.
        ConfigError: A monitor does not exist, or the monitors do not fit into one frame.
    """
    selected = checked_monitors(monitors, hello.n_adc, "telemetry", target)
    fit = max_elements(TelemetryEvent, hello.fw_tx_max)
    if len(selected) > fit:
        raise out_of_range_error("telemetry, monitors of one record", len(selected), (1, fit), "monitors", target)
    check_average(n_avg, "telemetry, n_avg", target)
    tick_s = hello.tick_us * 1e-6
    # The scans of one record must fit into its period; otherwise the board falls behind.
    min_s = max(tick_s, n_avg * hello.adc_scan_us * 1e-6)
    if not min_s <= period_s <= _MAX_U32 * tick_s:
        raise out_of_range_error("telemetry, period_s", period_s, (min_s, _MAX_U32 * tick_s), "s", target)
    # Rounded to ticks, but not below the time of the scans.
    ticks = max(round(period_s / tick_s), -(-n_avg * hello.adc_scan_us // hello.tick_us))
    window = min(max(_MIN_WINDOW, math.ceil(1.0 / period_s)), _MAX_WINDOW)
    mask = b"" if monitors is None else mask_from_channels(selected, hello.n_adc)
    return SubscribeRequest(FIRST_TELEMETRY_STREAM, window, ticks, n_avg, mask)


class TelemetryStream:
    """One stream of monitor readings; any thread can close it.

    Args:
        clock: Clock of the link.
        request: Request that starts the stream.
        on_wait: Called while waiting. It may raise an error to end the wait, and returns the time of its next call.
        on_link_lost: Called if the link is lost during a wait.
        on_ended: Called once, when the stream has ended.

    Raises:
        LumionError: The request failed; there is no stream.
    """

    def __init__(
        self,
        session: FramedSession,
        clock: Clock,
        request: SubscribeRequest,
        on_wait: Callable[[], float],
        on_link_lost: Callable[[LinkLost], None],
        on_ended: Callable[[], None],
    ) -> None:
        self._session = session
        self._clock = clock
        self._request = request
        self._on_wait, self._on_link_lost, self._on_ended = on_wait, on_link_lost, on_ended
        self._is_closed = False
        self._epoch = session.epoch
        self._full_scale_ma = session.hello.adc_full_scale * 1e-6
        self._track = EventTrack(request.credit_limit)
        # Twice the credit is the most that can arrive, so samples are dropped only if nothing reads them.
        self._samples: deque[TelemetrySample] = deque(maxlen=2 * request.credit_limit)
        self._silent_s = _SILENT_S + 4 * request.period_ticks * session.hello.tick_us * 1e-6
        self._count = sum(byte.bit_count() for byte in request.mask) or session.hello.n_adc
        try:
            self._subscribe()
        except BaseException:
            self.close()
            raise

    def _subscribe(self) -> None:
        with self._session.transaction():
            self._session.listen(self._request.stream, self._on_event)
            count = self._session.request(self._request).count
        if count != self._count:
            raise self._count_error(count)

    def read(self) -> TelemetrySample:
        """Return the next monitor reading.

        Raises:
            StopIteration: The stream is closed; a waiting thread raises it within half a second.
            LinkLost: The link was lost.
            LinkTimeout: The controller no longer sends readings.
        """
        try:
            return self._next()
        except LinkLost as error:
            self.close()
            self._on_link_lost(error)
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the stream of monitor readings; idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._on_ended()
            self._unsubscribe()

    def _next(self) -> TelemetrySample:
        silences, last_event_s = 0, self._clock.now()
        while not self._samples:
            if self._is_closed:
                raise StopIteration
            self._check_session()
            due_s = self._on_wait()
            self._renew()
            self._session.wait_events(Deadline(min(due_s, last_event_s + self._silent_s)))
            if not self._samples and self._clock.now() >= last_event_s + self._silent_s:
                # After a lost renewal or a lost last event the stream stays silent; the reply to a request tells.
                silences, last_event_s = silences + 1, self._clock.now()
                if silences == _MAX_SILENCES:
                    raise self._silence_error()
                self._request_state()
        if self._is_closed:
            raise StopIteration
        self._renew()
        return self._samples.popleft()

    def _on_event(self, seq: int, event: AnyEvent) -> None:
        # A record of a different length belongs to an earlier subscription with the same number.
        if not isinstance(event, TelemetryEvent) or len(event.adc) != self._count:
            return
        if self._track.receive(seq, event.dropped) is None:
            return
        photocurrent_ma, saturated = monitor_from_code(event.adc, self._full_scale_ma)
        reading = MonitorReading(photocurrent_ma, saturated, event.generation, self._clock.now())
        chip_c = None if event.chip_temp is None else event.chip_temp * 0.01
        self._samples.append(TelemetrySample(reading, event.dropped, self._track.lost, chip_c))

    def _renew(self) -> None:
        limit = self._track.renewal()
        # Not renewed if the reader falls behind: the board then drops records and counts them.
        if limit is not None and len(self._samples) <= self._track.window // 2:
            self._grant(limit)

    def _request_state(self) -> None:
        self._grant(self._track.renewal() or self._track.credit_limit)

    def _grant(self, limit: int) -> None:
        request = SubscribeRequest(self._request.stream, limit, sub_flags=SubscribeFlag.RENEW)
        reply = self._session.request(request)
        self._track.grant(limit)
        self._track.count_final_losses(reply.next_event, reply.dropped)

    def _unsubscribe(self) -> None:
        # In a new session the subscription no longer exists, and another program may use its number.
        if self._session.epoch != self._epoch or not self._session.is_open:
            return
        try:
            self._session.request(SubscribeRequest(self._request.stream, 0))
        except LumionError as error:
            _log.warning("the stream of monitor readings could not be stopped, but ends soon by itself: %s", error)
        self._session.unlisten(self._request.stream)

    def _check_session(self) -> None:
        if self._session.epoch != self._epoch:
            raise self._session.error(
                LinkLost, "telemetry: the session of this subscription is lost.", hint="Start the telemetry again."
            )

    def _count_error(self, count: int) -> FrameError:
        return self._session.error(
            FrameError,
            f"SUBSCRIBE: the controller announces {count} monitors per record instead of {self._count}.",
            hint="Compare the versions of firmware and lumion-hw.",
        )

    def _silence_error(self) -> LinkTimeout:
        return self._session.error(
            LinkTimeout,
            f"telemetry: the controller responds but sent no record for {_MAX_SILENCES * self._silent_s:.1f} s.",
            hint="Start the telemetry again. If that fails, check the transmit queue with GET_STATS.",
        )


class TelemetryIterator:
    """Iterator over the readings of one stream; closing or deleting it ends the stream."""

    def __init__(self, stream: TelemetryStream) -> None:
        self._stream = stream

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> TelemetrySample:
        """Return the next reading. Raises the errors of :meth:`TelemetryStream.read`."""
        return self._stream.read()

    def close(self) -> None:
        """End the stream of monitor readings; idempotent."""
        self._stream.close()

    def __del__(self) -> None:
        # The session refers to the stream, not to this object, so that deleting the iterator ends the stream.
        with contextlib.suppress(Exception):  # at the end of the interpreter
            self._stream.close()


class TelemetryStreams:
    """Streams of monitor readings of one controller.

    Args:
        clock: Clock of the link.
        on_wait: Called while waiting. It may raise an error to end the wait, and returns the time of its next call.
        on_link_lost: Called if the link is lost while an iterator waits.
    """

    def __init__(
        self,
        session: FramedSession,
        clock: Clock,
        target: DeviceAddress,
        on_wait: Callable[[], float],
        on_link_lost: Callable[[LinkLost], None],
    ) -> None:
        self._session = session
        self._clock = clock
        self._target = target
        self._on_wait = on_wait
        self._on_link_lost = on_link_lost
        self._used_streams: set[tuple[int, int]] = set()

    def start(self, period_s: float, monitors: tuple[int, ...] | None, n_avg: int) -> TelemetryIterator:
        """Start a stream of monitor readings. Raises the errors of :meth:`MeshController.telemetry`."""
        with self._session.transaction():
            request = subscription(self._session.hello, period_s, monitors, n_avg, self._target)
            request = replace(request, stream=self._free_stream())
            key = (self._session.epoch, request.stream)
            self._used_streams.add(key)
            on_ended = functools.partial(self._used_streams.discard, key)
            return TelemetryIterator(
                TelemetryStream(self._session, self._clock, request, self._on_wait, self._on_link_lost, on_ended)
            )

    def _free_stream(self) -> int:
        n_streams = self._session.hello.n_streams
        for stream in range(FIRST_TELEMETRY_STREAM, FIRST_TELEMETRY_STREAM + n_streams):
            if (self._session.epoch, stream) not in self._used_streams:
                return stream
        raise self._target.error(
            BusyError,
            f"telemetry: all {n_streams} streams of this controller are in use.",
            command="SUBSCRIBE",
            hint="Close one of the iterators first.",
        )
