"""A script that uses a served bench through Bench.attach as if it were local."""

import contextlib
import threading
from collections.abc import Callable

import numpy as np
import pytest
from p4p.client.raw import Context as RawContext, Subscription

from lumion_hw import Bench
from lumion_hw.acquisition import ScanProgress, scan, scanning
from lumion_hw.bench.bench import load
from lumion_hw.errors import BusyError, ConfigError, ConnectError, LimitError, LinkError, LinkLost, UnknownNameError
from lumion_hw.interfaces import CoherentTransponder
from lumion_hw.remote.client import PvaConnection
from lumion_hw.serving.owner import MAX_PUBLISH_S
from lumion_hw.serving.readings import STALE_S
from tests.serving.serving_bench import SMALL, serving
from tests.waiting import PATIENCE_S, until

CURVE = {"setting": "s", "setting_unit": "", "x": [0.0, 1.0], "unit": "W", "readings": {"a": [2.0, None]}}


def script(bench: Bench) -> dict[str, object]:
    """A lab script that uses only the interface of a bench."""
    mesh, meter = bench.mesh, bench.meters["meter0"]
    mesh.program(np.linspace(0.0, 1.0, 30))
    said = ""
    try:
        mesh.program(np.full(30, 9.0))
    except LimitError as error:
        said = f"{error.device} {error.requested} {error.limit} {error.unit}"
    bench.polarization["pol-b"].set(np.array([0.0, 1250.0, -300.0, 4999.0]))
    return {
        "driven": mesh.confirmed_currents_ma().round(3).tolist(),
        "said": said,
        "pol": bench.polarization["pol-b"].read().tolist(),
        "channels": meter.channels,
        "who": [each.identify().serial for each in bench.transponders.values()],
        "lit": [reading.power_w > 0.0 for reading in meter.read_all()][:3],
        "model": bench.model.name,
        "swept": mesh.sweep(np.zeros((3, 30))).shape,
        "wired": len(bench.wiring.inputs),
    }


def test_a_script_gives_the_same_on_a_bench_of_its_own_and_on_a_served_one(served) -> None:
    with Bench.emulate(SMALL, seed=1) as own, Bench.attach(served.address) as attached:
        assert script(attached) == script(own)
        assert served.owner.lease.served().owner.split(":")[-1].isdigit()
        assert not isinstance(attached.transponders["sfp-a"], CoherentTransponder)
        assert attached.model == load(SMALL)
        assert repr(attached).startswith(f"<Bench small, served at {served.address}")
        assert attached.is_emulated, "what is made with it would pass for a measurement"
        assert attached.emulated_age_s is None
        with pytest.raises(ConfigError, match="in this process"):
            _ = attached.emulated
    assert not served.owner.lease.served().owner, "leaving the bench kept the lease"
    assert not served.owner.bench.mesh.confirmed_currents_ma().any(), "leaving the bench left heaters on"


def test_who_only_looks_takes_no_lease(served) -> None:
    number = served.owner.lease.served().number
    with Bench.attach(served.address) as bench:
        bench.meters["meter0"].read(1)
        bench.mesh.monitors_ma()
        next(bench.mesh.controller.telemetry(0.05))
    assert served.owner.lease.served().number == number


def test_the_server_shows_the_progress_of_a_scan_that_an_attached_program_runs(served, monkeypatch) -> None:
    owner, kinds = served.owner, []

    def note(progress: ScanProgress) -> None:
        kinds.append((progress.done, progress.total))

    with Bench.attach(served.address) as bench:
        bench.report_progress("scan", "nothing", 0, 1)  # without the lease, so it is not shown
        assert owner.state.job is None
        sweep = {"mesh0.heater_ma.3": np.linspace(0.0, 1.0, 5)}
        scan(bench, sweep, ["meter0.power.1"], by_hand=True, progress=note)
        until(lambda: owner.state.job is not None and owner.state.job.is_over, 30.0)
        job = owner.state.job
        assert (job.kind, job.stage, job.done, job.total, job.error) == ("scan", "mesh0.heater_ma.3", 5, 5, "")
        assert job.curve is not None
        assert (job.curve.setting, job.curve.x) == ("mesh0.heater_ma.3", (0.0, 0.25, 0.5, 0.75, 1.0))
        assert list(job.curve.readings) == ["meter0.power.1"]
        assert None not in job.curve.readings["meter0.power.1"]
        for curve in ({"x": [1.0]}, [1.0], CURVE | {"x": [0.0] * 3000}, CURVE | {"readings": {"a": [0.0]}}):
            bench.report_progress("scan", "mesh0.heater_ma.3", 1, 5, "", curve)  # wrong, so it is not shown
        assert owner.state.job == job
        bench.report_progress("scan", "mesh0.heater_ma.3", 1, 5, "", CURVE)
        until(lambda: owner.state.job.curve.readings == {"a": (2.0, None)}, 30.0)
        assert job.by == owner.state.lease.owner
        monkeypatch.setattr(scanning, "_SYNC_S", 0.0)  # reports every point, and ends with the first
        with pytest.raises(ZeroDivisionError):
            scan(bench, sweep, ["meter0.power.1"], by_hand=True, progress=lambda progress: 1 / 0)
        until(lambda: owner.state.job.error == "division by zero", 30.0)
        bench.report_progress("scan", "mesh0.heater_ma.4", 1, 5)
        until(lambda: owner.state.job.done == 1 and not owner.state.job.error, 30.0)
        assert not owner.state.job.is_over
    until(lambda: owner.state.job.is_over, 30.0)
    assert owner.state.job.error.endswith("left before the end")
    assert kinds[-1] == (5, 5)


def test_the_second_writer_is_told_who_the_first_is_and_may_take_over_by_name(served) -> None:
    with Bench.attach(served.address) as first, Bench.attach(served.address) as second:
        first.mesh.program(np.full(30, 0.2))
        holder = served.owner.lease.served().owner
        with pytest.raises(BusyError, match="has held lease") as refused:
            second.mesh.program(np.zeros(30))
        assert holder in str(refused.value)
        with Bench.attach(served.address, take_over=holder) as third:
            third.mesh.program(np.full(30, 0.3))
            with pytest.raises(BusyError, match=r"lease \d+ has ended"):
                first.mesh.program(np.zeros(30))
        assert not served.owner.bench.mesh.confirmed_currents_ma().any()


def test_what_is_no_method_of_an_interface_cannot_be_called(served) -> None:
    connection = PvaConnection(served.address)
    try:
        for device, method in (("meter0", "__class__"), ("meter0", "_session"), ("meter0", "open"), ("nobody", "read")):
            with pytest.raises(UnknownNameError):
                connection.call(device, method)
        with pytest.raises(UnknownNameError, match="has no method"):
            connection.call("", "shutdown")
        with pytest.raises(TypeError):
            connection.call("meter0", "read", (), {"volume": 11})
        with pytest.raises(TypeError, match="cannot send values"):
            connection.call("meter0", "read", (object(),))
        with pytest.raises(ConfigError, match="is closed"):
            connection.call("#1", "__next__")
    finally:
        connection.close()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "pva://", "pva://host", "pva://host:x", "pva:///x", "x"])
def test_what_is_no_address_is_refused_with_an_example(address) -> None:
    with pytest.raises(ConfigError, match="pva://HOST:PORT"):
        Bench.attach(address)


def test_a_first_heartbeat_that_arrives_while_a_client_subscribes_is_not_lost(served, monkeypatch) -> None:
    subscribe = RawContext.monitor

    def late(context: RawContext, name: str, handler: Callable[[], None], *options: object) -> Subscription:
        has_arrived = threading.Event()

        def handle() -> None:
            has_arrived.set()
            handler()

        subscription = subscribe(context, name, handle, *options)
        assert has_arrived.wait(PATIENCE_S)
        return subscription

    monkeypatch.setattr(RawContext, "monitor", late)
    with contextlib.closing(PvaConnection(served.address)) as connection:
        assert connection.call("", "joined_circuits")["circuits"] == []


def test_where_nothing_is_served_is_an_error_that_says_what_to_start(monkeypatch) -> None:
    monkeypatch.setattr("lumion_hw.remote.client._CONNECT_S", 0.3)
    with pytest.raises(ConnectError, match="lumion serve"):
        Bench.attach("pva://127.0.0.1:1")


def test_a_controller_that_is_unplugged_is_old_within_a_second_and_comes_back(tmp_path) -> None:
    with serving(tmp_path) as served, Bench.attach(served.address) as bench:
        client = served.client()
        name = "small:mesh0:monitor:0"
        until(lambda: client.get(name).severity == 0, 60.0)
        served.emulated.faults.inject("mesh0", "no_cable")
        until(lambda: client.get(name).severity == 3, 60.0)
        assert STALE_S + MAX_PUBLISH_S < 1.0, "what is old has to be called so within a second"
        assert "no answer" in client.get(name).raw.alarm.message
        until(lambda: "mesh0" in served.owner.state.health.silent, 60.0)
        with pytest.raises(LinkError) as lost:
            bench.mesh.read_back_ma()
        assert lost.value.device == "mesh0"
        assert client.get("small:meter0:power:1").severity == 0, "one that is gone made others old"
        served.emulated.faults.end("mesh0", "no_cable")
        until(lambda: client.get(name).severity == 0, 60.0)
        until(lambda: "mesh0" not in served.owner.state.health.silent)
        client.close()


def test_a_server_that_ends_is_a_lost_link_and_not_a_wait_for_ever(tmp_path) -> None:
    with serving(tmp_path) as served:
        bench = Bench.attach(served.address)
        bench.meters["meter0"].read(1)
    with pytest.raises(LinkError, match="the connection to the served bench is lost"):
        bench.meters["meter0"].read(1)
    bench.close()


class _Beats:
    """An event that is never set, but ends a loop after a number of waits."""

    def __init__(self, beats: int) -> None:
        self.left = beats

    def wait(self, _timeout_s: float) -> bool:
        self.left -= 1
        return self.left < 0

    def is_set(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("raised", "asked"),
    [(None, 5), (LinkLost("the connection to the served bench is lost"), 5), (BusyError("bob holds lease 8"), 1)],
)
def test_a_lease_is_renewed_until_somebody_else_has_it(raised: Exception | None, asked: int) -> None:
    """A client survives a server restart; a lost lease is not renewed under its old number."""
    connection = PvaConnection.__new__(PvaConnection)
    connection._ended, connection._number, questions = _Beats(5), 7, []

    def ask(request, _device=""):
        questions.append(request["lease"])
        if raised is not None:
            raise raised

    connection._request = ask
    connection._renew_lease()
    assert questions == [7] * asked
