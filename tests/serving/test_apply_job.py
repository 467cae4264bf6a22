"""The set of wanted circuits of a served bench, in virtual time."""

import json
from pathlib import Path

import pytest

from lumion_hw.cli import main
from lumion_hw.errors import ConfigError
from lumion_hw.remote.client import PvaConnection
from lumion_hw.serving.state import ServedJob
from tests.serving.serving_bench import SMALL, serving
from tests.serving.test_virtual_days import ADA, owned


def test_the_wanted_circuits_are_planned_applied_and_kept(tmp_path: Path) -> None:
    with owned(tmp_path, fabric=False) as (_clock, owner):
        owner.step(0.0)
        owner.lease.take("ada", ADA, lasts_s=86400.0, bound=False)

        def run(**arguments: object) -> ServedJob:
            owner.start_job("apply", arguments, ADA)
            owner.step(0.1)
            assert owner.state.job is not None
            return owner.state.job

        planned = run(circuits="sfp-a:sfp-b", dry_run="true").result
        assert [each["circuit"] for each in planned["connected"]] == ["sfp-a:sfp-b"]
        assert owner.state.circuits == ()
        job = run(circuits=["sfp-a:sfp-b"])
        assert (job.error, job.result | {"measured": {}}) == ("", planned)
        assert job.result["measured"]["sfp-a:sfp-b"]["margin_db"] > 3.0
        assert [circuit.name for circuit in owner.state.circuits] == ["sfp-a:sfp-b"]
        assert run(circuits="sfp-a:sfp-b").result["kept"] == ["sfp-a:sfp-b"]
        impossible = {"source": "sfp-b", "target": "sfp-c", "max_hops": 1}
        assert "sfp-b:sfp-c" in run(circuits=["sfp-a:sfp-b", impossible]).error
        skipped = run(circuits=["sfp-a:sfp-b", impossible], on_refusal="skip").result
        assert [each["circuit"] for each in skipped["refused"]] == ["sfp-b:sfp-c"]
        with pytest.raises(ConfigError, match=r"on_refusal is .ignore"):
            run(circuits="", on_refusal="ignore")
        assert run(circuits="").result["removed"] == ["sfp-a:sfp-b"]
        assert owner.state.circuits == ()
        assert not owner.bench.mesh.confirmed_currents_ma().any()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("aligned"), aligned=True) as found:
        yield found


@pytest.fixture
def apply(served, tmp_path: Path, capsys):
    """Write a circuit file, run `lumion apply` for the served bench, and return the JSON that it prints."""

    def command(circuits: str, *options: str, code: int = 0):
        (tmp_path / "circuits.yaml").write_text(f"version: 1\ncircuits: [{circuits}]\n")
        arguments = ["apply", str(SMALL), str(tmp_path / "circuits.yaml"), "--served", served.address, "--json"]
        assert main([*arguments, *options]) == code
        printed = capsys.readouterr()
        return (json.loads(printed.out), printed.err) if printed.out else ({}, printed.err)

    return command


def test_the_command_changes_the_circuits_of_a_served_bench(served, client, lease, apply) -> None:
    planned, _ = apply("sfp-a:sfp-b", "--dry-run")
    assert [circuit["circuit"] for circuit in planned["connected"]] == ["sfp-a:sfp-b"]
    assert served.owner.lease.served().owner == "", "a dry run needs no lease"
    done, _ = apply("sfp-a:sfp-b")
    assert done | {"measured": {}, "dry_run": True} == planned
    assert done["measured"]["sfp-a:sfp-b"]["margin_db"] > 3.0
    assert apply("sfp-a:sfp-b")[0]["kept"] == ["sfp-a:sfp-b"]
    lease(client, "ada")
    assert apply("", "--dry-run")[0]["removed"] == ["sfp-a:sfp-b"]
    assert "ada" in json.dumps(apply("", code=6))
    assert apply("", "--take-over", "ada")[0]["removed"] == ["sfp-a:sfp-b"]


def test_options_of_a_bench_that_this_process_opens_are_refused_with_a_served_one(apply) -> None:
    assert "--served and --record cannot be combined" in json.dumps(apply("", "--record", "r.json", code=2))


def test_an_interrupted_command_leaves_the_change_to_the_server(apply, monkeypatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PvaConnection, "run_job", interrupted)
    assert "the server finishes this change" in apply("sfp-a:sfp-b", code=130)[1]


def test_a_dry_run_is_refused_like_the_change_where_jobs_control_the_circuits(tmp_path: Path) -> None:
    with owned(tmp_path, fabric=True) as (_clock, owner):
        owner.step(0.0)
        with pytest.raises(ConfigError, match=r"the jobs of the bench file control the circuits.*--no-fabric"):
            owner.plan_difference(["sfp-a:sfp-b"])
