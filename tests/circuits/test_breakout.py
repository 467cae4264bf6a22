"""Media lanes of one module as ends of circuits of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumion_hw import Bench
from lumion_hw.bench.bench import load
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.circuits import CircuitRequest
from lumion_hw.drivers.transponders.qsfp import QsfpTransponder
from lumion_hw.errors import ConfigError
from tests.circuits.known_mesh import path_setup
from tests.edited_files import edited

EXAMPLE = Path(__file__).parents[2] / "examples" / "dr4_breakout.yaml"


def as_qsfp(profile: str) -> str:
    """Return the text of the example with QSFP modules."""
    text = EXAMPLE.read_text(encoding="utf-8")
    return text.replace("kind: cmis, profile: 400g-dr4", f"kind: qsfp-8636, profile: {profile}")


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


def test_the_four_fibres_of_a_qsfp28_are_four_circuits(tmp_path: Path) -> None:
    text = as_qsfp("100g-psm4")
    path = tmp_path / "psm4.yaml"
    path.write_text(text, encoding="utf-8")
    with Bench.emulate(path, seed=1) as bench:
        setup = path_setup(bench)
        pairs = {1: 2, 2: 1, 3: 4, 4: 3}
        proofs = setup.connect([CircuitRequest(f"dr4-a/{lane}", f"dr4-b/{to}") for lane, to in pairs.items()])
        assert [proof.proven for proof in proofs] == [True] * 4
        bench.clock.sleep(1.0)
        world = bench.emulated.world
        before_w = {to: world.received_w(f"dr4-b/{to}") for to in pairs.values()}
        bench.transponders["dr4-a/3"].disable()
        bench.clock.sleep(1.0)
        after_w = {to: world.received_w(f"dr4-b/{to}") for to in pairs.values()}
        assert after_w[4] < 1e-2 * before_w[4]
        assert all(after_w[to] == pytest.approx(before_w[to], rel=0.01) for to in (1, 2, 3))
        module = bench.transponders["dr4-b"]
        assert isinstance(module, QsfpTransponder)
        powers_dbm = [lane.rx_power_dbm or -40.0 for lane in module.lane_monitors()]
        assert min(powers_dbm[:3]) > powers_dbm[3] + 15.0
        assert bench.transponders["dr4-b/4"].status().rx_los
        assert not bench.transponders["dr4-b/1"].status().rx_los


def test_the_four_wavelengths_of_a_qsfp28_are_one_circuit(tmp_path: Path) -> None:
    text = as_qsfp("100g-lr4")
    lines = [line for line in text.splitlines() if not any(f"/{lane}" in line for lane in (2, 3, 4))]
    path = tmp_path / "lr4.yaml"
    path.write_text("\n".join(lines).replace("/1", ""), encoding="utf-8")
    with Bench.emulate(path, seed=1) as bench:
        (proof,) = path_setup(bench).connect([CircuitRequest("dr4-a", "dr4-b")])
        assert proof.proven
        bench.clock.sleep(1.0)
        sender, receiver = bench.transponders["dr4-a"], bench.transponders["dr4-b"]
        assert isinstance(sender, QsfpTransponder)
        assert isinstance(receiver, QsfpTransponder)
        assert all(lane.rx_power_dbm is not None for lane in receiver.lane_monitors())
        sender.disable_lane(2)
        bench.clock.sleep(1.0)
        assert [lane.rx_power_dbm is None for lane in receiver.lane_monitors()] == [False, True, False, False]


@pytest.mark.parametrize("module", ["kind: qsfp-8636, profile: 100g-psm4", "kind: cmis, profile: 400g-dr4"])
def test_parallel_fibres_cannot_share_a_port(tmp_path: Path, module: str) -> None:
    text = EXAMPLE.read_text(encoding="utf-8").replace("kind: cmis, profile: 400g-dr4", module)
    lines = [line for line in text.splitlines() if not any(f"/{lane}" in line for lane in (2, 3, 4))]
    path = tmp_path / "psm4.yaml"
    path.write_text("\n".join(lines).replace("/1", ""), encoding="utf-8")
    with pytest.raises(ConfigError, match="expected one of the lanes of 'dr4-a', dr4-a/1 to dr4-a/4, each of which"):
        load(path)


def parallel_pair(directory: Path, kind: str, profile: str, wiring: list[tuple[str, str]]) -> Path:
    """Write a bench of two modules with these fibres of 3 dB between them."""
    path = directory / "pair.yaml"
    fibres = "".join(f"    - {{transponder: {near}, receiver: {far}, loss_db: 3.0}}\n" for near, far in wiring)
    devices = "".join(f"  {name}: {{kind: {kind}, profile: {profile}}}\n" for name in ("a", "b"))
    path.write_text(f"version: 1\nname: pair\ndevices:\n{devices}wiring:\n  fibres:\n{fibres}", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("kind", "profile", "lanes"),
    [
        ("qsfp-8636", "100g-sr4", 4),
        ("qsfp-8636", "100g-psm4", 4),
        ("qsfp-8636", "100g-aoc", 4),
        ("cmis", "400g-dr4", 4),
        ("cmis", "400g-lpo-dr4", 4),
        ("cmis", "800g-dr8", 8),
        ("cmis", "1.6t-2xdr8", 16),
    ],
)
@pytest.mark.parametrize(("near", "far", "refused"), [("a", "b/1", "a"), ("a/1", "b", "b")])
def test_a_fibre_ends_at_a_lane_of_a_parallel_module(
    tmp_path: Path, kind: str, profile: str, lanes: int, near: str, far: str, refused: str
) -> None:
    path = parallel_pair(tmp_path, kind, profile, [(near, far)])
    with pytest.raises(ConfigError, match=f"lanes of '{refused}', {refused}/1 to {refused}/{lanes}, each of which has"):
        load(path)


@pytest.mark.parametrize("profile", ["100g-sr4", "100g-psm4", "100g-aoc"])
def test_each_lane_of_a_parallel_module_receives_its_own_fibre_alone(tmp_path: Path, profile: str) -> None:
    wiring = [(f"a/{lane}", f"b/{lane}") for lane in (1, 2, 3, 4)]
    with Bench.emulate(parallel_pair(tmp_path, "qsfp-8636", profile, wiring), seed=1) as bench:
        module = bench.transponders["b"]
        assert isinstance(module, QsfpTransponder)
        powers_dbm = [lane.rx_power_dbm for lane in module.lane_monitors()]
        # Launched at -1 dBm; 3 dB of fibre; monitors to 1 dB.
        assert powers_dbm == pytest.approx([-4.0] * 4, abs=1.5)


@pytest.mark.parametrize(("kind", "profile"), [("cmis", "400g-fr4"), ("cmis", "2x400g-fr4"), ("qsfp-8636", "40g-lr4")])
def test_wavelengths_that_share_a_fibre_are_wired_as_a_whole(tmp_path: Path, kind: str, profile: str) -> None:
    load(parallel_pair(tmp_path, kind, profile, [("a", "b")]))


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
        ("transponder: dr4-a/4", "transponder: dr4-a", "expected one of the lanes of 'dr4-a'"),
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
        load(edited(EXAMPLE, tmp_path, (old, new)))


def test_a_lane_that_the_module_does_not_have_is_refused() -> None:
    with Bench.emulate(EXAMPLE) as bench, pytest.raises(ConfigError, match="there is no media lane 5") as refused:
        bench.transponders["dr4-a"].media_lane(5)  # type: ignore[attr-defined]
    assert "media lanes 1, 2, 3, 4" in refused.value.hint
