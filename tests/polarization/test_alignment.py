"""The polarization search on a simulated controller: four squeezers of unknown period behind an unknown fibre."""

import contextlib
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from lumion_hw.clock import VirtualClock
from lumion_hw.errors import CircuitError, DeviceError, LimitError, LumionError
from lumion_hw.interfaces.polarization import ActuatorInfo
from lumion_hw.polarization import Aligner
from tests.polarization.simulated_boxes import GradientBox


def few_of(seeds: int) -> list[object]:
    """Return two seeds for `make test`, and the rest for `make test-long`."""
    return [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, seeds))]


S1, S2 = np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])
DRIVE = ActuatorInfo("drive voltage", "mV", -5000.0, 5000.0, 1.0, None, endless=False)


def turned(stokes: NDArray[np.float64], axis: NDArray[np.float64], angle: float) -> NDArray[np.float64]:
    """Rodrigues' rotation of a Stokes vector, which is the effect of a retarder."""
    return (
        stokes * np.cos(angle) + np.cross(axis, stokes) * np.sin(angle) + axis * (axis @ stokes) * (1 - np.cos(angle))
    )


class Squeezers:
    """Four squeezers at 0°, 45°, 0°, 45° between a random input state and a random accepted state."""

    settle_s = 1e-3

    def __init__(self, seed: int, noise_db: float = 0.01) -> None:
        self.rng = np.random.default_rng(seed)
        self.actuators = (DRIVE,) * 4
        self.period_mv = self.rng.uniform(3200.0, 4200.0, 4)
        self.offset_rad = self.rng.uniform(0.0, 2 * np.pi, 4)
        self.source, self.taken = self.random_state(), self.random_state()
        self.noise_db = noise_db
        self.drive_mv = np.array([100.0, -200.0, 300.0, -400.0])
        self.reads = 0
        self.power_w = 1e-4

    def random_state(self) -> NDArray[np.float64]:
        state = self.rng.standard_normal(3)
        return np.asarray(state / np.linalg.norm(state))

    def set(self, settings: NDArray[np.float64]) -> None:
        if not (np.abs(settings) <= 5000.0).all():
            raise LimitError("drive", requested=float(np.abs(settings).max()), limit=5000.0, unit="mV")
        self.drive_mv = np.rint(settings)

    def read(self) -> NDArray[np.float64]:
        return self.drive_mv.copy()

    def close(self) -> None:
        pass

    @property
    def transmission(self) -> float:
        """Share of the light that the device accepts, (1 + s·t) / 2."""
        state = self.source
        for axis, period, offset, drive in zip(
            (S1, S2, S1, S2), self.period_mv, self.offset_rad, self.drive_mv, strict=True
        ):
            state = turned(state, axis, offset + 2 * np.pi * drive / period)
        return float((1.0 + state @ self.taken) / 2.0)

    @property
    def loss_db(self) -> float:
        return -10.0 * np.log10(max(self.transmission, 1e-12))

    def reading_w(self) -> float:
        self.reads += 1
        noise_db = self.noise_db * self.rng.standard_normal()
        return float(self.power_w * self.transmission * 10.0 ** (noise_db / 10.0))


def searched(seed: int) -> tuple[Squeezers, Aligner]:
    squeezers, aligner = Squeezers(seed), Aligner(VirtualClock())
    aligner.maximise("pol", squeezers, squeezers.reading_w)
    return squeezers, aligner


@dataclass(frozen=True)
class Searches:
    """Readings and true final losses of a first and a second search, one per seed."""

    first_reads: list[int]
    first_loss_db: list[float]
    second_reads: list[int]
    second_loss_db: list[float]


@pytest.fixture(scope="module")
def searches() -> Searches:
    """Four controllers, searched once without knowledge, and again after the fibre has moved."""
    found = Searches([], [], [], [])
    for seed in range(4):
        squeezers, aligner = searched(seed)
        found.first_reads.append(squeezers.reads)
        found.first_loss_db.append(squeezers.loss_db)
        squeezers.taken = squeezers.random_state()
        found.second_reads.append(aligner.maximise("pol", squeezers, squeezers.reading_w).reads)
        found.second_loss_db.append(squeezers.loss_db)
    return found


@pytest.mark.long
def test_a_search_from_nothing_ends_within_a_twentieth_of_a_decibel(searches: Searches) -> None:
    assert max(searches.first_loss_db) < 0.05  # docs/polarization.md#goals


def test_a_second_search_reuses_the_periods_and_needs_as_few_readings_as_the_literature(searches: Searches) -> None:
    first, second = searches.first_reads, searches.second_reads
    # docs/polarization.md, "Three readings", four squeezers at 0.01 dB noise: median 26, 95 % within 52.
    assert np.median(second) <= 12, f"median {np.median(second)} readings, {np.median(first)} for the first search"
    assert np.percentile(second, 95) <= 52
    assert np.median(second) < 0.6 * np.median(first)
    assert max(searches.second_loss_db) < 0.05


def test_what_one_controller_taught_is_not_believed_of_another() -> None:
    clock = VirtualClock()
    aligner, first, second = Aligner(clock), Squeezers(1), Squeezers(2)
    aligner.maximise("pol-a", first, first.reading_w)
    aligner.maximise("pol-b", second, second.reading_w)
    assert second.loss_db < 0.05


def test_the_result_says_what_was_read() -> None:
    squeezers = Squeezers(3)
    found = Aligner(VirtualClock()).maximise("pol", squeezers, squeezers.reading_w)
    assert found.reads == squeezers.reads
    assert found.settings == pytest.approx(squeezers.drive_mv, abs=0.5)
    assert found.power == pytest.approx(1e-4 * squeezers.transmission, rel=0.01)
    assert found.worst_power < found.power
    assert found.swing_db > 3.0


def test_every_reading_waits_for_the_squeezers() -> None:
    clock, squeezers = VirtualClock(), Squeezers(4)
    set_at: list[float] = []
    with_monitors: list[float] = []
    move = squeezers.set

    def moved(settings: NDArray[np.float64]) -> None:
        set_at.append(clock.now())
        move(settings)

    def read() -> float:
        if set_at:
            with_monitors.append(clock.now() - set_at[-1])
        return squeezers.reading_w()

    squeezers.set = moved  # type: ignore[method-assign]
    Aligner(clock).maximise("pol", squeezers, read)
    assert min(with_monitors) == pytest.approx(squeezers.settle_s)


@pytest.mark.parametrize("seed", few_of(10))
def test_a_clipped_sensor_does_not_hang_the_search(seed: int) -> None:
    squeezers = Squeezers(seed)
    found = Aligner(VirtualClock()).maximise("pol", squeezers, lambda: min(squeezers.reading_w(), 0.4e-4))
    assert found.power == 0.4e-4
    assert squeezers.transmission >= 0.39
    assert found.reads < 500


@pytest.mark.parametrize("seed", few_of(5))
def test_readings_in_decibels_are_refused_as_darkness(seed: int) -> None:
    squeezers = Squeezers(seed)
    with pytest.raises(CircuitError, match="no light"):
        Aligner(VirtualClock()).maximise("pol", squeezers, lambda: float(10 * np.log10(squeezers.reading_w())))
    assert squeezers.reads < 500


def test_a_sensor_that_says_nothing_but_noise_does_not_hang_the_search() -> None:
    squeezers, rng = Squeezers(6), np.random.default_rng(6)
    reads = Aligner(VirtualClock()).maximise("pol", squeezers, lambda: 1e-9 + 1e-10 * float(rng.random())).reads
    assert reads < 500


def test_without_light_the_settings_are_as_before() -> None:
    squeezers = Squeezers(7)
    before = squeezers.read()
    squeezers.power_w = 0.0
    with pytest.raises(CircuitError, match="pol: no light arrives for any polarization"):
        Aligner(VirtualClock()).maximise("pol", squeezers, squeezers.reading_w)
    assert squeezers.drive_mv == pytest.approx(before)


def test_a_meter_whose_noise_goes_both_ways_sees_no_light() -> None:
    squeezers, rng = Squeezers(7), np.random.default_rng(7)
    before = squeezers.read()
    with pytest.raises(CircuitError, match="no light arrives"):
        Aligner(VirtualClock()).maximise("pol", squeezers, lambda: 1e-11 * float(rng.standard_normal()))
    assert squeezers.drive_mv == pytest.approx(before)


def test_darkness_teaches_nothing_about_the_periods() -> None:
    squeezers, aligner = Squeezers(8, noise_db=0.0), Aligner(VirtualClock())
    squeezers.power_w = 0.0
    with pytest.raises(CircuitError):
        aligner.maximise("pol", squeezers, squeezers.reading_w)
    squeezers.power_w = 1e-4
    after_darkness = aligner.maximise("pol", squeezers, squeezers.reading_w)
    assert squeezers.loss_db < 0.05
    fresh = Squeezers(8, noise_db=0.0)
    assert after_darkness.reads == Aligner(VirtualClock()).maximise("pol", fresh, fresh.reading_w).reads


@pytest.mark.parametrize("failure", [DeviceError("over-range"), KeyboardInterrupt()])
def test_a_search_cut_short_leaves_the_settings_as_before(failure: BaseException) -> None:
    squeezers = Squeezers(9)
    before = squeezers.read()

    def read() -> float:
        if squeezers.reads == 20:
            raise failure
        return squeezers.reading_w()

    with pytest.raises(type(failure)):
        Aligner(VirtualClock()).maximise("pol", squeezers, read)
    assert squeezers.drive_mv == pytest.approx(before)


def test_a_search_that_starts_at_the_best_setting_stays_there() -> None:
    squeezers, aligner = searched(10)
    squeezers.reads = 0
    found = aligner.maximise("pol", squeezers, squeezers.reading_w)
    assert squeezers.loss_db < 0.05
    assert found.reads <= 1 + 2 * (4 * 3 + 1)  # at most two rounds of three readings per squeezer and one to confirm


class GoesOut:
    """Reads a power until the light is gone; after that exactly zero."""

    def __init__(self, read_w, after: int) -> None:
        self._read_w, self._left = read_w, after

    def __call__(self) -> float:
        self._left -= 1
        return self._read_w() if self._left >= 0 else 0.0


@pytest.mark.parametrize(
    "share", [0.5, *(pytest.param(each, marks=pytest.mark.long) for each in np.linspace(0, 1, 40))]
)
def test_light_that_goes_out_during_a_search_ends_it_with_a_result_or_an_error_of_the_package(share: float) -> None:
    """A supply can fail at any reading; no reading may lead to a division by zero."""
    aligner = Aligner(VirtualClock())
    whole, boxes = Squeezers(0), (GradientBox(3), Squeezers(0), Squeezers(0))
    reads = [Aligner(VirtualClock()).maximise("box", GradientBox(3), GradientBox(3).reading_w).reads]
    reads += [aligner.maximise("pol-a", whole, whole.reading_w).reads] * 2
    searches = (Aligner(VirtualClock()), Aligner(VirtualClock()), aligner)  # without periods, and with them
    for search, box, n_reads in zip(searches, boxes, reads, strict=True):
        with contextlib.suppress(LumionError):
            found = search.maximise("pol-a", box, GoesOut(box.reading_w, round(share * n_reads)))
            assert 0.0 <= found.swing_db <= 60.0
            assert not np.isnan(found.remaining_loss_db)


def test_light_that_goes_out_while_it_is_followed_is_lost_or_an_error_of_the_package() -> None:
    box, aligner = Squeezers(0), Aligner(VirtualClock())
    found = aligner.maximise("pol-a", box, box.reading_w)
    read = GoesOut(box.reading_w, 5)
    tracking = aligner.track("pol-a", box, read, found)
    with contextlib.suppress(LumionError):
        states = [tracking.step() for _ in range(60)]
        assert states[-1].has_lost_light
    with contextlib.suppress(LumionError):
        tracking.switch_reading(lambda: 0.0)
