"""Sweeps that run on the LUMION mesh controller (protocol section 10)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import (
    FULL_SCALE_CODE,
    SWEEP_PUSH_MS,
    AnyEvent,
    Drive,
    EndAction,
    EndReason,
    HelloReply,
    RecordTrack,
    RunState,
    Stream,
    SweepAbortRequest,
    SweepAckRequest,
    SweepDataEvent,
    SweepDoneEvent,
    SweepImage,
    SweepReadReply,
    SweepReadRequest,
    SweepStartRequest,
    code_from_output,
    computed_power_uw,
    delta_points,
    load_requests,
    mask_from_channels,
    max_elements,
    ring_capacity,
)
from lumion_hw.clock import Clock, Deadline
from lumion_hw.drivers.mesh.lumion.config import (
    check_power,
    checked_currents,
    limit_error_in_ma,
    load_ohm,
    out_of_range_error,
    power_cap_uw,
)
from lumion_hw.drivers.mesh.lumion.monitors import check_average, checked_monitors
from lumion_hw.errors import (
    LIST_FAULTS,
    ConfigError,
    DeviceAddress,
    DeviceError,
    FrameError,
    LimitError,
    LinkTimeout,
    LumionError,
)
from lumion_hw.interfaces import ControllerLimits, SweepPlan
from lumion_hw.sessions.framed.session import FramedSession

_MAX_U32 = 0xFFFFFFFF


@dataclass(frozen=True)
class PlannedSweep:
    """A checked and encoded sweep.

    Attributes:
        image: Encoded sweep, as loaded into the controller's memory.
        n_points: Number of points.
        monitors: Monitor channels to record, ascending.
        end: DAC codes of the heater currents after the sweep, shape ``(n_heaters,)``.
        dwell_ticks: Planned time per point, in ticks of the controller.
        window: Number of records that the controller may send before an acknowledgement.
    """

    image: bytes
    n_points: int
    monitors: tuple[int, ...]
    end: NDArray[np.uint16]
    dwell_ticks: int
    window: int


@dataclass(frozen=True)
class TableLimits:
    """Limits of the heater currents and of the total power.

    Attributes:
        max_ma: Largest current per heater, shape ``(n_heaters,)``.
        limits: Configured limits; ``None`` before :meth:`configure`.
    """

    max_ma: NDArray[np.float64]
    limits: ControllerLimits | None


def planned_sweep(
    plan: SweepPlan, base: NDArray[np.uint16], hello: HelloReply, allowed: TableLimits, target: DeviceAddress
) -> PlannedSweep:
    """Check a sweep plan against all limits and encode it.

    Args:
        plan: Sweep to encode.
        base: DAC codes driven now, shape ``(n_heaters,)``.
        hello: HELLO reply of the controller.
        allowed: Limits of the heater currents.
        target: Device name and address, for messages.

    Raises:
        LimitError: A point is outside the limits (the message names point and channel), a time or average is too large,
            or the encoded sweep is larger than the controller's memory.
        ConfigError: There is no point, or a heater or monitor does not exist.
    """
    monitors = checked_monitors(plan.monitors, hello.n_adc, "sweep", target)
    _check_run(plan, len(monitors), hello, target)
    start = base
    if plan.start_ma is not None:
        checked = checked_currents(plan.start_ma, allowed.max_ma, "sweep, start_ma", target)
        start = code_from_output(checked, hello.dac_full_scale * 1e-3)
    tables = _TableSequence(plan, start, hello, allowed, target)
    settle_us = math.ceil(plan.settle_s * 1e6)
    # Points begin on ticks. Settling and scans are rounded up to whole ticks, or every point would count as late.
    dwell_ticks = max(1, -(-(settle_us + plan.n_avg * hello.adc_scan_us) // hello.tick_us))
    image = SweepImage(
        delta_points(tables, start),
        n_avg=plan.n_avg,
        settle_us=settle_us,
        dwell_us=min(dwell_ticks * hello.tick_us, _MAX_U32),
        end_action=EndAction.KEEP if plan.keep_last else EndAction.BASE,
        mask=b"" if plan.monitors is None else mask_from_channels(monitors, hello.n_adc),
        start_table=None if plan.start_ma is None else start,
    ).encode()
    _check("the encoded sweep", len(image), hello.sweep_mem, "B", "Split the plan into several sweeps.", target)
    # Not larger than the ring: records that are overwritten before they are pushed are not sent (section 10.4).
    capacity = ring_capacity(hello.sweep_ring, len(monitors))
    # Sixteen frames: one half is acknowledged while the other half is being sent.
    window = max(1, min(capacity, 16 * max_elements(SweepDataEvent, hello.fw_tx_max, row=len(monitors))))
    end = tables.table if plan.keep_last else base
    return PlannedSweep(image, len(plan.points), monitors, end, dwell_ticks, window)


def _check_run(plan: SweepPlan, n_monitors: int, hello: HelloReply, target: DeviceAddress) -> None:
    if not plan.points:
        raise target.error(ConfigError, "sweep: the plan has no points.")
    check_average(plan.n_avg, "sweep, n_avg", target)
    max_s = _MAX_U32 * 1e-6
    if not 0.0 <= plan.settle_s <= max_s:
        raise out_of_range_error("sweep, settle_s", plan.settle_s, (0.0, max_s), "s", target)
    # A record is never split over frames.
    fit = min(max_elements(kind, hello.fw_tx_max) for kind in (SweepDataEvent, SweepReadReply))
    hint = "Choose fewer monitors."
    _check("sweep, monitors of one record", n_monitors, min(fit, hello.sweep_ring), "monitors", hint, target)


def _check(label: str, requested: int, limit: int, unit: str, hint: str, target: DeviceAddress) -> None:
    if requested > limit:
        raise target.error(LimitError, label, requested=requested, limit=limit, unit=unit, hint=hint)


class _TableSequence:
    """Iterator over the heater currents of a sweep, one array of DAC codes per point; checks each point."""

    def __init__(
        self, plan: SweepPlan, start: NDArray[np.uint16], hello: HelloReply, allowed: TableLimits, target: DeviceAddress
    ) -> None:
        self.table = np.array(start, dtype=np.uint16)
        self._points = plan.points
        self._hello = hello
        # Plain numbers: a point may change all channels, and numpy takes much longer for single elements.
        self._max_ma: list[float] = np.asarray(allowed.max_ma, dtype=np.float64).tolist()
        self._target = target
        limits = allowed.limits
        self._cap_uw = math.inf if limits is None else power_cap_uw(limits)
        ohm = np.zeros(len(start), np.int64) if limits is None else load_ohm(limits)
        self._ohm: list[int] = ohm.tolist()
        self._power_uw = computed_power_uw(self.table, ohm, hello.dac_full_scale, Drive.CURRENT)

    def __iter__(self) -> Iterator[NDArray[np.uint16]]:
        for number, point in enumerate(self._points):
            self._change(number, point)
            check_power(self._power_uw, self._cap_uw, f"sweep, point {number}", self._target)
            yield self.table.copy()

    def _change(self, number: int, point: Mapping[int, float]) -> None:
        full_scale_ma = self._hello.dac_full_scale * 1e-3
        for channel, current_ma in point.items():
            if not (_is_number(channel) and 0 <= channel < len(self.table)):
                raise self._target.error(
                    ConfigError,
                    f"sweep, point {number}: heater {channel} does not exist; "
                    f"the controller has heaters 0 to {len(self.table) - 1}.",
                )
            if not _is_number(current_ma):
                raise self._target.error(
                    ConfigError, f"sweep, point {number}, channel {channel}: {current_ma!r} is not a number."
                )
            max_ma = self._max_ma[channel]
            if not 0.0 <= current_ma <= max_ma:
                label = f"sweep, point {number}, channel {channel}"
                raise out_of_range_error(label, current_ma, (0.0, max_ma), "mA", self._target)
            # Rounded as in program(), so that equal currents give equal codes.
            code, before = round(float(current_ma) / full_scale_ma * FULL_SCALE_CODE), int(self.table[channel])
            if code != before:
                # Updated by differences: most of the points change only one channel.
                self._power_uw += self._channel_uw(channel, code) - self._channel_uw(channel, before)
                self.table[channel] = code

    def _channel_uw(self, channel: int, code: int) -> int:
        current_ua = code * self._hello.dac_full_scale // FULL_SCALE_CODE
        return current_ua * current_ua * self._ohm[channel] // 1_000_000


_NUMBERS = (float, int, np.floating, np.integer)


def _is_number(value: object) -> bool:
    return isinstance(value, _NUMBERS)


_log = logging.getLogger(__name__)

_QUIET_S = 0.1  # silence, in addition to the time of two points, after which the run's state is requested
_STALLED_S = 5.0  # time without progress, in addition to the time of ten points, after which the run has failed
_TICKS = 1 << 32


class SweepRun:
    """One sweep on the controller.

    Args:
        clock: Clock of the link.
        planned: Sweep to run.
        generation: Number of this sweep, higher than that of the present heater currents.
        on_wait: Called while waiting. It may raise an error to end the sweep, and returns the time of its next call.
    """

    def __init__(
        self,
        session: FramedSession,
        clock: Clock,
        planned: PlannedSweep,
        generation: int,
        on_wait: Callable[[], float],
    ) -> None:
        self._session = session
        self._target = DeviceAddress(session.device, session.address)
        self._clock = clock
        self._planned = planned
        self._generation = generation
        self._on_wait = on_wait
        self._values = np.zeros((planned.n_points, len(planned.monitors)), dtype=np.uint16)
        self._track = RecordTrack(planned.window)
        self._produced = 0
        self._due = 0
        self._acknowledged = 0
        self._start_tick = 0
        self._done_event: SweepDoneEvent | None = None
        self._reason: EndReason | None = None
        point_s = planned.dwell_ticks * session.hello.tick_us * 1e-6
        # Records are pushed at most SWEEP_PUSH_MS after they were recorded, so a longer silence means a lost event.
        self._quiet_s = _QUIET_S + 1e-3 * SWEEP_PUSH_MS + 2 * point_s
        self._stalled_s = _STALLED_S + 10 * point_s

    def run(self, base_crc32: int) -> tuple[NDArray[np.uint16], int]:
        """Run the sweep to its end.

        Args:
            base_crc32: CRC-32 of the DAC codes that should be driven now.

        Returns:
            Monitor codes of shape ``(n_points, n_monitors)``, and the number of late points.

        Raises:
            DeviceError: The sweep ended early or stalled; the message gives the reason and the number of recorded
                points.
            LumionError: A request failed. After every error the sweep is aborted if the link permits.
        """
        hello = self._session.hello
        image = self._planned.image
        self._session.request_all(list(load_requests(self._generation, image, hello.fw_rx_max)))
        # Before SWEEP_START: the first records may arrive with its reply.
        self._session.listen(Stream.SWEEP, self._on_event)
        try:
            self._start(base_crc32)
            self._collect()
            return self._values, self._count_late_points()
        finally:
            self._session.unlisten(Stream.SWEEP)

    def _start(self, base_crc32: int) -> None:
        try:
            reply = self._session.request(
                SweepStartRequest(self._generation, self._generation, base_crc32, self._planned.window)
            )
        except LimitError as error:
            raise limit_error_in_ma(error, self._session.hello.dac_full_scale * 1e-3, self._target) from error
        except LinkTimeout:  # the run may have been started
            self._abort()
            raise
        self._start_tick = reply.tick
        # With a different shape, values would be assigned to wrong points or monitors.
        announced, planned = (reply.records, reply.n_adc), self._values.shape
        if announced != planned:
            self._abort()
            raise self._session.error(
                FrameError,
                f"SWEEP_START: the controller announces {announced[0]} records of {announced[1]} values instead of "
                f"{planned[0]} of {planned[1]}.",
                hint="Compare the versions of firmware and lumion-hw.",
            )

    def _collect(self) -> None:
        try:
            self._receive_all()
        except BaseException:  # also Ctrl-C: a sweep without a waiting program must not drive heaters
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
        requested_s = moved_s = self._clock.now()
        progress = -1
        while not self._is_complete():
            due_s = self._on_wait()
            self._session.wait_events(Deadline(min(requested_s + self._quiet_s, due_s)))
            now_s = self._clock.now()
            # Every new record increases one of the two.
            if self._track.contiguous_end + self._produced > progress:
                progress = self._track.contiguous_end + self._produced
                requested_s = moved_s = now_s
            elif now_s >= requested_s + self._quiet_s:
                self._request_state()
                requested_s = now_s
            if now_s - moved_s > self._stalled_s:
                raise self._error(f"made no progress for {now_s - moved_s:.1f} s")
            # Requested by index, because the board does not repeat events (section 10.4).
            self._fetch_missing()
            # Not after each record: an acknowledgement costs a frame in each direction, and half a window is available.
            self._acknowledge(min_records=max(1, self._planned.window // 2))
        self._acknowledge(min_records=1)

    def _is_complete(self) -> bool:
        if self._reason is None:
            return False
        if self._reason is not EndReason.COMPLETE:
            raise self._error(f"ended early ({self._reason.name})")
        # Firmware that counts differently may report COMPLETE with fewer records; an incomplete sweep must not pass.
        if self._produced < self._planned.n_points:
            raise self._error("ended as complete")
        return self._track.contiguous_end >= self._planned.n_points

    def _on_event(self, seq: int, event: AnyEvent) -> None:
        del seq
        if isinstance(event, SweepDoneEvent) and event.generation == self._generation:
            self._done_event, self._reason = event, event.reason
            self._produced = self._due = min(event.records, self._planned.n_points)
        elif isinstance(event, SweepDataEvent) and event.generation == self._generation:
            self._store(event.first, event.values)
            self._due = max(self._due, min(event.first + len(event.values), self._planned.n_points))

    def _store(self, first: int, values: NDArray[np.uint16]) -> None:
        n_points, n_monitors = self._values.shape
        # Ignored without an error: the missing records are requested again.
        if values.shape[1] != n_monitors or not 0 < len(values) <= n_points - first:
            return
        for new in self._track.receive(first, len(values)):
            self._values[new.start : new.stop] = values[new.start - first : new.stop - first]
        self._produced = max(self._produced, first + len(values))

    def _request_state(self) -> None:
        self._apply_state(self._session.request(SweepReadRequest(self._generation)))
        self._due = self._produced

    def _apply_state(self, reply: SweepReadReply) -> None:
        if reply.generation != self._generation:
            return
        self._produced = max(self._produced, min(reply.produced, self._planned.n_points))
        if reply.run_state is RunState.ENDED and self._reason is None:
            self._reason = reply.reason

    def _fetch_missing(self) -> None:
        per_frame = max_elements(SweepReadReply, self._session.hello.fw_tx_max, row=len(self._planned.monitors))
        requests = [
            SweepReadRequest(self._generation, first, min(per_frame, gap.stop - first))
            for gap in self._track.missing(self._due)
            for first in range(gap.start, gap.stop, per_frame)
        ]
        for request, reply in zip(requests, self._session.request_all(requests), strict=True):
            if isinstance(reply, SweepReadReply):
                if reply.first == request.first and len(reply.values) <= request.count:
                    self._store(reply.first, reply.values)
                self._apply_state(reply)

    def _acknowledge(self, min_records: int) -> None:
        up_to, credit_limit = self._track.acknowledgement()
        if up_to - self._acknowledged >= min_records:
            self._session.request(SweepAckRequest(self._generation, up_to, credit_limit))
            self._acknowledged = up_to

    def _count_late_points(self) -> int:
        """Return the number of points that took longer than planned; an upper bound if the last event was lost."""
        until = Deadline(self._clock.now() + self._quiet_s)
        while self._done_event is None and self._clock.now() < until:
            self._session.wait_events(until)
        if self._done_event is not None:
            return self._done_event.late
        reply = self._session.request(SweepAbortRequest(self._generation))  # the run has ended: no effect
        planned = self._planned.n_points * self._planned.dwell_ticks
        max_late = min(self._planned.n_points, max(0, (reply.tick - self._start_tick) % _TICKS - planned) // 2)
        _log.warning("the event at the end of the sweep was lost; at most %d points were late", max_late)
        return max_late

    def _error(self, label: str) -> DeviceError:
        return self._session.error(
            DeviceError,
            f"sweep {self._generation} {label}: {self._produced} of {self._planned.n_points} points were recorded.",
            command="SWEEP_START",
            hint=f"The currents from before the sweep are driven again, unless a fault prevents it. {LIST_FAULTS}.",
        )
