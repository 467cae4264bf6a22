"""Steps of a program that joins several benches, on one served bench."""

import contextlib
import dataclasses
import queue
from collections.abc import Iterator
from pathlib import Path

import pytest

from lumion_hw.circuits import CircuitRequest
from lumion_hw.errors import BusyError, ConfigError
from lumion_hw.joined import JoinedStatus, JoinedWatch, load_joined
from lumion_hw.remote.client import PvaConnection
from tests.serving.serving_bench import Served, serving
from tests.waiting import PATIENCE_S, until

REQUEST = dataclasses.asdict(CircuitRequest("sfp-a", "sfp-b"))
NAME = "sfp-a:sfp-b"


@pytest.fixture
def connection(served: Served) -> Iterator[PvaConnection]:
    with contextlib.closing(PvaConnection(served.address, owner="joiner")) as connection:
        yield connection


def step(connection: PvaConnection, name: str, **values: object) -> object:
    return connection.run_job("joined", {"step": name, **values})


@pytest.mark.long
def test_a_prepared_segment_is_lit_kept_and_disconnected(served: Served, connection: PvaConnection) -> None:
    (planned,) = connection.call("", "plan_joined", [[REQUEST]])
    assert planned["circuit"] == NAME
    step(connection, "reserve")
    step(connection, "prepare", change="pod-1", circuits=[REQUEST])
    assert connection.call("", "joined_circuits") == {"circuits": [], "prepared": "pod-1"}
    (measured,) = step(connection, "light", change="pod-1", arriving_dbm={NAME: None})  # type: ignore[misc]
    assert measured["failures"] == []
    step(connection, "blink", change="pod-1", dark=["sfp-a"])
    assert served.owner.bench.transponders["sfp-a"].status().tx_disabled
    step(connection, "blink", change="pod-1", dark=[])
    step(connection, "keep", change="pod-1")
    document = connection.call("", "joined_circuits")
    assert [circuit["circuit"] for circuit in document["circuits"]] == [NAME]
    assert document["prepared"] is None
    step(connection, "keep", change="pod-1")  # a repeated step, after a lost reply, does nothing
    step(connection, "disconnect", circuits=[NAME, "sfp-b:sfp-c"])
    assert connection.call("", "joined_circuits")["circuits"] == []


@pytest.mark.long
def test_no_other_job_runs_while_a_change_is_prepared(connection: PvaConnection) -> None:
    step(connection, "prepare", change="pod-1", circuits=[REQUEST])
    for kind, values in (("connect", {"circuits": ["sfp-b:sfp-c"]}), ("disconnect", {}), ("calibrate", {})):
        with pytest.raises(BusyError, match="the change pod-1 of joined meshes is prepared on this bench"):
            connection.run_job(kind, values)
    with pytest.raises(BusyError, match="pod-1"):
        step(connection, "prepare", change="pod-2", circuits=[REQUEST])
    with pytest.raises(ConfigError, match="the change pod-2 of joined meshes is not prepared"):
        step(connection, "light", change="pod-2", arriving_dbm={NAME: None})
    assert step(connection, "undo", change="pod-2", reason="another change") is False
    assert step(connection, "undo", change="pod-1", reason="enough") is True
    connection.run_job("connect", {"circuits": [NAME]})
    connection.run_job("disconnect", {})


def test_a_step_needs_the_lease_and_must_exist(served: Served, connection: PvaConnection) -> None:
    step(connection, "reserve")
    with contextlib.closing(PvaConnection(served.address, owner="other")) as other, pytest.raises(BusyError):
        step(other, "reserve")
    with pytest.raises(ConfigError, match="joined meshes have no step 'commit'"):
        step(connection, "commit")
    with pytest.raises(ConfigError, match="invalid circuit request"):
        step(connection, "prepare", change="pod-1", circuits=[{**REQUEST, "signal": {"formats": 5}}])


def test_a_server_that_stops_undoes_a_prepared_change(tmp_path) -> None:
    with serving(tmp_path) as served:
        with contextlib.closing(PvaConnection(served.address)) as connection:
            before_ma = served.owner.bench.mesh.read_back_ma()
            step(connection, "prepare", change="pod-1", circuits=[REQUEST])
            assert (served.owner.bench.mesh.read_back_ma() != before_ma).any()
        served.owner.stop()
        assert (served.owner.bench.mesh.read_back_ma() == before_ma).all()


@pytest.mark.long
def test_a_watch_publishes_the_circuits_of_a_served_bench_until_it_is_left(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "joined.yaml"
    text = f'version: 1\nname: one\nbenches:\n  small: {{address: "{served.address}"}}\nfibres: []\n'
    file.write_text(text, encoding="utf-8")
    news: queue.SimpleQueue[JoinedStatus] = queue.SimpleQueue()
    with JoinedWatch(load_joined(file), tmp_path).running(news.put):
        status = news.get(timeout=PATIENCE_S)
        assert [(bench.name, bench.problem) for bench in status.benches] == [("small", "")]
        served.owner.show_joined(status)
        until(lambda: served.owner.state.joined == status)
    assert status.alarms == ()
