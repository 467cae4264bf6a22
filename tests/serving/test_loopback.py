"""A served bench on a host with a network: no packet leaves loopback, whatever the EPICS_* variables say."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOSTILE = {
    "EPICS_PVA_ADDR_LIST": "10.9.9.255",
    "EPICS_PVA_AUTO_ADDR_LIST": "YES",
    "EPICS_PVA_INTF_ADDR_LIST": "10.9.9.1",
    "EPICS_PVA_NAME_SERVERS": "10.9.9.2:5075",
    "EPICS_PVAS_INTF_ADDR_LIST": "0.0.0.0",
    "EPICS_PVAS_BEACON_ADDR_LIST": "10.9.9.255",
    "EPICS_PVAS_AUTO_BEACON_ADDR_LIST": "YES",
    "EPICS_PVAS_SERVER_PORT": "5099",
}
SCRIPT = """
import socket, subprocess, sys, tempfile
from pathlib import Path
sys.path[:0] = sys.argv[1:]

def run(*words):
    subprocess.run(words, check=True)

run("mount", "-t", "sysfs", "sysfs", "/sys")  # that of this network
run("ip", "link", "set", "lo", "up")
# What the system says of itself by IPv6 is no packet of ours; interfaces made from now on have no IPv6.
Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
run("ip", "link", "add", "out", "type", "veth", "peer", "name", "far")
run("ip", "addr", "add", "10.9.9.1/24", "dev", "out")
run("ip", "link", "set", "out", "up")
run("ip", "link", "set", "far", "up")
run("ip", "route", "add", "default", "via", "10.9.9.2")

def sent():
    return int(Path("/sys/class/net/out/statistics/tx_packets").read_text())

before = sent()

from tests.serving.serving_bench import serving
from lumion_hw import Bench
from tests.waiting import until
with tempfile.TemporaryDirectory() as directory, serving(Path(directory)) as served:
    with Bench.attach(served.address) as bench:
        bench.meters["meter0"].read(1)
        bench.mesh.program(bench.mesh.confirmed_currents_ma())
        number = served.owner.state.number
        until(lambda: served.owner.state.number > number + 4)
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [here for _, here, _, state, *_ in table if state == "0A"]
after = sent()
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"probe", ("10.9.9.2", 5075))
until(lambda: sent() > after)
elsewhere = [each for each in listening if not each.startswith("0100007F")]
print("sent", after - before, "counts", sent() > after, "elsewhere", elsewhere)
"""


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root may make a network of its own")
def test_no_packet_leaves_loopback() -> None:
    if not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("there is no unshare or no ip here, which make a network of its own")
    here = Path(__file__).parent
    ended = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, "-c", SCRIPT, str(here.parents[2])],
        env=os.environ | HOSTILE,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "sent 0 counts True elsewhere []", ended.stdout
