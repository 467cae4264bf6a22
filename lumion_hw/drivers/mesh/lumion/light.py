"""Watches the monitors of the LUMION mesh controller for light (protocol section 9.3)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from firmware_protocol import (
    WATCH_DTYPE,
    AnyEvent,
    ChannelError,
    Feature,
    HelloReply,
    LightEvent,
    Stream,
    WatchFlag,
    WatchRequest,
    channels_from_mask,
    has_feature,
    max_elements,
)
from lumion_hw.clock import Clock, Deadline, deadline_after
from lumion_hw.drivers.mesh.lumion.config import out_of_range_error
from lumion_hw.drivers.mesh.lumion.monitors import check_capability, checked_monitors
from lumion_hw.errors import BusyError, ConfigError, DeviceAddress, FrameError, LinkLost, LinkTimeout, LumionError
from lumion_hw.interfaces import LightState, LightThreshold
from lumion_hw.sessions.framed.session import FramedSession

_REQUEST_PERIOD_S = 0.5  # an event may have been lost, which only a request can detect
_MAX_SILENCES = 4  # consecutive requests without an event after which the watch has failed
_TOP = 65535


def can_watch(hello: HelloReply) -> bool:
    """Return whether the controller can report loss and return of light at its monitors."""
    return bool(has_feature(hello.features, Feature.MONITOR_WATCH) and hello.n_adc)


def watch_requests(
    hello: HelloReply, thresholds: Sequence[LightThreshold], period_s: float, target: DeviceAddress
) -> list[WatchRequest]:
    """Return the requests that start watching monitors for light.

    Raises ``LimitError`` and ``ConfigError`` as :meth:`MeshController.watch_light`.
    """
    chosen = checked_monitors(tuple(threshold.monitor for threshold in thresholds), hello.n_adc, "watch_light", target)
    if len(chosen) != len(thresholds):
        raise target.error(ConfigError, "watch_light: a monitor has two thresholds")
    tick_s = hello.tick_us * 1e-6
    shortest_s = max(tick_s, hello.adc_scan_us * 1e-6)
    if not shortest_s <= period_s <= _TOP * tick_s:
        raise out_of_range_error("watch_light, period_s", period_s, (shortest_s, _TOP * tick_s), "s", target)
    # Rounded to the nearest tick, but never below the time of a scan.
    period = max(round(period_s / tick_s), math.ceil(shortest_s / tick_s - 1e-9))
    records = np.array([_record(hello, threshold, target) for threshold in thresholds], dtype=WATCH_DTYPE)
    per_frame = max_elements(WatchRequest, hello.fw_rx_max)
    first = WatchRequest(WatchFlag.CLEAR, period, records[:per_frame])
    return [
        first,
        *(WatchRequest(0, 0, records[at : at + per_frame]) for at in range(per_frame, len(records), per_frame)),
    ]


def _record(hello: HelloReply, threshold: LightThreshold, target: DeviceAddress) -> tuple[int, int, int, int]:
    full_scale_ma, tick_s = hello.adc_full_scale * 1e-6, hello.tick_us * 1e-6
    label = f"watch_light, monitor {threshold.monitor}"
    for name, value_ma in (("dark_below_ma", threshold.dark_below_ma), ("light_from_ma", threshold.light_from_ma)):
        if not 0.0 < value_ma < full_scale_ma:
            raise out_of_range_error(f"{label}, {name}", value_ma, (0.0, full_scale_ma), "mA", target)
    if threshold.light_from_ma < threshold.dark_below_ma:
        lowest_ma = threshold.dark_below_ma
        raise out_of_range_error(
            f"{label}, light_from_ma", threshold.light_from_ma, (lowest_ma, full_scale_ma), "mA", target
        )
    if not 0.0 <= threshold.hold_s <= _TOP * tick_s:
        raise out_of_range_error(f"{label}, hold_s", threshold.hold_s, (0.0, _TOP * tick_s), "s", target)
    # At least one code, because 0 means that the monitor is not watched.
    dark, light = (
        min(max(math.ceil(value_ma / full_scale_ma * _TOP - 1e-9), 1), _TOP)
        for value_ma in (threshold.dark_below_ma, threshold.light_from_ma)
    )
    return threshold.monitor, dark, light, math.ceil(threshold.hold_s / tick_s - 1e-9)


class WatchedLight:
    """Reports loss and return of light at monitors; implements :class:`~lumion_hw.interfaces.LightWatcher`.

    Args:
        clock: Clock of the link.
        on_wait: Called while waiting. It may raise an error to end the wait, and returns the time of its next call.
        on_link_lost: Called if the link is lost during a wait.
        on_ended: Called once, when this object is closed.
    """

    def __init__(
        self,
        session: FramedSession,
        clock: Clock,
        target: DeviceAddress,
        on_wait: Callable[[], float],
        on_link_lost: Callable[[LinkLost], None],
        on_ended: Callable[[], None],
    ) -> None:
        self._session, self._clock, self._target = session, clock, target
        self._on_wait, self._on_link_lost, self._on_ended = on_wait, on_link_lost, on_ended
        self._epoch = session.epoch
        self._tick_s = session.hello.tick_us * 1e-6
        self._n_adc = session.hello.n_adc
        self._watched = 0
        self._states: deque[LightState] = deque(maxlen=64)
        self._news_s = clock.now()
        self._silences = 0

    def begin(self, requests: Sequence[WatchRequest]) -> None:
        """Start watching for light; replaces an earlier watch."""
        with self._session.transaction():
            self._session.listen(Stream.LIGHT, self._on_event)
            self._states.clear()
            self._watched = sum(len(request.monitors) for request in requests)
            for request in requests:
                reply = self._session.request(request)
        if reply.n_watched != self._watched:
            raise self._count_error(reply.n_watched)
        self._silences, self._news_s = 0, self._clock.now()

    def change(self, thresholds: Sequence[LightThreshold], period_s: float) -> None:
        """Replace the thresholds and the period. Raises the errors of ``watch_light``."""
        self._check_session()
        self.begin(watch_requests(self._session.hello, thresholds, period_s, self._target))

    def wait(self, timeout_s: float) -> LightState | None:
        """Return the next state, or ``None`` if no state arrives within ``timeout_s``.

        Raises ``LinkLost`` if the link is lost, and ``LinkTimeout`` if the controller no longer reports.
        """
        deadline = deadline_after(self._clock, timeout_s)
        try:
            while not self._states:
                self._check_session()
                due_s = self._on_wait()
                request_s = self._news_s + _REQUEST_PERIOD_S
                if self._clock.now() >= min(deadline, request_s):
                    if self._clock.now() < request_s:
                        return None
                    self._request()
                    continue
                self._session.wait_events(Deadline(min(due_s, deadline, request_s)))
        except LinkLost as error:
            self._on_link_lost(error)
            raise
        return self._states.popleft()

    def close(self) -> None:
        """Stop watching for light; idempotent."""
        on_ended, self._on_ended = self._on_ended, lambda: None
        on_ended()
        # In a new session the watch no longer exists, and its stream may belong to another program.
        if self._session.epoch != self._epoch or not self._session.is_open:
            return
        self._session.unlisten(Stream.LIGHT)
        try:
            self._session.request(WatchRequest(WatchFlag.CLEAR))
        except LumionError:
            self._watched = 0  # the watch continues harmlessly until the session ends

    def _request(self) -> None:
        if self._silences == _MAX_SILENCES:
            raise self._target.error(
                LinkTimeout,
                f"watch_light: the controller responds but sent no state for {_MAX_SILENCES * _REQUEST_PERIOD_S:.1f} s",
                hint="Start the watch again.",
            )
        self._silences, self._news_s = self._silences + 1, self._clock.now()
        reply = self._session.request(WatchRequest())
        if reply.n_watched != self._watched:
            raise self._count_error(reply.n_watched)

    def _on_event(self, seq: int, event: AnyEvent) -> None:
        del seq  # the next event makes up for a lost one
        if not isinstance(event, LightEvent):
            return
        try:
            dark = channels_from_mask(event.dark, self._n_adc) if event.dark else np.empty(0, np.intp)
        except ChannelError:
            return  # not a monitor of this controller; the state is requested again later
        now_s = self._clock.now()
        held_s = ((event.tick - event.since) % (1 << 32)) * self._tick_s
        self._silences, self._news_s = 0, now_s
        self._states.append(LightState(frozenset(dark.tolist()), held_s, event.generation, now_s))

    def _check_session(self) -> None:
        if self._session.epoch != self._epoch:
            raise self._target.error(
                LinkLost, "watch_light: the session of this watch is lost", hint="Start the watch again."
            )

    def _count_error(self, count: int) -> FrameError:
        return self._target.error(
            FrameError,
            f"WATCH: the controller watches {count} monitors instead of {self._watched}",
            hint="Compare the versions of firmware and lumion-hw.",
        )


class LightWatching:
    """Manages the only light watcher of a controller. Arguments as for :class:`WatchedLight`."""

    def __init__(
        self,
        session: FramedSession,
        clock: Clock,
        target: DeviceAddress,
        on_wait: Callable[[], float],
        on_link_lost: Callable[[LinkLost], None],
    ) -> None:
        self._session, self._clock, self._target = session, clock, target
        self._on_wait, self._on_link_lost = on_wait, on_link_lost
        self._watch_epoch: int | None = None

    def start(self, thresholds: Sequence[LightThreshold], period_s: float) -> WatchedLight:
        """Start watching for light. Raises the errors of ``watch_light``."""
        session = self._session
        with session.transaction():
            check_capability(can_watch(session.hello), "WATCH", "cannot watch light", self._target)
            if self._watch_epoch == session.epoch:
                raise self._target.error(
                    BusyError,
                    "watch_light: a watch is already active",
                    command="WATCH",
                    hint="Change the active watch for light, or close it first.",
                )
            requests = watch_requests(session.hello, thresholds, period_s, self._target)
            watch = WatchedLight(session, self._clock, self._target, self._on_wait, self._on_link_lost, self._mark_free)
            watch.begin(requests)
            self._watch_epoch = session.epoch
            return watch

    def _mark_free(self) -> None:
        self._watch_epoch = None
