"""A record is judged by the clock, the temperature and the light of the bench it is to be used on."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.emulated import emulated_bench
from lumion_hw.bench.file.loader import load_bench
from lumion_hw.bench.record_use import check_use, record_age_s, source_wavelengths_nm
from lumion_hw.circuits import PathSetup
from lumion_hw.clock import VirtualClock
from lumion_hw.errors import CalibrationError, LimitError
from lumion_hw.mesh.record.calibration_record import COMMAND_LINE, EMULATED_CHIP, CalibrationRecord, Conditions
from lumion_hw.mesh.record.validity import CalibrationWarning
from lumion_hw.storage import load_record

DATA = Path(__file__).parents[1] / "data"
DAY_S = 86_400.0


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench.emulate(DATA / "small.yaml", seed=1, aged_s=DAY_S) as opened:
        yield opened


def record(**conditions: object) -> CalibrationRecord:
    stored = load_record(DATA / "calibration-record-v1.json")
    return replace(stored, conditions=Conditions(**conditions))  # type: ignore[arg-type]


def fitting(bench: Bench, **conditions: object) -> CalibrationRecord:
    mesh = bench.mesh
    return replace(
        record(**conditions),
        device_serial=mesh.controller.info.serial,
        mesh_sha256=mesh.topology.sha256,
        heater_channels=mesh.heater_channels,
        monitor_ports=mesh.monitor_ports,
        complete=True,
    )


def test_what_states_no_range_is_not_judged(bench: Bench) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_use(bench, record()) == ()


def test_an_emulated_bench_ages_by_its_own_clock(bench: Bench) -> None:
    assert record_age_s(bench, record(emulated_age_s=0.0)) == pytest.approx(DAY_S, abs=60.0)
    assert record_age_s(bench, record(emulated_age_s=2 * DAY_S)) == 0.0
    # A record of a real bench, on its emulated twin: days here are no days there.
    assert record_age_s(bench, record()) is None


def test_a_real_bench_ages_by_the_calendar(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_emulated", None)
    yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    assert record_age_s(bench, replace(record(), created_utc=yesterday)) == pytest.approx(DAY_S, abs=60.0)
    assert record_age_s(bench, record(emulated_age_s=0.0)) is None


def test_an_old_record_is_warned_of_or_refused(bench: Bench) -> None:
    old = record(emulated_age_s=0.0, valid_for_s=3600.0)
    with pytest.warns(CalibrationWarning, match=r"24\.0 h old and should have been checked after 1\.0 h"):
        assert len(check_use(bench, old)) == 1
    with pytest.raises(CalibrationError, match="lumion-calibrate drift"):
        check_use(bench, old, "refuse")


def test_the_chip_is_asked_for_its_temperature(bench: Bench) -> None:
    chip_c = bench.mesh.chip_temperature_c()
    assert chip_c == pytest.approx(bench.emulated.faults.board("mesh0").profile.chip_temp_c, abs=0.01)
    with pytest.warns(CalibrationWarning, match="is valid only to"):
        check_use(bench, record(temperature_valid_c=(chip_c + 1.0, chip_c + 2.0)))
    assert check_use(bench, record(temperature_valid_c=(chip_c - 1.0, chip_c + 1.0))) == ()


def test_light_outside_the_range_is_always_refused(bench: Bench) -> None:
    assert source_wavelengths_nm(bench) == (1550.0,)
    assert check_use(bench, record(wavelength_range_nm=(1549.0, 1551.0))) == ()
    with pytest.raises(LimitError, match="wavelength is outside the range"):
        check_use(bench, record(wavelength_range_nm=(1540.0, 1549.0)))


def test_path_set_up_judges_the_record_it_is_given(bench: Bench) -> None:
    old = fitting(bench, emulated_age_s=0.0, valid_for_s=3600.0)
    with pytest.warns(CalibrationWarning):
        PathSetup(bench, old)
    with pytest.raises(CalibrationError, match=r"24\.0 h old"):
        PathSetup(bench, old, policy="refuse")


def test_a_chain_of_current_sources_has_no_thermometer() -> None:
    with Bench.emulate(DATA / "small_qontrol.yaml", seed=1) as other:
        assert other.mesh.chip_temperature_c() is None


# -- whose chip it is of


def test_a_record_of_another_emulated_chip_is_refused(bench: Bench) -> None:
    """Both chips answer with the serial number that the bench file expects."""
    mine = fitting(bench)
    of = {seed: replace(mine, provenance={EMULATED_CHIP: chip_of(seed)}) for seed in (1, 2)}
    bench.mesh.check_record(of[1])
    with pytest.raises(CalibrationError, match=r"emulated chip \w{8}, but this bench emulates \w{8}.*seed"):
        bench.mesh.check_record(of[2])
    command = "lumion-calibrate run small.yaml --emulate --seed 2 --out r.json"
    with pytest.raises(CalibrationError, match=f"The record was made by `{command}`"):
        bench.mesh.check_record(replace(of[2], provenance=of[2].provenance | {COMMAND_LINE: command}))
    bench.mesh.check_record(mine)  # of an older version, which does not say


def chip_of(seed: int, physics: str = "ideal") -> str:
    text = (DATA / "small.yaml").read_text() + f"\nemulation: {{physics: {physics}}}\n"
    return emulated_bench(load_bench("small.yaml", text=text), VirtualClock(), seed).chip_id


def test_another_seed_or_physics_is_another_chip_and_age_is_not(bench: Bench) -> None:
    assert chip_of(1) == chip_of(1) == bench.emulated.chip_id
    assert len({chip_of(1), chip_of(2), chip_of(1, "realistic")}) == 3


@pytest.mark.parametrize("file", ["small.yaml", "small_qontrol.yaml"])
def test_a_controller_whose_serial_number_the_file_leaves_open_has_that_of_its_chip(tmp_path: Path, file: str) -> None:
    text = (DATA / file).read_text()
    (tmp_path / "bench.yaml").write_text(re.sub(r"serial: SMALL-0001, |modules: \[.*?\], ", "", text))
    serials = []
    for seed in (1, 1, 2):
        with Bench.emulate(tmp_path / "bench.yaml", seed=seed, only=["mesh0", "meter0"]) as opened:
            serials.append(opened.mesh.controller.info.serial)
    assert serials[0] == serials[1] != serials[2]
