"""A served bench whose host pauses longer than the watchdog time: the circuits are restored automatically."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lumion_hw.fabric import read_fabric
from lumion_hw.remote.pv_names import client_conf, parse_address
from tests.recorded_calibration import RECORD, SEED
from tests.serving.serving_bench import SMALL, Served
from tests.waiting import PATIENCE_S, Bound, until

pytestmark = pytest.mark.long
PAUSE_S = 3.0


@pytest.mark.parametrize("has_fabric", [True, pytest.param(False, marks=pytest.mark.campaign)])
def test_after_a_pause_all_circuits_are_proven_again_and_the_log_says_why(
    tmp_path, not_for_ever: Bound, has_fabric
) -> None:
    command = [sys.executable, "-m", "lumion_hw.cli", "serve", str(SMALL), "--emulate", "--seed", str(SEED), "--json"]
    command += ["--record", str(RECORD), "--state", str(tmp_path), "--pva", "--pva-port", "0"]
    command += [] if has_fabric else ["--no-fabric"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    not_for_ever(process)
    host, port = parse_address(json.loads(process.stdout.readline())["pva"])
    from p4p.client.thread import Context

    client = Context("pva", conf=client_conf(host, port) | {"EPICS_PVA_CONN_TMO": "30"}, useenv=False)

    def are_well(names: set[str]) -> bool:
        table = client.get("small:circuits", timeout=PATIENCE_S).value
        return set(table.name) == names and not any(table.severity)

    if has_fabric:
        wanted = {"sfp-a:sfp-b", "sfp-b:sfp-a", "sfp-c:sfp-c"}
    else:
        wanted = {"sfp-a:sfp-b"}
        Served.rpc(client, "lease:take", owner="ada", for_s="3600")
        Served.rpc(client, "connect", circuits="sfp-a:sfp-b", timeout=PATIENCE_S)
    until(lambda: are_well(wanted))
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(PAUSE_S)  # what stands still here is another process
    os.kill(process.pid, signal.SIGCONT)
    until(lambda: "set up again" in [event["event"] for event in events(tmp_path)])
    until(lambda: are_well(wanted))
    client.close()
    names = [event["event"] for event in events(tmp_path)]
    assert names.index("fault cleared") < names.index("set up again")
    assert "verdict" not in names
    assert not {event.get("place") for event in events(tmp_path) if event["event"] == "alarm"} - {"controller"}
    state = read_fabric(tmp_path)[0]
    assert (state.failed, state.refused, state.places) == ({}, {}, {})
    process.terminate()
    process.communicate(timeout=PATIENCE_S)


def events(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines() if line]
