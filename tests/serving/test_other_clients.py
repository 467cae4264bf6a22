"""Unmodified clients of other projects: bluesky with ophyd-async, and the p4p command line."""

import json
import os
import subprocess
import sys

import pytest

PLAN = """
import json
from bluesky import RunEngine
from bluesky import plan_stubs as bps, plans as bp
from bluesky.preprocessors import finalize_wrapper
from ophyd_async.core import init_devices
from ophyd_async.epics.core import epics_signal_r, epics_signal_rw

engine = RunEngine()
with init_devices():
    lease = epics_signal_rw(str, "pva://small:lease:owner", name="lease")
    heater = epics_signal_rw(float, "pva://small:mesh0:heater_ma:{heater}", name="heater")
    meter = epics_signal_r(float, "pva://small:meter0:power:1", name="meter")

def plan():
    yield from bps.mv(lease, "ada")
    yield from finalize_wrapper(bp.scan([meter], heater, 0.0, 2.0, 5), bps.mv(heater, 0.0))
    yield from bps.mv(lease, "")

documents = []
engine(plan(), lambda name, document: documents.append((name, document)))
events = [document for name, document in documents if name == "event"]
print(json.dumps([event["data"] | {{"times": event["timestamps"]}} for event in events]))
print(json.dumps(next(document["data_keys"] for name, document in documents if name == "descriptor")))
"""


@pytest.fixture
def environment(served) -> dict[str, str]:
    pva = {"EPICS_PVA_NAME_SERVERS": f"127.0.0.1:{served.port}", "EPICS_PVA_AUTO_ADDR_LIST": "NO"}
    return os.environ | pva | {"PYTHONWARNINGS": "ignore"}


def run(environment, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def lever(served) -> tuple[int, float]:
    """Return the heater with the largest effect on the light at the first meter, and this effect."""
    bench = served.owner.bench
    read_w, rest = lambda: bench.meters["meter0"].read(1).power_w, bench.mesh.confirmed_currents_ma()
    bench.mesh.program(rest)
    dark_w, found = read_w(), {}
    for heater in range(len(rest)):
        table = rest.copy()
        table[heater] = 1.5
        bench.mesh.program(table)
        found[heater] = abs(read_w() - dark_w)
    bench.mesh.program(rest)
    heater = max(found, key=lambda each: found[each])
    return heater, found[heater]


def test_a_plan_of_bluesky_scans_a_heater_and_reads_a_meter(served, environment) -> None:
    heater, by_w = lever(served)
    ended = run(environment, "-c", PLAN.format(heater=heater))
    assert ended.returncode == 0, ended.stderr
    events, keys = (json.loads(line) for line in ended.stdout.splitlines()[-2:])
    assert [event["heater"] for event in events] == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0], abs=1e-4)
    seen_w = [event["meter"] for event in events]
    assert abs(seen_w[3] - seen_w[0]) > 0.5 * by_w, "the light of the scan is not that of its settings"
    for event in events:
        assert event["times"]["meter"] > event["times"]["heater"], "a reading is older than its setting"
    assert keys["heater"]["units"] == "mA"
    assert keys["heater"]["limits"]["control"] == {"low": 0.0, "high": 2.5}
    assert keys["meter"]["units"] == "W"
    assert served.owner.lease.served().owner == ""
    assert not served.owner.bench.mesh.confirmed_currents_ma().any()


@pytest.mark.long
def test_the_command_line_of_p4p_gets_takes_the_lease_puts_and_lets_go(served, environment) -> None:
    def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run(environment, "-m", "p4p.client.cli", *arguments)

    assert "small:meter0:power:1" in cli("get", "small:meter0:power:1").stdout
    heater = "small:mesh0:heater_ma:5"
    assert "no client holds the lease" in cli("put", f"{heater}=0.5").stderr + cli("rpc", "small:connect").stdout
    taken = cli("rpc", "small:lease:take", "owner=ada", "for_s=60")
    assert "('owner', 'ada')" in taken.stdout, taken.stderr
    cli("put", f"{heater}=0.5")  # of p4p 4.3 the command itself stumbles over its own answer
    assert served.owner.point("mesh0.heater_ma.5").value == pytest.approx(0.5, abs=1e-4)
    cli("put", f"{heater}=0.0")
    refused = cli("rpc", "small:lease:take", "owner=bob", "for_s=soon")
    assert refused.returncode == 1
    assert "is not a number of seconds" in refused.stdout
    assert cli("rpc", "small:lease:release").returncode == 0
    assert served.owner.lease.served().owner == ""
