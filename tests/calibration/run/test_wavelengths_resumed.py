"""A run at several wavelengths that was cut short goes on from its journal, with the light where it was."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.measure.logbook import Logbook
from calibration.model.device_under_test import DeviceUnderTest
from calibration.run.bootstrap import BootstrapPlan
from calibration.run.journal import RunJournal
from calibration.run.journaled_run import check_light, check_same, header_of
from calibration.run.procedure import Calibration
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from tests.calibration.same_record import content
from tests.calibration.simulated_bench import SimulatedBench
from tests.calibration.simulated_mesh import REFERENCE_HZ

MESH = HexMesh.columns([1])
SOURCES = (0, 3)
RANGE_HZ = (190e12, 197e12)
WAVELENGTHS_NM = (1540.0, 1560.0)
DEVICE = DeviceUnderTest(
    "S-1", "simulated", "1.0", tuple(range(2 * MESH.n_pucs)), 1550.0, 1000.0, (1.2, 2.0), 0.8,
    source_spread_hz=1e9, tunable_hz=dict.fromkeys(SOURCES, RANGE_HZ),
)  # fmt: skip


@dataclass
class CutBench(SimulatedBench):
    """A simulated bench with noise keyed to the number of the reading, that fails at a certain tuning."""

    logbook: Logbook | None = None
    tunings: int = 0
    cut_at: int = 0

    def tune(self, port: int, frequency_hz: float) -> float:
        self.tunings += 1
        if self.tunings == self.cut_at:
            raise KeyboardInterrupt
        return super().tune(port, frequency_hz)

    def measure_batch(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        first = 0 if self.logbook is None else len(self.logbook)
        rows = []
        for number, setting in enumerate(currents_ma):
            self.simulated.rng = np.random.default_rng([77, first + number])
            rows.append(super().measure(setting))
        return np.array(rows)

    def measure(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.measure_batch(currents_ma[None])[0]


def opened(cut_at: int = 0) -> CutBench:
    bench = CutBench.draw(MESH, 1, SOURCES)
    assert isinstance(bench, CutBench)
    bench.tuning_range_hz, bench.frequency_error_hz, bench.cut_at = RANGE_HZ, {0: 0.2e9, 3: -0.1e9}, cut_at
    return bench


def run(bench: CutBench, path: Path, wavelengths_nm: tuple[float, ...] = WAVELENGTHS_NM) -> CalibrationRecord:
    """Run with a journal, or go on from it."""
    book = RunJournal.resume(path) if path.exists() else RunJournal.begin(path)
    going_on, plan = bool(book.entries), BootstrapPlan(random_settings=120)
    try:
        made = Calibration(bench, DEVICE, 1, plan=plan, before=book.entries, wavelengths_nm=wavelengths_nm)
        if going_on:
            check_same(book.header, header_of(made, {}))
            check_light(bench, book.entries)
        else:
            book.write_header(header_of(made, {}))
        bench.logbook, made.logbook.keep = made.logbook, book.add
        return made.run()
    finally:
        book.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[CalibrationRecord, int]:
    bench = opened()
    return run(bench, tmp_path_factory.mktemp("undisturbed") / "record.journal"), bench.tunings


@pytest.mark.long
def test_undisturbed_it_finds_the_delay(undisturbed: tuple[CalibrationRecord, int]) -> None:
    record, tunings = undisturbed
    assert record.dispersion is not None
    assert record.dispersion.delay_s == pytest.approx(11.25e-12, rel=2e-4)
    # To the reference, one step on the way, both wavelengths, back, the unseen one, back: of two sources each.
    assert tunings == 2 * 7


@pytest.mark.long
@pytest.mark.parametrize("cut_at", [4, *(pytest.param(cut_at, marks=pytest.mark.campaign) for cut_at in (7, 8, 12))])
def test_a_run_cut_short_at_a_tuning_goes_on(
    undisturbed: tuple[CalibrationRecord, int], tmp_path: Path, cut_at: int
) -> None:
    bench = opened(cut_at)
    with pytest.raises(KeyboardInterrupt):
        run(bench, tmp_path / "record.journal")
    assert list(bench.now_hz.values()) == pytest.approx([REFERENCE_HZ] * 2, abs=1.0)  # nobody takes 1540 nm for it
    bench = opened()
    again = run(bench, tmp_path / "record.journal")
    assert content(again) == content(undisturbed[0])
    assert list(bench.now_hz.values()) == pytest.approx([REFERENCE_HZ] * 2, abs=1.0)


@pytest.mark.long
def test_it_does_not_go_on_for_other_wavelengths(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(opened(4), tmp_path / "record.journal")
    with pytest.raises(CalibrationError, match="the plan"):
        run(opened(), tmp_path / "record.journal", wavelengths_nm=(1545.0,))


def test_the_readings_kept_say_at_which_frequency_they_were_taken() -> None:
    logbook, cold = Logbook(opened()), np.zeros(2 * MESH.n_pucs)
    for port in SOURCES:
        logbook.tune(port, REFERENCE_HZ)
    logbook.light_only_port(0)
    logbook.measure(cold)
    logbook.tune(0, REFERENCE_HZ + 1e11)
    logbook.measure(cold)
    logbook.light_only_port(3)
    logbook.measure(cold)
    assert logbook.observations().detunings_hz.tolist() == [0.0, 1e11, 0.0]
