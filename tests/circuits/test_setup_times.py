"""Time on the bench from a request to a proven circuit, and its parts."""

import json
from pathlib import Path

import pytest

from lumion_hw import Bench
from lumion_hw.circuits import CircuitRequest, PathSetup
from tests.circuits.known_mesh import path_setup

FOUR = [
    CircuitRequest(f"sfp-s{sender}n{nic}", f"sfp-s{receiver}n{nic}")
    for nic in (0, 1)
    for sender, receiver in ((0, 1), (1, 0))
]
KNOWN_MS = 25.0
SIDE_BY_SIDE = 1.3


def spans(setup: PathSetup, requests: list[CircuitRequest], log: Path) -> dict[str, float]:
    """Connect circuits whose polarization is known and whose transmitters are on; return the parts of the time."""
    for request in requests:
        setup.bench.transponders[request.source].enable()
    setup.connect(requests, align=False)
    last = json.loads(log.read_text().splitlines()[-1])
    assert last["event"] == "connected"
    setup.disconnect(requests)
    return {**last["spans_ms"], "all": last["all_ms"]}


@pytest.mark.long
def test_a_circuit_of_known_polarization_takes_25_ms_and_four_hardly_longer(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    with Bench.emulate(seed=4) as bench:
        bench.events.write_to(log)
        setup = path_setup(bench)
        setup.connect(FOUR)
        setup.disconnect(FOUR)
        one, four = spans(setup, FOUR[:1], log), spans(setup, FOUR, log)
    assert list(one) == ["looked", "programmed", "settled", "los_clear", "link_up", "all"]
    assert one["all"] - one["los_clear"] < KNOWN_MS
    # A module shows loss of signal up to 100 ms after it has ended (SFF-8472, table 8).
    assert four["los_clear"] < 100.0 + 20.0 + 5.0
    assert four["all"] - four["los_clear"] < SIDE_BY_SIDE * KNOWN_MS
    assert one["all"] == pytest.approx(sum(ms for name, ms in one.items() if name != "all"), abs=0.01)
