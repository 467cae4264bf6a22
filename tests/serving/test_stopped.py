"""Faults of a served bench: stopped heaters, dead clients, pausing devices, and readers that wait forever."""

import json
import threading

import numpy as np
import pytest

from firmware_protocol import FaultSource
from lumion_hw import Bench
from lumion_hw.errors import BusyError, LinkError
from lumion_hw.serving import AlarmSeverity, Caller
from tests.serving.serving_bench import refused
from tests.waiting import until

HEATER, OWNER = "small:mesh0:heater_ma:3", "small:lease:owner"


@pytest.fixture(autouse=True)
def no_fault_is_left(served):
    yield
    for fault in served.owner.faults():
        served.owner.bench.mesh.controller.clear_fault(fault.fault_id)
    served.owner.bench.mesh.program(np.zeros(30))
    served.owner.faults()


def raw(client, name: str):
    """Return a structure as sent, whether p4p has unwrapped it or not."""
    value = client.get(name)
    return getattr(value, "raw", value)


def logged(served, *names: str) -> list[dict[str, object]]:
    lines = (served.directory / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] in names]


def test_after_a_stop_heaters_read_zero_at_once_and_the_controller_is_the_first_alarm(served, client, lease) -> None:
    lease(client, "ada")
    client.put(HEATER, 0.5)
    assert served.owner.point("mesh0.heater_ma.3").value == pytest.approx(0.5, abs=1e-3)
    served.rpc(client, "stop")
    assert served.owner.point("mesh0.heater_ma.3").value == 0.0
    served.owner.publish()
    state = served.owner.state
    assert state.health.faults == (f"ESTOP (id {served.owner.faults()[-1].fault_id})",)
    until(lambda: list(raw(client, "small:health:faults").value) == list(state.health.faults), 60.0)
    assert raw(client, "small:health:faults").alarm.severity == AlarmSeverity.MAJOR
    until(lambda: list(client.get("small:alarms").value.name)[:1] == ["mesh controller"], 60.0)
    assert next(iter(client.get("small:alarms").value.alarm)).startswith("switched off: ESTOP")


def test_a_latched_fault_is_cleared_by_name_by_the_holder_of_the_lease_alone(served, client, lease) -> None:
    served.rpc(client, "stop")
    assert "ESTOP" in json.loads(served.rpc(client, "faults").result)[0]
    with refused("BusyError: no client holds the lease"):
        served.rpc(client, "clear", fault="ESTOP")
    lease(client, "ada")
    with refused("no latched fault has the name or id 'WATCHDOG'; latched faults: ESTOP"):
        served.rpc(client, "clear", fault="WATCHDOG")
    with refused("argument fault is missing"):
        served.rpc(client, "clear")
    with refused("SafetyError.*lumion faults BENCH --clear NAME"):
        client.put(HEATER, 0.5)
    assert "ESTOP" in json.loads(served.rpc(client, "clear", fault="ESTOP").result)[0]
    assert served.owner.faults() == ()
    client.put(HEATER, 0.5)
    (cleared,) = [each for each in logged(served, "fault cleared") if each["by"] == "ada"]
    assert str(cleared["fault"]).startswith("ESTOP")


def test_a_fault_that_latches_by_itself_is_an_event_within_a_reading(served) -> None:
    served.emulated.faults.inject("mesh0", "trip", source=int(FaultSource.HW_SPI))
    served.emulated.faults.end("mesh0", "trip", source=int(FaultSource.HW_SPI))
    until(lambda: [each for each in logged(served, "fault latched") if "HW_SPI" in str(each["fault"])], 60.0)
    until(lambda: served.owner.state.health.faults, 60.0)


def test_a_writer_that_dies_at_once_is_not_shown_as_the_holder_of_the_lease(served, client) -> None:
    for _ in range(5):
        other = served.client()
        other.put(OWNER, "bob")
        other.close()
        until(lambda: not served.owner.lease.served().owner, 60.0)
        until(lambda: client.get(OWNER).raw.value == "", 60.0)


def test_a_reader_that_waits_for_a_stream_ends_when_it_is_dropped(served) -> None:
    ended = threading.Event()
    with Bench.attach(served.address) as bench:
        stream = bench.mesh.controller.telemetry(3600.0)
        next(stream)  # the first reading comes at once, the next one an hour later

        def wait() -> None:
            assert next(stream, None) is None
            ended.set()

        threading.Thread(target=wait, daemon=True).start()
        until(lambda: any(each.reading.locked() for each in served.owner.calls._handles.values()), 60.0)
        with pytest.raises(BusyError, match="another call already waits for the next reading"):
            next(stream)
        served.owner.calls.drop()
        assert ended.wait(60.0)


def test_readers_leave_streams_for_others_and_the_holder_of_the_lease_has_more(served, client, lease) -> None:
    with Bench.attach(served.address) as bench, Bench.attach(served.address) as other:
        kept = [bench.mesh.controller.telemetry(0.1), other.mesh.controller.telemetry(0.1)]
        with pytest.raises(BusyError, match="clients without the lease have 2 streams of this device open"):
            bench.mesh.controller.telemetry(0.1)
        other.mesh.program(np.zeros(30))  # takes the lease
        kept.append(other.mesh.controller.telemetry(0.1))
        assert all(next(each).reading.photocurrent_ma.size for each in kept)


@pytest.mark.parametrize("is_back", [True, False])
def test_a_put_to_a_device_that_is_silent_is_logged_before_and_after_and_says_what_became_of_it(
    served, client, lease, monkeypatch, is_back
) -> None:
    lease(client, "ada")
    client.put(HEATER, 0.25)
    controller = served.owner.bench.mesh.controller
    drive, read_back, silent = controller.program, controller.read_back, [True]

    def drive_and_fall_silent(currents_ma):
        drive(currents_ma)
        raise LinkError("no answer within 190 ms", device="mesh0")

    def read_if_there():
        if silent[0]:
            raise LinkError("no answer within 3000 ms; it only asks, nothing was changed", device="mesh0")
        return read_back()

    monkeypatch.setattr(controller, "program", drive_and_fall_silent)
    monkeypatch.setattr(controller, "read_back", read_if_there)
    silent[0] = not is_back
    became = r"now reports 0\.7\d*, so the write was executed" if is_back else "may or may not be active"
    with refused(became):
        client.put(HEATER, 0.75)
    monkeypatch.undo()
    asked, ended = logged(served, "set")[-1], logged(served, "set ended")[-1]
    assert (asked["name"], asked["value"], asked["by"]) == ("mesh0.heater_ma.3", 0.75, "ada")
    assert ended["change"] == asked["change"]
    assert str(ended["outcome"]).startswith("LinkTimeout: ")


def test_a_write_that_is_done_has_a_line_before_it_and_one_after_it(served) -> None:
    caller = Caller("ada", account="ada@here")
    served.owner.lease.take("ada", caller, lasts_s=60.0, bound=False)
    served.owner.write("mesh0.heater_ma.3", 0.5, caller)
    served.owner.lease.release(caller)
    lines = logged(served, "set", "set ended")[-2:]
    assert [each["event"] for each in lines] == ["set", "set ended"]
    assert lines[0]["change"] == lines[1]["change"]
    assert lines[1]["outcome"] == "done"
