"""Light at monitors that the LUMION mesh controller watches by itself (protocol section 9.3).

Every LIGHT event tells the whole state, so that one lost on the wire costs time and nothing else: after a silence the
host asks, and the controller tells the state again.
"""

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
from lumion_hw.drivers.mesh.lumion.config import outside
from lumion_hw.drivers.mesh.lumion.monitors import check_ability, chosen_monitors
from lumion_hw.errors import BusyError, ConfigError, DeviceAddress, FrameError, LinkLost, LinkTimeout, LumionError
from lumion_hw.interfaces import LightState, LightThreshold
from lumion_hw.sessions.framed.session import FramedSession

_ASK_EVERY_S = 0.5  # an event may have been lost, and nothing but a question shows that
_SILENCES = 4  # questions in a row that no event followed, after which the watch has failed
_TOP = 65535


def can_watch(hello: HelloReply) -> bool:
    """Return whether the controller watches light by itself."""
    return bool(has_feature(hello.features, Feature.MONITOR_WATCH) and hello.n_adc)


def watch_requests(
    hello: HelloReply, thresholds: Sequence[LightThreshold], period_s: float, target: DeviceAddress
) -> list[WatchRequest]:
    """Return the requests for a watch, in as many pieces as the frames need; the first forgets what was watched.

    Raises:
        LimitError: A threshold, hold-off or period cannot be expressed.
        ConfigError: A monitor does not exist, or none is given.
    """
    chosen = chosen_monitors(tuple(each.monitor for each in thresholds), hello.n_adc, "watch_light", target)
    if len(chosen) != len(thresholds):
        raise target.error(ConfigError, "watch_light: a monitor is named twice.")
    tick_s = hello.tick_us * 1e-6
    shortest_s = max(tick_s, hello.adc_scan_us * 1e-6)
    if not shortest_s <= period_s <= _TOP * tick_s:
        raise outside("watch_light, period_s", period_s, (shortest_s, _TOP * tick_s), "s", target)
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
            raise outside(f"{label}, {name}", value_ma, (0.0, full_scale_ma), "mA", target)
    if threshold.light_from_ma < threshold.dark_below_ma:
        lowest_ma = threshold.dark_below_ma
        raise outside(f"{label}, light_from_ma", threshold.light_from_ma, (lowest_ma, full_scale_ma), "mA", target)
    if not 0.0 <= threshold.hold_s <= _TOP * tick_s:
        raise outside(f"{label}, hold_s", threshold.hold_s, (0.0, _TOP * tick_s), "s", target)
    # At least one code: 0 would mean that this monitor is not to be watched.
    dark, light = (
        min(max(math.ceil(value_ma / full_scale_ma * _TOP - 1e-9), 1), _TOP)
        for value_ma in (threshold.dark_below_ma, threshold.light_from_ma)
    )
    return threshold.monitor, dark, light, math.ceil(threshold.hold_s / tick_s - 1e-9)


class WatchedLight:
    """A watch that the controller keeps; implements :class:`~lumion_hw.interfaces.LightWatcher`.

    Args:
        session: The open session.
        clock: Clock of the link.
        target: Device name and address, for messages.
        keep_going: Called while waiting: feeds the watchdog; raises to end. Returns the time of its next call.
        when_lost: Told when the link is lost while somebody waits.
        ended: Called once, when the watch has ended.
    """

    def __init__(
        self,
        session: FramedSession,
        clock: Clock,
        target: DeviceAddress,
        keep_going: Callable[[], float],
        when_lost: Callable[[LinkLost], None],
        ended: Callable[[], None],
    ) -> None:
        self._session, self._clock, self._target = session, clock, target
        self._keep_going, self._when_lost, self._ended = keep_going, when_lost, ended
        self._epoch = session.epoch
        self._tick_s = session.hello.tick_us * 1e-6
        self._n_adc = session.hello.n_adc
        self._watched = 0
        self._states: deque[LightState] = deque(maxlen=64)
        self._news_s = clock.now()
        self._silences = 0

    def begin(self, requests: Sequence[WatchRequest]) -> None:
        """Start watching, in the place of what was watched before."""
        with self._session.transaction():
            self._session.listen(Stream.LIGHT, self._take)
            self._states.clear()
            self._watched = sum(len(request.monitors) for request in requests)
            for request in requests:
                reply = self._session.request(request)
        if reply.n_watched != self._watched:
            raise self._wrong_count(reply.n_watched)
        self._silences, self._news_s = 0, self._clock.now()

    def change(self, thresholds: Sequence[LightThreshold], period_s: float) -> None:
        """Watch other monitors, or with other thresholds, from now on. Raises as ``watch_light`` of the driver."""
        self._check_session()
        self.begin(watch_requests(self._session.hello, thresholds, period_s, self._target))

    def wait(self, timeout_s: float) -> LightState | None:
        """Return the next state, or ``None`` when none has come within ``timeout_s``.

        Raises:
            LinkLost: The session the watch belonged to is gone.
            LinkTimeout: The controller answers, but tells no state any more.
        """
        deadline = deadline_after(self._clock, timeout_s)
        try:
            while not self._states:
                self._check_session()
                due_s = self._keep_going()
                ask_s = self._news_s + _ASK_EVERY_S
                if self._clock.now() >= min(deadline, ask_s):
                    if self._clock.now() < ask_s:
                        return None
                    self._ask()
                    continue
                self._session.wait_events(Deadline(min(due_s, deadline, ask_s)))
        except LinkLost as error:
            self._when_lost(error)
            raise
        return self._states.popleft()

    def close(self) -> None:
        """End the watch; idempotent."""
        ended, self._ended = self._ended, _nothing
        ended()
        # Where the session is another one the watch is gone, and its stream may be another program's by now.
        if self._session.epoch != self._epoch or not self._session.is_open:
            return
        self._session.unlisten(Stream.LIGHT)
        try:
            self._session.request(WatchRequest(WatchFlag.CLEAR))
        except LumionError:
            self._watched = 0  # it goes on until the session ends, and disturbs nobody

    def _ask(self) -> None:
        """Ask for the state: an event may have been lost."""
        if self._silences == _SILENCES:
            raise self._target.error(
                LinkTimeout,
                f"watch_light: the controller answers, but told no state for {_SILENCES * _ASK_EVERY_S:.1f} s.",
                hint="Start the watch again.",
            )
        self._silences, self._news_s = self._silences + 1, self._clock.now()
        reply = self._session.request(WatchRequest())
        if reply.n_watched != self._watched:
            raise self._wrong_count(reply.n_watched)

    def _take(self, seq: int, event: AnyEvent) -> None:
        del seq  # a lost event is repaired by the next one
        if not isinstance(event, LightEvent):
            return
        try:
            dark = channels_from_mask(event.dark, self._n_adc) if event.dark else np.empty(0, np.intp)
        except ChannelError:
            return  # no monitor of this controller: the next state is asked for
        now_s = self._clock.now()
        held_s = ((event.tick - event.since) % (1 << 32)) * self._tick_s
        self._silences, self._news_s = 0, now_s
        self._states.append(LightState(frozenset(dark.tolist()), held_s, event.generation, now_s))

    def _check_session(self) -> None:
        if self._session.epoch != self._epoch:
            raise self._target.error(
                LinkLost, "watch_light: the session it was started in is gone.", hint="Start it again."
            )

    def _wrong_count(self, count: int) -> FrameError:
        return self._target.error(
            FrameError,
            f"WATCH: the controller watches {count} monitors, asked for were {self._watched}.",
            hint="Compare the versions of firmware and lumion-hw.",
        )


def _nothing() -> None:
    """Do nothing: the watch has ended before."""


class LightWatching:
    """The one watch of a controller.

    Args: as of :class:`WatchedLight`.
    """

    def __init__(
        self,
        session: FramedSession,
        clock: Clock,
        target: DeviceAddress,
        keep_going: Callable[[], float],
        when_lost: Callable[[LinkLost], None],
    ) -> None:
        self._session, self._clock, self._target = session, clock, target
        self._keep_going, self._when_lost = keep_going, when_lost
        self._taken: int | None = None

    def start(self, thresholds: Sequence[LightThreshold], period_s: float) -> WatchedLight:
        """Start a watch. Raises as ``watch_light`` of the driver."""
        session = self._session
        with session.transaction():
            check_ability(can_watch(session.hello), "WATCH", "does not watch light by itself", self._target)
            if self._taken == session.epoch:
                raise self._target.error(
                    BusyError,
                    "watch_light: light is watched already.",
                    command="WATCH",
                    hint="Change that watch, or close it first.",
                )
            requests = watch_requests(session.hello, thresholds, period_s, self._target)
            watch = WatchedLight(session, self._clock, self._target, self._keep_going, self._when_lost, self._free)
            watch.begin(requests)
            self._taken = session.epoch
            return watch

    def _free(self) -> None:
        self._taken = None
