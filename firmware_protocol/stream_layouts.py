"""Payload layouts of telemetry and sweeps, and the parts several messages share (sections 3, 7.1, 8.2, 9 and 10)."""

from __future__ import annotations

from firmware_protocol.fields import Field, Layout

F = Field
_STATE = "0..4"
_MASK = "bit i of byte j selects channel 8 j + i"

SHARED_LAYOUTS = (
    Layout(
        "FrameHeader",
        "",
        (
            F(0, "u8", "kind_version", "", "", "low nibble 0 REQ, 1 RSP, 2 EVT; high nibble protocol major"),
            F(1, "u8", "flags", "bits", "", "b0 MORE, b1 RETRY, b2 NO_REPLY, b7 FAULT_PENDING"),
            F(2, "u8", "command", "", "", "command; in an EVT the event code"),
            F(3, "u8", "status", "", "", "REQ 0; RSP status code; EVT stream id"),
            F(4, "u16", "seq", "", "", "REQ host counter; RSP echo; EVT low 16 bits of the stream's event number"),
            F(6, "u16", "session", "", "", "REQ chosen by the host; RSP echo; EVT current session"),
        ),
    ),
    Layout(
        "LimitRecord",
        "",
        (
            F(0, "u16", "code_max", "code", "", "largest code accepted on the channel"),
            F(2, "u16", "load_ohm", "Ω", "", "heater resistance; 0 = not fitted, then code_max is 0"),
            F(4, "u32", "trip_ua", "µA", "", "measured over-current trip; 0 = none"),
        ),
    ),
    Layout(
        "PairRecord",
        "",
        (
            F(0, "u16", "channel", "channel", "0..n_dac-1", "drive channel"),
            F(2, "u16", "code", "code", "0..code_max", "its new code"),
        ),
    ),
)
"""Parts of messages that are no message: the frame header and two records."""

STREAM_LAYOUTS = (
    Layout(
        "SubscribeRequest",
        "SUBSCRIBE",
        (
            F(0, "u8", "stream", "", "2..1+n_streams", "telemetry stream"),
            F(1, "u8", "sub_flags", "bits", "", "b0 RENEW: only credit_limit is used, everything else stays"),
            F(2, "u16", "n_avg", "", "1..4096", "scans averaged per record"),
            F(4, "u32", "period_ticks", "ticks", "", "0 stops the stream"),
            F(8, "u32", "credit_limit", "events", "", "events with number < credit_limit may be sent (absolute)"),
            F(12, "u16", "mask_len", "B", "0..8192", "0 = all channels"),
            F(14, "u16", ""),
            F(16, "u8[mask_len]", "mask", "bits", "", _MASK),
        ),
    ),
    Layout(
        "SubscribeReply",
        "SUBSCRIBE",
        (
            F(0, "u8", "stream", "", "", "echo"),
            F(1, "u8", ""),
            F(2, "u16", "count", "channels", "", "channels selected"),
            F(4, "u32", "next_event", "", "", "number of the next event"),
            F(8, "u32", "dropped", "events", "", "dropped by the board since the subscription"),
        ),
    ),
    Layout(
        "TelemetryEvent",
        "TELEMETRY",
        (
            F(0, "u32", "tick", "ticks", "", "start of the scan"),
            F(4, "u32", "dropped", "events", "", "records discarded so far for lack of credit or queue space"),
            F(8, "u32", "generation", "", "", "active generation when sampled"),
            F(12, "i16", "chip_temp", "0.01 °C", "", "chip temperature", none=-32768),
            F(14, "u16", "count", "channels", "", "codes that follow"),
            F(16, "u16[count]", "adc", "code", "", "selected channels, ascending; 65535 = saturated"),
        ),
    ),
    Layout(
        "SweepImageHeader",
        "",
        (
            F(0, "u8", "version", "", "1", "image version"),
            F(1, "u8", "img_flags", "bits", "", "b0 START_TABLE"),
            F(2, "u16", "n_avg", "", "1..4096", "scans averaged per point"),
            F(4, "u32", "n_points", "", "1..", "point records"),
            F(8, "u32", "settle_us", "µs", "", "default wait between the latch of a point and its first scan"),
            F(12, "u32", "dwell_us", "µs", "", "default least time from this latch to the next one"),
            F(16, "u8", "end_action", "", "0,1", "0 drive the base table again at the end, 1 keep the last point"),
            F(17, "u8", "trigger", "", "0,1", "0 free running, 1 each point waits for the external trigger"),
            F(18, "u16", "mask_len", "B", "even", "0 = all monitor channels"),
            F(20, "u8[mask_len]", "mask", "bits", "", _MASK),
        ),
    ),
    Layout(
        "SweepLoadRequest",
        "SWEEP_LOAD",
        (
            F(0, "u32", "sweep_id", "", "1..", "identifies the image"),
            F(4, "u32", "total", "B", "1..sweep_mem", "length of the whole image"),
            F(8, "u32", "offset", "B", "0..total-1", "position of this piece"),
            F(12, "u32", "image_crc32", "", "", "CRC-32 of the whole image"),
            F(16, "u16", "len", "B", "1..total-offset", "bytes that follow"),
            F(18, "u16", ""),
            F(20, "u8[len]", "data", "", "", "bytes of the image"),
        ),
    ),
    Layout(
        "SweepLoadReply",
        "SWEEP_LOAD",
        (
            F(0, "u32", "sweep_id", "", "", "echo"),
            F(4, "u32", "received", "B", "", "contiguous bytes from 0 held now"),
        ),
    ),
    Layout(
        "SweepStartRequest",
        "SWEEP_START",
        (
            F(0, "u32", "generation", "", "", "newer than the active one; names this run, becomes active at once"),
            F(4, "u32", "sweep_id", "", "", "image to run"),
            F(8, "u32", "base_crc32", "", "", "CRC-32 of the table the host believes driven"),
            F(12, "u32", "credit_limit", "records", "", "records with index < credit_limit may be pushed"),
            F(16, "u16", "repeat", "", "1..65535", "passes over the image; n_points x repeat < 2^31"),
            F(18, "u16", "run_flags", "bits", "", "b0 OVERWRITE the oldest record of a full ring, b1 NO_BASE_CHECK"),
        ),
    ),
    Layout(
        "SweepStartReply",
        "SWEEP_START",
        (
            F(0, "u32", "generation", "", "", "echo"),
            F(4, "u32", "tick", "ticks", "", "edge of the first point"),
            F(8, "u32", "records", "", "", "n_points x repeat"),
            F(12, "u16", "n_adc", "values", "", "values per record"),
            F(14, "u8", "outputs_state", "", _STATE, "SWEEP while running", view="OutputsState"),
            F(15, "u8", ""),
        ),
    ),
    Layout(
        "SweepDataEvent",
        "SWEEP_DATA",
        (
            F(0, "u32", "generation", "", "", "run"),
            F(4, "u32", "first", "record", "", "index of the first record"),
            F(8, "u32", "tick", "ticks", "", "first scan of the first record"),
            F(12, "u16", "count", "records", "1..", "records that follow"),
            F(14, "u16", "n_adc", "values", "", "values per record"),
            F(16, "u16[count,n_adc]", "values", "code", "", "record by record; 65535 = saturated"),
        ),
    ),
    Layout(
        "SweepReadRequest",
        "SWEEP_READ",
        (
            F(0, "u32", "generation", "", "", "run"),
            F(4, "u32", "first", "record", "", "index of the first record wanted"),
            F(8, "u16", "count", "records", "", "records wanted; 0 = status only"),
            F(10, "u16", ""),
        ),
    ),
    Layout(
        "SweepReadReply",
        "SWEEP_READ",
        (
            F(0, "u32", "generation", "", "", "echo"),
            F(4, "u32", "first", "record", "", "echo"),
            F(8, "u32", "produced", "records", "", "records produced so far"),
            F(12, "u32", "oldest", "record", "", "oldest record still held"),
            F(16, "u32", "dropped", "records", "", "overwritten so far"),
            F(20, "u16", "count", "records", "", "records that follow: min(asked, produced - first)"),
            F(22, "u16", "n_adc", "values", "", "values per record"),
            F(24, "u8", "run_state", "", "0..3", "0 none, 1 running, 2 paused (ring full), 3 ended", view="RunState"),
            F(25, "u8", "reason", "", "0..5", "why the run ended; 255 while not ended", none=255, view="EndReason"),
            F(26, "u16", ""),
            F(28, "u16[count,n_adc]", "values", "code", "", "record by record; 65535 = saturated"),
        ),
    ),
    Layout(
        "SweepAckRequest",
        "SWEEP_ACK",
        (
            F(0, "u32", "generation", "", "", "run"),
            F(4, "u32", "up_to", "record", "", "records with index < up_to are released; never moves back"),
            F(8, "u32", "credit_limit", "records", "", "new push limit; never moves back"),
        ),
    ),
    Layout(
        "SweepAckReply",
        "SWEEP_ACK",
        (
            F(0, "u32", "generation", "", "", "echo"),
            F(4, "u32", "produced", "records", "", "records produced so far"),
            F(8, "u32", "oldest", "record", "", "oldest record still held"),
        ),
    ),
    Layout("SweepAbortRequest", "SWEEP_ABORT", (F(0, "u32", "generation", "", "", "run"),)),
    Layout(
        "SweepAbortReply",
        "SWEEP_ABORT",
        (
            F(0, "u32", "generation", "", "", "echo"),
            F(4, "u32", "records", "", "", "records produced"),
            F(8, "u32", "tick", "ticks", "", "edge at which the base table was driven again"),
            F(12, "u8", "outputs_state", "", _STATE, "section 11.1", view="OutputsState"),
            F(13, "u8", "reason", "", "0..5", "why the run ended", view="EndReason"),
            F(14, "u16", ""),
        ),
    ),
    Layout(
        "SweepDoneEvent",
        "SWEEP_DONE",
        (
            F(0, "u32", "generation", "", "", "run"),
            F(4, "u32", "records", "", "", "records produced"),
            F(8, "u32", "dropped", "records", "", "overwritten"),
            F(12, "u32", "tick", "ticks", "", "edge of the final latch"),
            F(16, "u32", "crc32", "", "", "table driven after the run"),
            F(20, "u16", "late", "points", "", "points whose dwell_us was exceeded; saturates"),
            F(22, "u8", "reason", "", "0..5", "why the run ended", view="EndReason"),
            F(23, "u8", "outputs_state", "", _STATE, "section 11.1", view="OutputsState"),
        ),
    ),
)
"""Telemetry, the sweep image and the sweep messages."""
