"""Commands of the monitors (docs/protocol.md, section 9): READ_ADC, SUBSCRIBE and WATCH."""

from __future__ import annotations

import numpy as np

from firmware_protocol import (
    WATCH_DTYPE,
    ChannelError,
    EventCredit,
    Feature,
    LightEvent,
    ReadAdcReply,
    ReadAdcRequest,
    Refusal,
    Status,
    Stream,
    SubscribeFlag,
    SubscribeReply,
    SubscribeRequest,
    TelemetryEvent,
    WatchReply,
    WatchRequest,
    channels_from_mask,
    max_elements,
)
from lumion_hw.emulator.mesh.lumion.context import Context, DeferredReply, Result, bad_value, refuse_span
from lumion_hw.emulator.mesh.lumion.monitors import TelemetrySender

_OFFSET_STREAM, _OFFSET_PERIOD = 0, 4
_OFFSET_WATCH_PERIOD, _OFFSET_LIGHT_FROM = 2, 12


def read_adc(context: Context, request: ReadAdcRequest, at_s: float) -> Result:
    """Execute READ_ADC (docs/protocol.md, section 9): scan the monitors, then reply."""
    core = context.core
    refusal = refuse_span(request.start, request.count, core.profile.n_adc, 0, 2)
    if refusal is not None:
        return refusal
    max_elements_per_reply = max_elements(ReadAdcReply, context.session.tx_max)
    if request.count > max_elements_per_reply:
        return Refusal(Status.TOO_BIG, value=request.count, limit=max_elements_per_reply)
    # The light at the time of the request, reported when the scans are over.
    codes = context.monitors.scan(request.n_avg, at_s)[request.start : request.start + request.count]
    reply = ReadAdcReply(core.tick(at_s), core.generation, request.start, codes)
    return DeferredReply(at_s + context.monitors.scan_s(request.n_avg), lambda: reply)


def subscribe(context: Context, request: SubscribeRequest, at_s: float) -> Result:
    """Execute SUBSCRIBE (section 9.1): replace a telemetry stream, or with RENEW change its event limit.

    The first scan takes place one tick later.
    """
    if not context.telemetry.exists(request.stream):
        return bad_value(_OFFSET_STREAM, request.stream)
    if request.sub_flags & SubscribeFlag.RENEW:
        stream = context.telemetry.streams.get(request.stream, TelemetrySender())
        stream.credit.renew(request.credit_limit)
        return _subscribe_reply(request, stream)
    stream_or_refusal = _new_stream(context, request, at_s)
    if isinstance(stream_or_refusal, Refusal):
        return stream_or_refusal
    context.telemetry.open(request.stream, stream_or_refusal)
    return _subscribe_reply(request, stream_or_refusal)


def _new_stream(context: Context, request: SubscribeRequest, at_s: float) -> TelemetrySender | Refusal:
    core = context.core
    needed_us = request.n_avg * core.profile.adc_scan_us
    # The scans of one record must be over before those of the next begin.
    if request.period_ticks and request.period_ticks * core.profile.tick_us < needed_us:
        return bad_value(_OFFSET_PERIOD, request.period_ticks)
    try:
        channels = channels_from_mask(request.mask, core.profile.n_adc)
    except ChannelError as error:
        return Refusal(Status.BAD_CHANNEL, channel=error.channel, limit=error.channels)
    max_elements_per_reply = max_elements(TelemetryEvent, context.session.tx_max)
    if len(channels) > max_elements_per_reply:
        return Refusal(Status.TOO_BIG, value=len(channels), limit=max_elements_per_reply)
    return TelemetrySender(
        EventCredit(request.credit_limit), channels, request.n_avg, request.period_ticks, core.tick_number(at_s) + 1
    )


def _subscribe_reply(request: SubscribeRequest, stream: TelemetrySender) -> SubscribeReply:
    return SubscribeReply(request.stream, len(stream.channels), stream.credit.next_event, stream.credit.dropped)


def watch(context: Context, request: WatchRequest, at_s: float) -> Result:
    """Execute WATCH (docs/protocol.md, section 9.3): start watching monitors, or report their state."""
    profile = context.core.profile
    if not profile.has(Feature.MONITOR_WATCH):
        return Refusal(Status.NOT_SUPPORTED, value=int(Feature.MONITOR_WATCH))
    channels = request.monitors["channel"]
    invalid_channels = np.flatnonzero(channels >= profile.n_adc)
    if invalid_channels.size:
        return Refusal(Status.BAD_CHANNEL, channel=int(channels[invalid_channels[0]]), limit=profile.n_adc)
    invalid_records = np.flatnonzero(request.monitors["light_from"] < request.monitors["dark_below"])
    if invalid_records.size:
        record = int(invalid_records[0])
        value = int(request.monitors["light_from"][record])
        return bad_value(_OFFSET_LIGHT_FROM + WATCH_DTYPE.itemsize * record, value)
    if request.period_ticks and request.period_ticks * profile.tick_us < profile.adc_scan_us:
        return bad_value(_OFFSET_WATCH_PERIOD, request.period_ticks)
    size = LightEvent.layout.fixed_size + -(-profile.n_adc // 8)
    max_elements_per_reply = context.session.elements_per_reply(0, 1)
    if size > max_elements_per_reply:
        return Refusal(Status.TOO_BIG, value=size, limit=max_elements_per_reply)
    context.watch.set(request, at_s)
    return WatchReply(context.session.next_event_number(Stream.LIGHT), context.watch.n_watched, context.watch.n_dark)
