"""Maintenance and jobs of an owner: circuits, fabric and calibration, on the wall clock (long runs)."""

import json

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.circuits import CircuitRequest
from lumion_hw.errors import BusyError
from lumion_hw.storage.record_files import load_record
from tests.recorded_calibration import RECORD
from tests.serving.serving_bench import refused, serving
from tests.waiting import until

pytestmark = pytest.mark.long


def raw(client, name: str):
    value = client.get(name)
    return getattr(value, "raw", value)


def told(client, name: str) -> object:
    """Return a value, unwrapped or not, because p4p 4.3 stops unwrapping after the first table."""
    return raw(client, name).value


def test_a_circuit_is_connected_held_shown_and_taken_down(tmp_path) -> None:
    with serving(tmp_path) as served:
        client = served.client()
        client.put("small:lease:owner", "ada")
        plan = served.owner.plan_circuits([CircuitRequest("sfp-a", "sfp-b")])
        assert not served.owner.bench.mesh.confirmed_currents_ma().any(), "a plan has changed something"
        proofs = json.loads(served.rpc(client, "connect", circuits="sfp-a:sfp-b", timeout=250.0).result)
        assert proofs[0]["circuit"] == "sfp-a:sfp-b"
        assert proofs[0]["margin_db"] > 0.0
        until(lambda: client.get("small:circuits").value.severity.tolist() == [0], 60.0)
        until(lambda: told(client, "small:health:keeps") == "circuits", 60.0)
        (path,) = served.owner.state.mesh.paths
        assert path.pucs == plan.circuits[0].path.pucs
        losses = load_record(RECORD).loss_db[list(path.pucs)]
        assert np.diff(path.power_dbm) == pytest.approx(-losses)
        for name in path.pucs:
            assert name not in served.owner.state.mesh.parked
        assert served.owner.state.mesh.states
        until(lambda: served.owner.history, 60.0)
        with refused(r"active circuits need the heaters \(sfp-a:sfp-b\)"):
            client.put("small:mesh0:heater_ma:3", 1.0)
        client.put("small:lease:owner", "")
        with Bench.attach(served.address) as bench, pytest.raises(BusyError, match="active circuits need the heaters"):
            bench.mesh.program(np.zeros(30))
        assert served.owner.state.circuits, "a script that left has taken a circuit down"
        client.put("small:lease:owner", "ada")
        served.rpc(client, "disconnect")
        until(lambda: not served.owner.state.circuits, 60.0)
        assert not served.owner.bench.mesh.confirmed_currents_ma().any()
        client.close()


def test_a_server_that_is_lost_is_replaced_and_the_spans_are_shown(tmp_path) -> None:
    with serving(tmp_path, fabric=True) as served:
        client = served.client()
        until(lambda: told(client, "small:health:keeps") == "fabric", 250.0)
        names = {each.name for each in served.owner.state.circuits}
        assert {"sfp-a:sfp-b", "sfp-b:sfp-a"} <= names
        seen_s = max(each.seen_s for each in served.owner.state.circuits)
        until(lambda: min(each.seen_s for each in served.owner.state.circuits) > seen_s + 2.0, 60.0)
        client.put("small:lease:owner", "ada")
        with refused("the jobs of the bench file control"):
            served.rpc(client, "connect", circuits="sfp-c:sfp-a")
        served.rpc(client, "fail", unit="a", because="the test", timeout=250.0)
        until(lambda: len(client.get("small:recovery:spans").value.name) > 3, 60.0)
        spans = client.get("small:recovery:spans").value
        assert spans.name[0] == "detected"
        assert "proven" in spans.name
        assert np.all(np.diff(spans.at_ms) >= 0.0)
        until(lambda: "sfp-c:sfp-b" in {each.name for each in served.owner.state.circuits}, 60.0)
        assert served.owner.state.recovery.spare == "c"
        status = json.loads(served.rpc(client, "status").result)
        assert [(unit["name"], unit["condition"]) for unit in status["units"]][:2] == [
            ("a", "failed"), ("b", "in service"),
        ]  # fmt: skip
        with refused("CircuitError: b stays in service"):
            served.rpc(client, "drain", unit="b", timeout=250.0)
        with refused("ConfigError: there is no server 'x'"):
            served.rpc(client, "drain", unit="x")
        status = json.loads(served.rpc(client, "repaired", unit="a", timeout=250.0).result)
        assert status["jobs"][0]["condition"] == "connected"
        until(lambda: list(raw(client, "small:fabric:failed").value) == [], 60.0)
        served.rpc(client, "stop")
        assert "ESTOP" in served.rpc(client, "clear", fault="ESTOP", timeout=250.0).result
        assert served.owner.faults() == ()
        until(lambda: list(client.get("small:circuits").value.severity) == [0, 0, 0], 60.0)
        client.close()


@pytest.mark.campaign
def test_a_bench_without_a_record_is_calibrated_on_request_and_has_circuits_then(tmp_path) -> None:
    with serving(tmp_path, record=None) as served:
        client, seen, early = served.client(), set(), dict[str, set[str]]()

        def took_note(stage) -> None:
            seen.add(getattr(stage, "raw", stage).value)
            job = served.owner.state.job
            if job is not None:
                early.setdefault(job.stage, set()).update(job.residuals)

        watch = client.monitor("small:job:stage", took_note)
        client.put("small:lease:owner", "ada")
        with refused("without a calibration record"):
            served.rpc(client, "connect", circuits="sfp-a:sfp-b")
        result = json.loads(served.rpc(client, "calibrate", out="mine.json", timeout=1500.0).result)
        assert load_record(tmp_path / "calibrations" / "mine.json").content_sha256 == result["sha256"]
        until(lambda: told(client, "small:record:sha256") == result["sha256"], 60.0)
        assert {"sweeps", "verification"} <= seen
        assert early["global fit"] >= {"heater_sweeps_rms_sigma", "search_unexplained_share"}
        assert "global_fit_chi2_per_reading" in early["verification"]
        assert "held_out_rms_db" in served.owner.state.job.residuals
        assert told(client, "small:job:progress_percent") == 100.0
        watch.close()
        client.close()
