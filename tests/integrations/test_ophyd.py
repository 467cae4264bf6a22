"""A served bench as devices of the real ophyd-async, in plans of the real bluesky."""

import json
import os
import subprocess
import sys

import pytest

from lumion_hw.errors import ConfigError

pytest.importorskip("bluesky", reason="bluesky is not installed: pip install 'lumion-hw[bluesky]'")
pytest.importorskip("ophyd_async", reason="ophyd-async is not installed: pip install 'lumion-hw[bluesky]'")
from lumion_hw.integrations import to_ophyd

# In a process of its own, because the event loop and the PV Access context of a process are made once.
PLAN = """
import json, sys
from bluesky import RunEngine, plan_stubs as bps, plans as bp
from bluesky.utils import FailedStatus
from ophyd_async.core import init_devices
from lumion_hw.integrations import to_ophyd

engine, documents = RunEngine(), []
with init_devices():
    bench = to_ophyd(sys.argv[1])
heater, power = bench.mesh0.heater_ma_3, bench.meter0.power_1

def plan():
    yield from bp.scan([power], heater, 0.0, 2.0, 5)
    yield from bps.mv(heater, 0.0)

engine(bench.with_lease(plan(), "ada", [power]), lambda name, document: documents.append((name, document)))
refused = ""
try:
    engine(bench.with_lease(bps.mv(heater, 9.0), "ada", [power]))
except FailedStatus as error:
    refused = str(error.__cause__ or error)
events = [document for name, document in documents if name == "event"]
keys = next(document["data_keys"] for name, document in documents if name == "descriptor")
print(json.dumps([[event["data"], event["timestamps"]] for event in events]))
print(json.dumps(keys))
print(json.dumps({"refused": refused}))
"""


def test_a_scan_takes_the_lease_waits_for_its_reading_and_a_limit_changes_nothing(served) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PLAN, served.address],
        env={name: value for name, value in os.environ.items() if not name.startswith("EPICS")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    events, keys, last = (json.loads(line) for line in ended.stdout.splitlines()[-3:])
    heater, power = "bench-mesh0-heater_ma_3", "bench-meter0-power_1"
    assert [data[heater] for data, _ in events] == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0], abs=1e-3)
    for _, times in events:
        assert times[power] > times[heater], "a reading is older than its setting"
    assert (keys[heater]["units"], keys[power]["units"]) == ("mA", "W")
    assert keys[heater]["limits"]["control"] == {"low": 0.0, "high": 2.5}
    assert "requested 9 mA, limit 2.5 mA" in last["refused"]
    assert served.owner.lease.served().owner == ""
    assert not served.owner.bench.mesh.confirmed_currents_ma().any()


def test_an_environment_with_other_servers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICS_PVA_NAME_SERVERS", "192.0.2.1:5075")
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1:5075.*without 127\.0\.0\.1:5075"):
        to_ophyd("pva://127.0.0.1:5075")
