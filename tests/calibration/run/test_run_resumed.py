"""A run that was cut short at any point and gone on with from its journal gives the record of an undisturbed one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.measure.logbook import Logbook, LogbookEntry
from calibration.model.device_under_test import DeviceUnderTest
from calibration.run.bootstrap import BootstrapPlan
from calibration.run.journal import RunJournal, read_journal
from calibration.run.journaled_run import check_light, check_same, header_of
from calibration.run.planning import Goal
from calibration.run.procedure import Calibration
from lumion_hw.errors import CalibrationError, LinkLost, LumionError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from tests.calibration.same_record import content
from tests.calibration.simulated_bench import SimulatedBench

MESH = HexMesh.columns([1])
SOURCES = (0, 3)
DEVICE = DeviceUnderTest("S-1", "simulated", "1.0", tuple(range(2 * MESH.n_pucs)), 1550.0, 1000.0, (1.2, 2.0), 0.8)
PLAN = BootstrapPlan(random_settings=120)
GOAL = Goal(sigma_rad=2e-3)  # fewer chosen settings than a record takes that is to be used
ENDINGS = (KeyboardInterrupt(), SystemExit(143), LinkLost("unplugged"), LumionError("no room"))


@dataclass
class KeyedBench(SimulatedBench):
    """A simulated bench whose noise is keyed to the number of the reading, and on which one step fails.

    Attributes:
        logbook: Counts the readings of the run.
        steps: Steps made: settings, changes of light, questions to modules and meters.
        cut_at: The step that fails; none if 0.
        ending: How it fails.
    """

    logbook: Logbook | None = None
    steps: int = 0
    cut_at: int = 0
    ending: BaseException = ENDINGS[0]
    driven: NDArray[np.float64] | None = None

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self.cut_at:
            raise self.ending

    def light_only_port(self, port: int | None) -> None:
        self._step()
        super().light_only_port(port)

    def launched_dbm(self, port: int) -> float:
        self._step()
        assert self.lit == port
        return 6.0 + 0.1 * port

    def measure(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.measure_batch(currents_ma[None])[0]

    def measure_batch(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        first = 0 if self.logbook is None else len(self.logbook)
        rows = []
        for number, setting in enumerate(currents_ma):
            self._step()
            self.simulated.rng = np.random.default_rng([77, first + number])
            rows.append(super().measure(setting))
            self.driven = setting
        return np.array(rows)

    measures_resistances = False

    def heater_resistances_ohm(self) -> NDArray[np.float64]:
        return np.full(2 * self.mesh.n_pucs, np.nan)

    def fibre_dbm(self) -> dict[int, float]:
        self._step()
        assert self.driven is not None
        assert self.lit is not None
        power = self._exact_ma(self.driven, self.lit)
        return {
            port: float(10.0 * np.log10(max(power[index], 1e-12)) - 3.0) for index, port in enumerate(self.monitors)
        }


def opened() -> KeyedBench:
    bench = KeyedBench.draw(MESH, 1, SOURCES)
    assert isinstance(bench, KeyedBench)
    return bench


def run_of(bench: KeyedBench, before: Sequence[LogbookEntry] = (), seed: int = 1) -> Calibration:
    run = Calibration(bench, DEVICE, seed, plan=PLAN, goal=GOAL, before=before)
    bench.logbook = run.logbook
    return run


def begun(path: Path, bench: KeyedBench) -> CalibrationRecord:
    """Run with a journal, to the end or to where the bench fails."""
    run = run_of(bench)
    book = RunJournal.begin(path)
    try:
        book.write_header(header_of(run, {}))
        run.logbook.keep = book.add
        return run.run()
    finally:
        book.close()


def gone_on_with(path: Path, bench: KeyedBench) -> CalibrationRecord:
    """Go on from the journal; check the light first, as a run on a bench does."""
    book = RunJournal.resume(path)
    try:
        run = run_of(bench, book.entries)
        check_same(book.header, header_of(run, {}))
        bench.logbook = None
        run.logbook.light_db = check_light(bench, book.entries).power_db
        bench.logbook, run.logbook.keep = run.logbook, book.add
        return run.run()
    finally:
        book.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[CalibrationRecord, int, bytes]:
    """The record of an undisturbed run, its steps, and its journal."""
    path, bench = tmp_path_factory.mktemp("undisturbed") / "record.journal", opened()
    return begun(path, bench), bench.steps, path.read_bytes()


POINT = 0.64
"""In random or chosen settings."""
MORE_POINTS = [0.05, 1.0, 0.0, 0.28, *np.random.default_rng(20).uniform(0.0, 1.0, 12).tolist()]


@pytest.mark.parametrize(
    "point",
    [
        # One that was killed in the middle of a line goes on from there with the fast ones, below.
        pytest.param(MORE_POINTS[0], marks=pytest.mark.long),
        *(pytest.param(point, marks=pytest.mark.campaign) for point in (POINT, *MORE_POINTS[1:])),
    ],
)
def test_cut_short_at_any_point_and_gone_on_with_the_record_is_the_same(
    undisturbed: tuple[CalibrationRecord, int, bytes], point: float, tmp_path: Path
) -> None:
    record, steps, journal = undisturbed
    path, bench = tmp_path / "record.journal", opened()
    bench.cut_at = 1 + round(point * (steps - 1))
    bench.ending = ENDINGS[bench.cut_at % len(ENDINGS)]
    with pytest.raises(type(bench.ending)):
        begun(path, bench)
    assert bench.is_safe
    resumed = gone_on_with(path, opened())
    assert resumed.complete
    assert content(resumed) == content(record)
    whole = tmp_path / "whole.journal"
    whole.write_bytes(journal)
    asked, wanted = read_journal(path).entries, read_journal(whole).entries
    assert len(asked) == len(wanted)  # nothing is asked twice
    assert all(one.has_same_request(other) for one, other in zip(asked, wanted, strict=True))


@pytest.mark.long
def test_a_run_cut_short_again_and_again_comes_to_the_same_end(
    undisturbed: tuple[CalibrationRecord, int, bytes], tmp_path: Path
) -> None:
    record, steps, _ = undisturbed
    path, bench = tmp_path / "record.journal", opened()
    bench.cut_at = steps // 3
    with pytest.raises(KeyboardInterrupt):
        begun(path, bench)
    bench = opened()
    bench.cut_at = steps // 3
    with pytest.raises(KeyboardInterrupt):
        gone_on_with(path, bench)
    assert content(gone_on_with(path, opened())) == content(record)


@pytest.mark.parametrize(
    "share", [pytest.param(0.3, marks=pytest.mark.campaign), 0.7, pytest.param(0.95, marks=pytest.mark.campaign)]
)
def test_a_run_that_was_killed_in_the_middle_of_a_line_is_gone_on_with(
    undisturbed: tuple[CalibrationRecord, int, bytes], share: float, tmp_path: Path
) -> None:
    record, steps, journal = undisturbed
    path, bench = tmp_path / "record.journal", opened()
    path.write_bytes(journal[: int(share * len(journal))])
    assert content(gone_on_with(path, bench)) == content(record)
    entries = read_journal(path).entries
    known = sum(len(entry.currents_ma) for entry in entries[: int(share * len(entries))])
    assert bench.steps < steps - 0.9 * known  # what is in the journal is not asked for


@pytest.mark.long
def test_the_bench_is_asked_nothing_that_is_in_the_journal(
    undisturbed: tuple[CalibrationRecord, int, bytes], tmp_path: Path
) -> None:
    record, steps, journal = undisturbed
    path, bench = tmp_path / "record.journal", opened()
    path.write_bytes(journal)  # of a run that was killed before it said that it is already finished
    assert content(gone_on_with(path, bench)) == content(record)
    assert bench.steps < 0.05 * steps  # the check of the light alone


@pytest.mark.long
def test_monitors_that_read_something_in_the_dark_are_no_worse(
    undisturbed: tuple[CalibrationRecord, int, bytes],
) -> None:
    bench = opened()
    bench.dark_ma = dict.fromkeys(bench.monitors, 0.0002)  # -36 dBm of 0.8 mA/mW
    record = run_of(bench).run()
    assert [record.port(port).monitor_dark_ma for port in record.monitor_ports] == pytest.approx([2e-4] * 12, rel=0.02)
    found = [entry.passive_phase_rad for entry in record.pucs]
    wanted = [entry.passive_phase_rad for entry in undisturbed[0].pucs]
    sigma = [entry.passive_phase_sigma_rad for entry in record.pucs]
    assert np.abs(np.subtract(found, wanted) / np.array(sigma, dtype=float)).max() < 3.0
    assert record.quality["held_out_rms_db"] < 1.3 * undisturbed[0].quality["held_out_rms_db"]
    assert record.faults == ()


# What is not gone on with ---------------------------------------------------------------------------------------------


def test_another_seed_firmware_or_source_is_refused_by_name(
    undisturbed: tuple[CalibrationRecord, int, bytes], tmp_path: Path
) -> None:
    path = tmp_path / "record.journal"
    path.write_bytes(undisturbed[2])
    header = read_journal(path).header
    other = opened()
    other.sources = (0, 3, 7)
    with pytest.raises(
        CalibrationError, match=r"the seed: 1 at the start, now 2; the ports with light: \(0, 3\) at the start, now"
    ):
        check_same(header, header_of(run_of(other, seed=2), {}))
    run = Calibration(opened(), DEVICE, 1, plan=BootstrapPlan(random_settings=121))
    with pytest.raises(CalibrationError, match="the plan, or the nominal figures"):
        check_same(header, header_of(run, {}))
    same = header_of(run_of(opened()), {})
    check_same(header, replace(same, emulated_chip="d01f146c"))  # an older journal does not name the chip
    with pytest.raises(CalibrationError, match="the emulated chip: 75c662f2 at the start, now d01f146c"):
        check_same(replace(header, emulated_chip="75c662f2"), replace(same, emulated_chip="d01f146c"))


def test_another_chip_behind_the_same_serial_number_is_refused(
    undisturbed: tuple[CalibrationRecord, int, bytes], tmp_path: Path
) -> None:
    path = tmp_path / "record.journal"
    path.write_bytes(undisturbed[2])
    other = KeyedBench.draw(MESH, 2, SOURCES)
    with pytest.raises(CalibrationError, match="distribution of its light over the monitors changed"):
        check_light(other, read_journal(path).entries)


def test_light_that_has_become_weaker_is_refused_with_its_loss(
    undisturbed: tuple[CalibrationRecord, int, bytes], tmp_path: Path
) -> None:
    path = tmp_path / "record.journal"
    path.write_bytes(undisturbed[2])
    other = opened()
    other.simulated.source_db[3] -= 1.4
    with pytest.raises(
        CalibrationError, match=r"source at port 3: its light changed by -1\.[34]\d dB at all monitors"
    ) as caught:
        check_light(other, read_journal(path).entries)
    assert "port 0" not in str(caught.value)


@pytest.mark.long
def test_light_aligned_anew_to_another_power_is_corrected_for(
    undisturbed: tuple[CalibrationRecord, int, bytes], tmp_path: Path
) -> None:
    record, _, journal = undisturbed
    path, bench = tmp_path / "record.journal", opened()
    path.write_bytes(journal[: len(journal) * 2 // 3])
    bench.simulated.source_db[3] -= 0.4
    light = check_light(bench, read_journal(path).entries)
    assert light.power_db == {3: pytest.approx(-0.4, abs=0.02)}
    resumed = gone_on_with(path, bench)
    assert resumed.faults == ()
    for port in SOURCES:
        assert resumed.port(port).source_dbm == pytest.approx(record.port(port).source_dbm, abs=0.02)
    assert resumed.quality["fit_chi2_per_dof"] < 1.2 * record.quality["fit_chi2_per_dof"]
    assert resumed.quality["reference_power_db"] < 0.05
    found = [entry.passive_phase_rad for entry in resumed.pucs]
    wanted = [entry.passive_phase_rad for entry in record.pucs]
    sigma = [entry.passive_phase_sigma_rad for entry in record.pucs]
    assert np.abs(np.subtract(found, wanted) / np.array(sigma, dtype=float)).max() < 2.0
