"""Waiting times of a host: the table of section 4.5, and the additional times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import firmware_protocol as fp
from tests.firmware_protocol.vector_check import VECTORS

(RECORD,) = (record for record in VECTORS["frames"] if record["name"] == "hello reply")
HELLO = fp.HelloReply.decode(bytes.fromhex(RECORD["payload"]))  # tick 1 ms, t_cmd 1 ms, t_slow 500 ms, scan 50 µs
COMMIT = fp.CommitRequest(1, 1, 1, 0, 144)
ABORT = fp.SweepAbortRequest(1)


def table(channels: int) -> fp.SetRequest:
    return fp.SetRequest(1, np.zeros(channels, dtype=np.uint16))


@pytest.mark.parametrize(
    ("request_", "baud", "rto_ms", "deadline_ms"),
    [
        (table(144), 115_200, 56.8, 397),
        (table(144), 921_600, 30.7, 215),
        (table(144), 3_000_000, 28.1, 197),
        (COMMIT, 115_200, 32.7, 229),
        (COMMIT, 921_600, 27.7, 194),
        (COMMIT, 3_000_000, 27.2, 191),
        (table(2000), 115_200, 380.2, 2661),
        (table(2000), 921_600, 71.2, 498),
        (table(2000), 3_000_000, 40.6, 284),
    ],
)
def test_waiting_times_are_those_of_the_specification(
    request_: fp.AnyRequest, baud: int, rto_ms: float, deadline_ms: float
) -> None:
    rto_s = fp.retry_timeout_s(request_, HELLO, baud)
    assert 1e3 * rto_s == pytest.approx(rto_ms, abs=0.051)
    assert 1e3 * rto_s * fp.DEADLINE_RTOS == pytest.approx(deadline_ms, abs=0.51)


@pytest.mark.parametrize(
    ("request_", "milliseconds"),
    [
        (fp.PingRequest(), 26),  # 25 ms + t_cmd
        (ABORT, 27),  # and one tick
        (fp.SweepStartRequest(1, 1, 0, 0), 27),
        (COMMIT, 27),
        (fp.SweepReadRequest(1, 0, 3), 26),
        (fp.ReadAdcRequest(0, 4, n_avg=100), 31),  # and 100 scans of 50 µs
        (fp.ConfigApplyRequest(4, 1), 26),
        (fp.ConfigApplyRequest(4, 1, fp.ApplyFlag.SAVE), 525),  # t_slow instead of t_cmd
    ],
)
def test_without_a_wire_only_execution_counts(request_: fp.AnyRequest, milliseconds: float) -> None:
    assert 1e3 * fp.retry_timeout_s(request_, HELLO, None) == pytest.approx(milliseconds)


@pytest.mark.parametrize(
    ("request_", "payload"),
    [
        (fp.PingRequest(), 16),
        (fp.ReadbackRequest(count=4), 28),
        (fp.ReadbackRequest(rb_flags=0, count=4), 20),
        (fp.ReadAdcRequest(0, 4), 20),
        (fp.ConfigReadLimitsRequest(0, 4), 40),
        (fp.GetStatsRequest(), 112),
        (fp.SweepReadRequest(1, 0, 0), 28),
        (fp.SweepReadRequest(1, 0, 2), 496),  # only the board knows the length of a record, so assume 512 bytes
        (fp.FaultListRequest(), 496),
    ],
)
def test_the_largest_reply_is_known_before_the_request_is_sent(request_: fp.AnyRequest, payload: int) -> None:
    assert fp.largest_reply(request_, HELLO) == payload
    assert fp.largest_reply(request_, replace(HELLO, fw_tx_max=512)) == payload
