"""The same states on a dask cluster on this computer's loopback."""

from __future__ import annotations

import json

import pytest

from lumion_hw.cli import main
from lumion_hw.errors import ConnectError
from lumion_hw.planning import MIXES, Faults, Fleet, on_cluster, simulate
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.filterwarnings("ignore")  # of the cluster: its own, its event loop's, its sockets'


def test_a_cluster_finds_what_one_process_finds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    distributed = pytest.importorskip("distributed", reason="dask.distributed, of the extra cluster, is not there")
    monkeypatch.setattr("lumion_hw.cluster._CONNECT_S", PATIENCE_S)
    asked = (Fleet(4), Faults(None, 0.001, 0.002), MIXES["even"])
    alone = simulate(*asked, states=2500, seed=9)
    # Workers are threads of this process; all data is still packed and sent over loopback.
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1", dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address.removeprefix("tcp://")
        assert address.startswith("127.0.0.1:")
        assert simulate(*asked, states=2500, seed=9, mapper=on_cluster(address)) == alone
        assert len(cluster.scheduler.workers) == 2
        printed = ["plan", "compare", "--racks", "4", "--states", "1500", "--json"]
        assert main([*printed, "--scheduler", address]) == 0
        over_cluster = json.loads(capsys.readouterr().out)
        assert main(printed) == 0
        assert json.loads(capsys.readouterr().out) == over_cluster
    monkeypatch.setattr("lumion_hw.cluster._CONNECT_S", 0.5)
    with pytest.raises(ConnectError, match="no scheduler"):
        on_cluster(address)
