"""PV Access clients of a served bench: values, writes and calls."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.bench.bench import load
from lumion_hw.errors import ConfigError, InUseError
from lumion_hw.serving.pva import PvaServer
from lumion_hw.serving.readings import STALE_S
from lumion_hw.serving.state import AlarmSeverity
from tests.serving.serving_bench import SMALL, refused
from tests.waiting import PATIENCE_S, until

HEATER, HEATERS, OWNER = "small:mesh0:heater_ma:3", "small:mesh0:heaters_ma", "small:lease:owner"
STEP_MA = 3.0 / 65535
"""Current step of the emulated controller: 3 mA full scale in 16 bits."""


def test_every_device_has_readings_and_settings_by_its_name_and_all_of_them_can_be_got(served, client) -> None:
    devices = {name.split(":")[1] for name in served.server.names}
    assert set(load(SMALL).devices) <= devices
    values = client.get(list(served.server.names), throw=False)
    assert [name for name, value in zip(served.server.names, values, strict=True) if isinstance(value, Exception)] == []


def test_a_reading_has_value_unit_time_and_no_alarm(served, client) -> None:
    until(lambda: client.get("small:meter0:power:1").severity == 0)
    raw = client.get("small:meter0:power:1").raw
    assert raw.getID() == "epics:nt/NTScalar:1.0"
    assert 0.0 < raw.value < 1e-3
    assert raw.display.units == "W"
    assert abs(raw.timeStamp.secondsPastEpoch - time.time()) < 60.0


def test_a_setting_has_the_limits_of_the_bench_file(client) -> None:
    raw = client.get(HEATER).raw
    assert (raw.control.limitLow, raw.control.limitHigh, raw.display.units) == (0.0, 2.5, "mA")


def test_a_reading_cannot_be_written(client) -> None:
    with refused("not supported"):
        client.put("small:meter0:power:1", 1.0)


def test_nothing_is_written_without_the_lease(client) -> None:
    with refused("BusyError: no client holds the lease"):
        client.put(HEATER, 1.0)


def test_a_heater_that_is_written_is_driven_and_read_back(served, client, lease) -> None:
    lease(client, "ada")
    client.put(HEATER, 1.25)
    assert client.get(HEATER) == pytest.approx(1.25, abs=STEP_MA)
    until(lambda: client.get(HEATERS)[3] == pytest.approx(1.25, abs=STEP_MA))
    assert served.owner.bench.mesh.confirmed_currents_ma()[3] == pytest.approx(1.25, abs=STEP_MA)
    client.put(HEATERS, np.zeros(30))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        (HEATER, float("nan"), "LimitError.*requested nan mA"),
        (HEATER, 2.6, "LimitError.*requested 2.6 mA, limit 2.5 mA"),
        (HEATER, -0.1, "LimitError.*limit 0 mA"),
        (HEATERS, np.zeros(29), r"ConfigError.*expected numbers of shape \(30,\)"),
        (HEATERS, np.r_[np.full(29, 0.5), np.inf], "LimitError.*requested inf mA"),
        ("small:meter0:wavelength_nm:1", 100.0, "LimitError.*nm"),
    ],
)
def test_what_is_no_value_of_a_setting_is_refused_and_nothing_is_changed(
    served, client, lease, name, value, says
) -> None:
    lease(client, "ada")
    before = served.owner.bench.mesh.confirmed_currents_ma()
    with refused(says):
        client.put(name, value)
    np.testing.assert_array_equal(served.owner.bench.mesh.confirmed_currents_ma(), before)


def test_of_two_writers_one_is_told_who_the_other_is_and_may_take_over_by_name(served, client, lease) -> None:
    lease(client, "ada")
    other = served.client()
    try:
        with refused("BusyError: ada has held lease"):
            other.put(OWNER, "bob")
        with refused("BusyError: ada has held lease"):
            other.put(HEATER, 1.0)
        with refused("'eve' does not hold the lease"):
            served.rpc(other, "lease:take", owner="bob", instead_of="eve")
        number = served.rpc(other, "lease:take", owner="bob", instead_of="ada").number
        assert number > 0
        # Both are the same account on this host: what tells them apart is the name, and who took it last.
        assert client.get(OWNER).raw.value == "bob"
        until(lambda: "taken over by bob" in [event.data.get("why") for event in served.owner.state.events], 60.0)
        served.rpc(other, "lease:release")
    finally:
        other.close()


def test_a_scan_point_that_waits_sees_light_of_after_the_change(served, client, lease) -> None:
    """A reading after a set is newer than the set; otherwise it could be half a second old."""
    lease(client, "ada")
    for current_ma in (0.0, 2.0, 0.0):
        before_s = time.time()
        client.put(HEATER, current_ma, wait=True)
        raw = client.get("small:meter0:power:1").raw
        assert raw.timeStamp.secondsPastEpoch + 1e-9 * raw.timeStamp.nanoseconds > before_s


def test_a_reading_that_is_what_it_was_before_the_change_is_dated_after_it(served, client, lease, monkeypatch) -> None:
    meter = served.owner.bench.meters["meter0"]
    same = meter.read_all()
    monkeypatch.setattr(meter, "read_all", lambda: same)
    lease(client, "ada")
    client.put(HEATER, 0.0, wait=True)
    before_s = time.time()
    client.put(HEATER, 0.0, wait=True)
    raw = client.get("small:meter0:power:1").raw
    assert raw.timeStamp.secondsPastEpoch + 1e-9 * raw.timeStamp.nanoseconds > before_s


def test_every_variable_says_when_it_was_so(served, client) -> None:
    began_s = served.owner.state.health.started_s
    told = client.get(list(served.server.names))
    early = {name for name, each in zip(served.server.names, told, strict=True) if raw_time_s(each) < began_s - 1.0}
    assert early == set()


def raw_time_s(value) -> float:
    return getattr(value, "raw", value).timeStamp.secondsPastEpoch


def test_a_client_that_takes_nothing_holds_up_nobody(served, client) -> None:
    slow, seen, released = served.client(), [], threading.Event()
    hang = slow.monitor("small:heartbeat", lambda value: released.wait(PATIENCE_S))
    watch = client.monitor("small:heartbeat", seen.append)
    try:
        first = len(seen)
        until(lambda: len(seen) > first + 10)
    finally:
        released.set()
        hang.close()
        watch.close()
        slow.close()


def test_what_no_circuit_may_be_asked_says_why(served, client, lease) -> None:
    with refused("BusyError: no client holds the lease"):
        served.rpc(client, "connect", circuits="sfp-a:sfp-b")
    lease(client, "ada")
    with refused("'sfp-a' is not a pair of modules"):
        served.rpc(client, "connect", circuits="sfp-a")
    with refused("does not maintain a fabric"):
        served.rpc(client, "fail", unit="a")
    for name in ("../elsewhere.json", "events.jsonl", "lease.json.old", "-"):
        with refused("is not a valid record name"):
            served.rpc(client, "calibrate", out=name)
    for seed in ("x", -1, 2**32):
        with refused(f"seed is {str(seed)!r}"):
            served.rpc(client, "calibrate", seed=seed)


def test_anybody_may_stop(served, client) -> None:
    served.rpc(client, "stop")
    controller = served.owner.bench.mesh.controller
    faults = controller.faults()
    assert faults
    for fault in faults:
        controller.clear_fault(fault.fault_id)


def test_a_port_that_is_taken_is_an_error_and_no_other_port(served) -> None:
    with pytest.raises(InUseError, match=f"port {served.port} is in use"):
        PvaServer(served.owner, port=served.port)


@pytest.mark.parametrize(
    ("host", "allowed", "says"),
    [("0.0.0.0", (), "other hosts can reach"), ("here", (), "does not appear"), ("127.0.0.1", ("x",), "x")],
)
def test_other_hosts_are_let_in_by_name_only(served, host, allowed, says) -> None:
    with pytest.raises(ConfigError, match=says):
        PvaServer(served.owner, host=host, allowed=allowed)


def test_who_is_not_on_the_list_gets_nothing(served) -> None:
    open_to_one = PvaServer(served.owner, allowed=["192.0.2.0/24"])
    try:
        name = open_to_one.names[0]
        assert open_to_one.makeChannel(name, "127.0.0.1:1") is not None
        assert open_to_one.makeChannel(name, "192.0.2.9:1") is not None
        assert open_to_one.makeChannel(name, "198.51.100.9:1") is None
    finally:
        open_to_one.close()


def test_the_file_of_events_says_who_has_set_what(served, client, lease) -> None:
    lease(client, "grace")
    client.put(HEATER, 0.5)
    client.put(HEATER, 0.0)
    lines = (Path(served.directory) / "events.jsonl").read_text().splitlines()
    assert any('"mesh0.heater_ma.3"' in line and '"grace"' in line and "0.5" in line for line in lines)


def test_a_state_is_numbered_and_comes_four_times_a_second(served) -> None:
    with served.owner.subscribe() as states:
        numbers = [states.wait(10.0).number for _ in range(5)]
        assert numbers == sorted(set(numbers))
        began_s = time.monotonic()
        states.wait(10.0)
        assert time.monotonic() - began_s < 5.0
        time_before = states.missed
        until(lambda: served.owner.state.number > numbers[-1] + 3)
        assert states.missed > time_before
    assert states.is_over
    assert served.owner.state.health.keeps == "nothing"
    assert served.owner.state.points["meter0.power.1"].severity is AlarmSeverity.NONE


def test_a_device_that_answers_with_a_refusal_is_not_silent_and_says_why(served, client) -> None:
    """A polarimeter without light reports no state of polarization, although its connection works."""
    from lumion_hw.errors import DeviceError

    meter = served.owner.bench.meters["meter0"]
    read_all, refusal = meter.read_all, DeviceError("too little light", device="meter0")

    def refuse() -> None:
        raise refusal

    meter.read_all = refuse
    try:
        until(lambda: client.get("small:meter0:power:1").severity == 3, 60.0)
        until(lambda: "too little light" in client.get("small:meter0:power:1").raw.alarm.message, 60.0)
        began_s = time.time()
        until(lambda: served.owner.point("meter0.power.1").time_s > began_s + STALE_S, 60.0)
        assert served.owner.state.health.silent == {}
    finally:
        meter.read_all = read_all
    until(lambda: client.get("small:meter0:power:1").severity == 0, 60.0)
