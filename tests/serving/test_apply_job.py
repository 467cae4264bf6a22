"""The set of wanted circuits of a served bench, in virtual time."""

from pathlib import Path

import pytest

from lumion_hw.errors import ConfigError
from lumion_hw.serving.state import ServedJob
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
        assert (job.error, job.result) == ("", planned)
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
