"""What is refused before a calibration at several wavelengths begins, and what it does with light that is fixed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from calibration.measure.bench_probe import BenchProbe
from calibration.run.procedure import Calibration
from calibration.run.verification import verify_at
from lumion_hw import Bench
from lumion_hw.bench.file.loader import builtin_path
from lumion_hw.cli import calibrate_main as main
from lumion_hw.errors import CalibrationError, ConfigError, LimitError
from tests.calibration.bench_run import SMALL


def test_modules_of_one_wavelength_allow_no_other() -> None:
    with Bench.emulate(SMALL, seed=1) as bench:
        probe = BenchProbe(bench)
        with pytest.raises(ConfigError, match="require a tunable source"):
            Calibration(probe, probe.device_under_test(), 1, wavelengths_nm=(1545.0,))


def test_a_wavelength_no_laser_makes_is_refused_before_anything_is_measured() -> None:
    with Bench.emulate("laser-bench", seed=1) as bench:
        probe = BenchProbe(bench)
        with pytest.raises(
            LimitError,
            match=r"source at port 1 cannot be tuned to this wavelength: requested 1400.* nm, limit 1480.* nm",
        ):
            Calibration(probe, probe.device_under_test(), 1, wavelengths_nm=(1540.0, 1400.0))


@pytest.mark.campaign
def test_a_laser_and_a_module_calibrate_together_and_the_laser_goes_on_alone(tmp_path: Path) -> None:
    document = yaml.safe_load(builtin_path("laser-bench").read_text())
    document["devices"]["sfp"] = {"kind": "sfp-8472", "wavelength_nm": 1550.0}
    document["wiring"]["inputs"].append({"transponder": "sfp", "port": 6})
    document["emulation"] = {"fibre_drift_rad2_per_s": 0.0}
    path = tmp_path / "bench.yaml"
    path.write_text(yaml.safe_dump(document))
    with Bench.emulate(path, seed=3) as bench:
        bench.lasers["tls-a"].set_frequency_thz(195.0)
        probe = BenchProbe(bench)
        probe.align_all()
        run = Calibration(probe, probe.device_under_test(), 3, wavelengths_nm=(1552.0,))
        record = run.run()
        assert record.faults == ()
        assert record.wavelength_nm == 1550.0  # that of the light that cannot be tuned
        assert record.conditions.wavelengths_nm == (1550.0, 1552.0)
        assert sorted(entry.port for entry in record.ports if entry.source_dbm is not None) == [1, 6, 11]
        probe.align_all()
        there = verify_at(probe, record, 1551.2, seed=5)
        assert {result.source for result in there.results} == {1, 11}
        assert there.excess_db < 0.1


def test_wavelengths_asked_for_on_the_command_line_are_those_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def measured(*_: object, wavelengths_nm: object, **__: object) -> None:
        asked.append(wavelengths_nm)
        raise CalibrationError("nothing is measured here")

    monkeypatch.setattr("calibration.run.journaled_run.calibrate", measured)
    out = str(tmp_path / "record.json")
    assert main(["run", "laser-bench", "--emulate", "--out", out, "--wavelengths", "1545,1555"]) == 3
    assert asked == [(1545.0, 1555.0)]


@pytest.mark.campaign
def test_wavelengths_are_asked_for_and_verified_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = str(tmp_path / "record.json")
    run = ["run", "laser-bench", "--emulate", "--seed", "1", "--out", record, "--wavelengths", "1545,1555", "--json"]
    assert main(run) == 0
    assert '"wavelengths": 3' in capsys.readouterr().out
    verify = ["verify", "laser-bench", record, "--emulate", "--seed", "1", "--wavelength"]
    assert main([*verify, "1552.7"]) == 0
    assert main([*verify, "1556"]) == 2
    assert "the wavelength is outside the range of the calibration record" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1545,x", "1.55e-6", "1545;1550"])
def test_what_is_no_list_of_wavelengths_is_a_usage_error(text: str) -> None:
    assert main(["run", "laser-bench", "--emulate", "--wavelengths", text]) == 2
