"""Clients that die or freeze while they hold the lease: the lease ends, and the reason is logged."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lumion_hw.bench.bench import Bench
from tests.serving.serving_bench import serving
from tests.waiting import until

HEATERS = "small:mesh0:heaters_ma"
SCRIPT = """
import sys, time
import numpy as np
from lumion_hw import Bench
with Bench.attach(sys.argv[1]) as bench:
    bench.mesh.program(np.full(30, 0.5))
    print("driving", flush=True)
    while sys.stdin.readline():
        try:
            bench.mesh.program(np.full(30, 0.7))
        except Exception as error:
            print(type(error).__name__, error, flush=True)
        else:
            print("wrote", flush=True)
"""
PLAIN = """
import sys
from p4p.client.thread import Context
conf = {"EPICS_PVA_NAME_SERVERS": sys.argv[1].removeprefix("pva://"), "EPICS_PVA_AUTO_ADDR_LIST": "NO"}
context = Context("pva", conf=conf, useenv=False)
context.put("small:lease:owner", "plain")
context.put("small:mesh0:heaters_ma", [0.5] * 30)
print("driving", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator:
    with serving(tmp_path_factory.mktemp("served"), heaters_off_on_loss=True, timeout_s=3) as found:
        yield found


@pytest.fixture
def holder(served, request) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", getattr(request, "param", SCRIPT), served.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline().strip() == "driving"
    assert served.owner.bench.mesh.confirmed_currents_ma() == pytest.approx(0.5, abs=1e-4)
    yield process
    process.kill()
    process.communicate()


def ended(served):
    """Return the event of the last ended lease; an empty one before the first."""
    return next((each.data for each in reversed(served.owner.state.events) if each.event == "lease ended"), {})


@pytest.mark.parametrize("holder", [SCRIPT, PLAIN], indirect=True, ids=["script", "plain client"])
def test_a_writer_that_is_killed_leaves_the_lease_at_once_and_no_heat(served, holder) -> None:
    owner = served.owner.lease.served().owner
    holder.kill()
    until(lambda: not served.owner.lease.served().owner, 60.0)
    until(lambda: not served.owner.bench.mesh.confirmed_currents_ma().any(), 60.0)
    until(lambda: ended(served).get("owner") == owner, 60.0)
    assert "connection to the holder lost" in ended(served)["why"], (
        "it was its deadline, of 3 s or ten minutes, that ended it"
    )


@pytest.mark.parametrize(
    "holder",
    [pytest.param(SCRIPT, id="script", marks=pytest.mark.long), pytest.param(PLAIN, id="plain client")],
    indirect=True,
)
def test_a_writer_that_freezes_loses_the_lease(served, holder) -> None:
    os.kill(holder.pid, signal.SIGSTOP)
    until(lambda: not served.owner.lease.served().owner)
    until(lambda: not served.owner.bench.mesh.confirmed_currents_ma().any())
    with Bench.attach(served.address) as bench:
        bench.meters["meter0"].set_averaging_s(1, 0.02)


def test_a_writer_that_was_frozen_and_comes_back_writes_nothing(served, holder) -> None:
    os.kill(holder.pid, signal.SIGSTOP)
    until(lambda: not served.owner.lease.served().owner)
    number = served.owner.lease.served().number
    os.kill(holder.pid, signal.SIGCONT)
    until(lambda: _answer(holder) == "BusyError")
    assert not served.owner.bench.mesh.confirmed_currents_ma().any()
    assert served.owner.lease.served().number == number


def _answer(holder) -> str:
    """Return the outcome of the holder's next write, after a possible reconnection."""
    holder.stdin.write("write\n")
    holder.stdin.flush()
    answer = holder.stdout.readline().split()[0]
    assert answer in ("BusyError", "LinkLost")
    return answer


def test_clients_that_come_and_go_leave_nothing_behind(served) -> None:
    import threading

    def once() -> None:
        with Bench.attach(served.address) as bench:
            bench.meters["meter0"].read(1)
            stream = bench.mesh.controller.telemetry(0.05)
            next(stream)

    once()
    until(lambda: not served.owner.calls.connections())
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        once()
    until(lambda: not served.owner.calls.connections())
    until(lambda: threading.active_count() <= threads + 32)  # the workers of calls, which stay
    until(lambda: len(os.listdir("/proc/self/fd")) <= files)
