"""The emulated Keysight N7785C: its commands, and convergence of its loop to the smallest factor."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.polarization.keysight_n778x import EmulatedKeysightN7785C


class Bench:
    """A stabilizer in polarized light, and one host."""

    def __init__(self, seed: int = 1) -> None:
        self.clock, self.rng = VirtualClock(), np.random.default_rng(1000 + seed)
        self.turns: list[np.ndarray] = []
        self.device = EmulatedKeysightN7785C("pol0", self.clock, np.random.default_rng(seed), turn=self.turns.append)
        self.peer = self.device.connect()
        self.field = self.rng.standard_normal(2) + 1j * self.rng.standard_normal(2)
        self.field /= np.linalg.norm(self.field)

    def ask(self, line: str) -> str:
        self.peer.receive(line.encode() + b"\n")
        return self.peer.transmit().decode().removesuffix("\n")

    def errors(self) -> list[int]:
        codes = []
        while code := int(self.ask("SYST:ERR?").split(",")[0]):
            codes.append(code)
        return codes

    def leak(self, crosstalk: float) -> float:
        """Return the share of the light in the complementary port."""
        share = abs((self.turns[-1] @ self.field)[0]) ** 2
        return float((1 - crosstalk) * share + crosstalk * (1 - share))

    def loop(self, steps: int, crosstalk: float, noise_db: float = 0.01, scale: float = 100.0) -> float:
        """Run the documented loop; return the leak at its end."""
        self.ask("STAB:STAB 0")
        self.ask("STAB:STAB 1")
        for _ in range(steps):
            factor = scale * self.leak(crosstalk) * 10 ** (self.rng.normal(0.0, noise_db) / 10)
            self.ask(f"STAB:SOP 0,0,0,{factor:.9g}")
            self.ask("TRIG 1")
        self.ask("STAB:STAB 0")
        return self.leak(crosstalk)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_identity(bench):
    assert bench.ask("*IDN?").startswith("Keysight Technologies,N7785C,")


@pytest.mark.parametrize("seed", range(20))
def test_loop_ends_within_3_db_of_the_crosstalk_floor(seed):
    bench = Bench(seed)
    assert 10 * np.log10(bench.loop(250, crosstalk=1e-3)) < -27.0
    assert bench.errors() == []


def test_without_a_floor_the_extinction_goes_on_growing():
    assert np.median([Bench(seed).loop(300, crosstalk=0.0) for seed in range(9)]) < 1e-4


def test_a_larger_scale_converges_faster():
    """Keysight N778xC programming guide: the factor is scaled to 1 to 100, a larger scale converges faster."""
    slow, fast = (np.median([Bench(seed).loop(25, 1e-3, scale=scale) for seed in range(15)]) for scale in (1.0, 100.0))
    assert fast < 0.5 * slow


def test_a_step_is_small_near_the_end(bench):
    bench.loop(250, crosstalk=1e-3)
    bench.ask("STAB:STAB 1")
    before = bench.leak(1e-3)
    bench.ask(f"STAB:SOP 0,0,0,{100 * before:.6g}")
    bench.ask("TRIG 1")
    assert bench.leak(1e-3) < 10 * before


def test_stopping_goes_back_to_the_best_and_holds_it(bench):
    bench.ask("STAB:STAB 1")
    best = bench.turns[-1]
    bench.ask("STAB:SOP 0,0,0,50")
    bench.ask("TRIG 1")
    bench.ask("STAB:SOP 0,0,0,60")
    bench.ask("TRIG 1")
    assert not np.allclose(bench.turns[-1], best)
    bench.ask("STAB:STAB 0")
    np.testing.assert_allclose(bench.turns[-1], best)
    assert bench.ask("STAB:STAB?") == "+0"


def test_a_trigger_while_stopped_is_ignored_with_an_error(bench):
    count = len(bench.turns)
    bench.ask("TRIG 1")
    assert bench.errors() == [-211]
    assert len(bench.turns) == count


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("STAB:SOP 0,0,0", -109),
        ("STAB:SOP 0,0,0,0", -222),
        ("STAB:SOP 0,0,0,-1", -222),
        ("STAB:SOP 0,0,0,101", -222),
        ("STAB:SOP 1,0,0,5", -221),
        ("STAB:SOP 0,0,0,5,6", -108),
        ("STAB:STAB MAYBE", -224),
        ("TRIG 2", -222),
        ("TRIG", -109),
        ("STAB:STABI 1", -113),
    ],
)
def test_refusals(bench, line, code):
    before = bench.ask("STAB:SOP?")
    assert bench.ask(line) == ""
    assert bench.errors() == [code]
    assert bench.ask("STAB:SOP?") == before


def test_what_was_told_is_read_back_in_32_bits(bench):
    bench.ask(":STABILIZER:SOP 0,0,0,12.5")
    assert bench.ask("STAB:SOP?") == "+0.00000000E+000,+0.00000000E+000,+0.00000000E+000,+1.25000000E+001"


def test_reset_stops_and_holds(bench):
    bench.ask("STAB:STAB 1")
    best = bench.turns[-1]
    bench.ask("STAB:SOP 0,0,0,50;:TRIG 1")
    bench.ask("*RST")
    assert bench.ask("STAB:STAB?") == "+0"
    np.testing.assert_allclose(bench.turns[-1], best)


def test_plates_turn_and_lose_little(bench):
    bench.loop(50, crosstalk=1e-3)
    for matrix in bench.turns:
        power = matrix @ matrix.conj().T
        assert abs(power[0, 1]) < 1e-12
        assert 0.0 <= -10 * np.log10(power[0, 0].real) <= 0.05
