"""Leases: durations on a clock that nobody sets. The time of day decides only after a restart of the host."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lumion_hw import VirtualClock
from lumion_hw.circuits import lease_clock
from lumion_hw.circuits.lease_clock import LeaseClock, LeaseEnd


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch):
    """A host whose monotonic clock, time of day and start time are set by a test."""

    class Host:
        monotonic_s, utc, boot = 1000.0, datetime(2026, 11, 27, 12, tzinfo=UTC), "first start"

        def passes(self, seconds: float) -> None:
            self.monotonic_s += seconds
            self.utc += timedelta(seconds=seconds)

    found = Host()

    class HostClock:
        def now(self) -> float:
            return found.monotonic_s

    class TimeOfDay(datetime):
        @classmethod
        def now(cls, tz=None):
            return found.utc

    monkeypatch.setattr(lease_clock, "SystemClock", HostClock)
    monkeypatch.setattr(lease_clock, "datetime", TimeOfDay)
    monkeypatch.setattr(lease_clock, "boot_id", lambda: found.boot)
    return found


def test_an_hour_lasts_an_hour_whoever_sets_the_time_of_day(host) -> None:
    end = LeaseClock().lease_end(3600.0)
    assert end.ends_utc == "2026-11-27T13:00:00.000+00:00"
    for jump in (timedelta(days=30), timedelta(days=-60)):
        host.utc += jump
        assert LeaseClock().left_s(end) == pytest.approx(3600.0)
    host.passes(3599.0)
    assert LeaseClock().left_s(end) == pytest.approx(1.0)
    host.passes(2.0)
    assert LeaseClock().left_s(end) == pytest.approx(-1.0)


def test_after_a_restart_of_the_host_the_noted_time_of_day_decides(host) -> None:
    end = LeaseClock().lease_end(3600.0)
    host.passes(600.0)
    host.boot, host.monotonic_s = "second start", 5.0
    assert LeaseClock().left_s(end) == pytest.approx(3000.0)


def test_a_lease_of_an_earlier_version_ends_by_its_time_of_day(host) -> None:
    end = LeaseEnd("", 0.0, "2026-11-27T12:01:00.000+00:00")
    host.boot = ""  # a system that cannot distinguish its starts
    assert LeaseClock().left_s(end) == pytest.approx(60.0)


def test_on_a_virtual_clock_an_hour_passes_when_the_clock_says_so() -> None:
    clock = VirtualClock()
    time = LeaseClock(clock)
    end, before = time.lease_end(3600.0), time.utc()
    clock.sleep(3000.0)
    assert LeaseClock(clock).left_s(end) == pytest.approx(600.0)
    assert time.utc() - before == timedelta(seconds=3000.0)
    other = replace(end, clock="1:2")
    assert time.left_s(other) == pytest.approx(600.0, abs=1e-2)
