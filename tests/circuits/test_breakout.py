"""Media lanes of one module as ends of circuits of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumion_hw import Bench
from lumion_hw.bench.bench import load
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.circuits import CircuitRequest
from lumion_hw.errors import ConfigError
from tests.circuits.known_mesh import path_setup

EXAMPLE = Path(__file__).parents[2] / "examples" / "dr4_breakout.yaml"


def changed(directory: Path, old: str, new: str) -> Path:
    """Write the example with one piece of text replaced."""
    text = EXAMPLE.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path = directory / "bench.yaml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


def test_four_circuits_of_one_module_are_proven_and_one_that_ends_leaves_the_others_untouched() -> None:
    with Bench.emulate(EXAMPLE, seed=1) as bench:
        setup = path_setup(bench)
        pairs = {1: 2, 2: 1, 3: 4, 4: 3}
        proofs = setup.connect([CircuitRequest(f"dr4-a/{lane}", f"dr4-b/{to}") for lane, to in pairs.items()])
        assert [proof.proven for proof in proofs] == [True] * 4
        bench.clock.sleep(1.0)  # the module refreshes its monitors
        world = bench.emulated.world
        before_w = {to: world.received_w(f"dr4-b/{to}") for to in pairs.values()}
        readings = {to: bench.transponders[f"dr4-b/{to}"].monitors().rx_power_dbm for to in pairs.values()}
        assert all(power_dbm is not None and power_dbm > -6.0 for power_dbm in readings.values())
        bench.transponders["dr4-a/2"].disable()
        bench.clock.sleep(1.0)
        assert world.received_w("dr4-b/1") < 1e-4 * before_w[1]
        for to in (2, 3, 4):
            assert world.received_w(f"dr4-b/{to}") == pytest.approx(before_w[to], rel=0.01)  # leakage, drift of fibres
        assert bench.transponders["dr4-b/1"].status().rx_los
        assert not bench.transponders["dr4-b/2"].status().rx_los
        assert bench.transponders["dr4-a"].status().tx_disabled is False
        # Receiving switches no transmitter on.
        assert world.received_w("dr4-a/1") == 0.0
        assert not bench.transponders["dr4-b"].settings().enabled  # type: ignore[attr-defined]


def test_a_circuit_of_one_lane_can_be_ended_and_connected_again() -> None:
    with Bench.emulate(EXAMPLE, seed=2) as bench:
        setup = path_setup(bench)
        setup.connect([CircuitRequest("dr4-a/1", "dr4-b/1"), CircuitRequest("dr4-a/2", "dr4-b/2")])
        setup.disconnect([CircuitRequest("dr4-a/1", "dr4-b/1")])
        assert all(proof.proven for proof in setup.prove())
        (proof,) = setup.connect([CircuitRequest("dr4-a/1", "dr4-b/3")])
        assert proof.proven
        assert all(proof.proven for proof in setup.prove())


def test_lanes_are_devices_of_a_model_that_is_sent_to_another_process() -> None:
    model = load(EXAMPLE)
    assert model.devices["dr4-a/3"].container == "dr4-a"
    again = BenchModel.model_validate_json(model.model_dump_json(exclude_unset=True))
    assert again.devices.keys() == model.devices.keys()
    assert again.devices["dr4-a/3"] == model.devices["dr4-a/3"]


def test_a_lane_is_opened_with_its_module_only() -> None:
    with Bench.emulate(EXAMPLE, only=["dr4-a/2"]) as bench:
        assert set(bench.transponders) == {"dr4-a", *(f"dr4-a/{lane}" for lane in range(1, 5))}
        lane = bench.transponders["dr4-a/2"]
        lane.close()
        assert bench.transponders["dr4-a"].identify().serial == lane.identify().serial


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("transponder: dr4-a/4", "transponder: dr4-a/5", "expected a media lane from 1 to 4 of 'dr4-a', found 5"),
        ("transponder: dr4-a/4", "transponder: dr4-a", "expected 'dr4-a' to be wired as a whole or by its lanes"),
        ("transponder: dr4-a/4", "transponder: dr4-c/4", "found 'dr4-c/4', which is not in devices"),
        ("transponder: dr4-a/4", "transponder: pol4/4", "found 'pol4', which is of kind oz-epc04"),
        ("transponder: dr4-a/4", "transponder: dr4-a/3", "to be used once"),
        (
            "dr4-a: {kind: cmis, profile: 400g-dr4}",
            "dr4-a: {kind: cmis}",
            "expected 'dr4-a': this module has one media",
        ),
    ],
)
def test_lanes_that_cannot_be_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(changed(tmp_path, old, new))


def test_a_lane_that_the_module_does_not_have_is_refused() -> None:
    with Bench.emulate(EXAMPLE) as bench, pytest.raises(ConfigError, match="there is no media lane 5") as refused:
        bench.transponders["dr4-a"].media_lane(5)  # type: ignore[attr-defined]
    assert "media lanes 1, 2, 3, 4" in refused.value.hint
