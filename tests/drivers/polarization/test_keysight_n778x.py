"""The N7785C driver against an emulated instrument that accepts only documented lines."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.clock import SystemClock, VirtualClock
from lumion_hw.drivers.polarization.keysight_n778x import KeysightN7785C
from lumion_hw.emulator.polarization.keysight_n778x import EmulatedKeysightN7785C
from lumion_hw.errors import ConfigError, ConnectError, DeviceError, IdentityError, LimitError, LinkLost, LinkTimeout
from lumion_hw.interfaces import PolarizationOptimizer
from lumion_hw.links import MemoryLink
from lumion_hw.testing.wires import DisturbedLink
from tests.waiting import PATIENCE_S
from tests.wire_vectors import DocumentedPeer

IDN = "Keysight Technologies,N7785C,MY5,2.001"


class Stabilizer(DocumentedPeer):
    """Emulated N7785C behind a connection that knows its manual."""

    def __init__(self, clock: VirtualClock, identity: str = IDN) -> None:
        box = EmulatedKeysightN7785C("pol0", clock, np.random.default_rng(1), turn=lambda _: None)
        super().__init__("keysight_n7785c", box, clock)
        self.replies["*IDN?"] = identity

    @property
    def steps(self) -> list[float]:
        """Factors of the steps taken."""
        return list(self.device.steps)


@pytest.fixture
def peer(clock: VirtualClock) -> Stabilizer:
    return Stabilizer(clock)


def opened(clock: VirtualClock, peer: Stabilizer, **options: object) -> KeysightN7785C:
    driver = KeysightN7785C(MemoryLink(lambda: peer, clock, "box"), clock, device="pol0", **options)
    driver.open()
    peer.sent.clear()
    return driver


def test_the_loop_is_that_of_the_programming_guide(clock: VirtualClock, peer: Stabilizer) -> None:
    driver: PolarizationOptimizer = opened(clock, peer)
    driver.start()
    driver.improve(73.25)
    driver.improve(9.5)
    driver.stop()
    assert [line for line in peer.sent if line != "SYST:ERR?"] == [
        "STAB:STAB 0",
        "STAB:STAB 1",
        "STAB:SOP 0,0,0,73.25",
        "TRIG 1",
        "STAB:SOP 0,0,0,9.5",
        "TRIG 1",
        "STAB:STAB 0",
    ]


def test_a_command_that_the_box_refuses_is_an_error_with_its_text(clock: VirtualClock, peer: Stabilizer) -> None:
    driver = opened(clock, peer)
    driver.start()
    peer.ask_elsewhere("STAB:STAB 0")
    with pytest.raises(DeviceError, match="TRIG 1: -211 Trigger ignored"):
        driver.improve(50.0)


def test_errors_of_others_before_opening_are_not_blamed_on_it(clock: VirtualClock, peer: Stabilizer) -> None:
    peer.ask_elsewhere("NONSENSE")
    opened(clock, peer).start()


def test_a_step_without_a_start_is_refused(clock: VirtualClock, peer: Stabilizer) -> None:
    driver = opened(clock, peer)
    with pytest.raises(DeviceError, match=r"no search was started.*start\(\)"):
        driver.improve(50.0)
    driver.start()
    driver.stop()
    with pytest.raises(DeviceError, match="no search was started"):
        driver.improve(50.0)
    assert not peer.steps


@pytest.mark.parametrize("factor", [0.0, -3.0, 100.5, float("nan")])
def test_what_is_no_factor_is_not_sent(clock: VirtualClock, peer: Stabilizer, factor: float) -> None:
    driver = opened(clock, peer)
    driver.start()
    peer.sent.clear()
    with pytest.raises(LimitError, match="Nothing was sent"):
        driver.improve(factor)
    assert peer.sent == []


@pytest.mark.parametrize(
    "identity",
    ["Keysight Technologies,N7786C,MY5,2.001", "Keysight Technologies,N7745C,MY5,2.001", "ACME,N7785C,1,1", "?"],
)
def test_another_instrument_is_refused_and_quoted(clock: VirtualClock, identity: str) -> None:
    with pytest.raises(IdentityError) as caught:
        opened(clock, Stabilizer(clock, identity))
    assert identity in str(caught.value)


def test_another_serial_number_is_refused(clock: VirtualClock, peer: Stabilizer) -> None:
    with pytest.raises(IdentityError, match=r"expected N7785C, serial MY6; found .*MY5"):
        opened(clock, peer, expected_serial="MY6")


def test_a_late_answer_costs_one_step_and_no_more(clock: VirtualClock, peer: Stabilizer) -> None:
    driver = opened(clock, peer)
    driver.start()
    peer.delay_replies(3.0)
    with pytest.raises(LinkTimeout):
        driver.improve(50.0)
    driver.improve(40.0)
    assert peer.steps[-1] == 40.0


def test_a_box_that_was_away_has_to_be_started_again(clock: VirtualClock, peer: Stabilizer) -> None:
    wire = DisturbedLink(MemoryLink(lambda: peer, clock, "box"), clock)
    driver = KeysightN7785C(wire, clock, device="pol0")
    driver.open()
    driver.start()
    wire.close()
    with pytest.raises(LinkLost):
        driver.improve(50.0)
    driver.close()
    with pytest.raises(ConnectError, match="not open"):
        driver.improve(50.0)
    peer.ask_elsewhere("STAB:STAB 0")
    driver.open()
    with pytest.raises(DeviceError, match="no search was started"):
        driver.improve(50.0)
    driver.start()
    driver.improve(50.0)
    assert peer.steps == [50.0]


def test_two_threads_never_mix_factor_and_step() -> None:
    clock = SystemClock()
    peer = Stabilizer(clock)  # type: ignore[arg-type]
    driver = opened(clock, peer)  # type: ignore[arg-type]
    driver.start()

    def tell(factor: float) -> None:
        for _ in range(50):
            driver.improve(factor)

    threads = [threading.Thread(target=tell, args=(factor,), daemon=True) for factor in (20.0, 80.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(peer.steps) == [20.0] * 50 + [80.0] * 50


def test_a_bench_keeps_it_among_its_optimizers_and_may_put_it_before_an_input(
    clock: VirtualClock, peer: Stabilizer
) -> None:
    model = BenchModel.model_validate(
        {
            "version": 1,
            "name": "b",
            "devices": {
                "mesh0": {"kind": "lumion-mesh"},
                "er0": {"kind": "sfp-8472"},
                "pol0": {"kind": "keysight-n7785c", "serial": "MY5"},
            },
            "mesh": {"controller": "mesh0", "columns": [2]},
            "wiring": {"inputs": [{"transponder": "er0", "port": 0, "polarization": "pol0"}]},
        }
    )
    with Bench(model, lambda *_: MemoryLink(lambda: peer, clock, "box"), clock, only=["pol0"]) as bench:
        assert bench.polarizer("pol0") is bench.polarization_optimizers["pol0"]
        assert bench.polarization == {}
        bench.polarization_optimizers["pol0"].start()
        with pytest.raises(ConfigError, match="this polarization controller is not open"):
            bench.polarizer("er0")
    assert peer.device.stabilizing
