"""The Slurm prolog and epilog of examples/, with a stand-in for `scontrol` and an emulated bench."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lumion_hw.serving.page.server import PageServer
from tests.serving.serving_bench import serving
from tests.serving.test_ocs_server import Switch
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.long
EXAMPLE = Path(__file__).parents[2] / "examples" / "slurm_slice.py"


def test_the_hosts_of_a_job_are_connected_and_disconnected_and_a_busy_host_is_refused(tmp_path: Path) -> None:
    import httpx

    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\necho "$3" | tr , "\\n"\n')  # the real one also expands node[1-2]
    scontrol.chmod(0o755)
    with (
        serving(tmp_path / "bench") as served,
        PageServer(served.owner, writes=True) as server,
        httpx.Client(base_url=server.address, timeout=PATIENCE_S, trust_env=False) as http,
    ):
        (tmp_path / "token").write_text(server.token)
        switch = Switch(server, http)
        number = switch.post("/do/take", {"owner": "ada"})["done"]
        labels = {"1A": "node1", "3B": "node1", "6A": "node2", "8B": "node2", "11A": "node3", "13B": "node3"}
        ports = {port: {"label": label} for port, label in labels.items()}
        switch.post("/ocs/config", {"OCS_PORT": ports, "lease": number})
        switch.post("/do/release", {"lease": number})

        def run(context: str, nodes: str, job: str = "7") -> subprocess.CompletedProcess[str]:
            slurm = {"SLURM_SCRIPT_CONTEXT": context, "SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": nodes}
            bench = {"LUMION_URL": server.address, "LUMION_TOKEN_FILE": str(tmp_path / "token")}
            env = {**os.environ, **slurm, **bench, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
            command = [sys.executable, str(EXAMPLE)]
            return subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

        assert run("prolog_slurmctld", "node1,node2").stdout == "slurm_slice: connected 2, disconnected 0 circuits\n"
        assert list(switch.get("/ocs/config")["OCS_CROSS_CONNECT"]) == ["1A-8B", "6A-3B"]
        busy = run("prolog_slurmctld", "node2,node3", "8")
        assert busy.returncode == 1
        assert "is in use by" in busy.stderr
        unknown = run("prolog_slurmctld", "node1,node9", "9")
        assert "no port has the label node9" in unknown.stderr
        assert list(switch.get("/ocs/config")["OCS_CROSS_CONNECT"]) == ["1A-8B", "6A-3B"]
        assert served.owner.lease.served().owner == "", "a lease was left behind"
        assert run("epilog_slurmctld", "node1,node2").stdout == "slurm_slice: connected 0, disconnected 2 circuits\n"
        assert run("epilog_slurmctld", "node1,node2").returncode == 0
        assert switch.get("/ocs/config")["OCS_CROSS_CONNECT"] == {}
