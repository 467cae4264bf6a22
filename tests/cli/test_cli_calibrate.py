"""`lumion-calibrate`: run, show and verify, and what each refuses; on the small bench."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.bench.file.loader import load_bench
from lumion_hw.cli import calibrate_main as main
from lumion_hw.cli.common.bench_notes import bench_notes
from lumion_hw.cli.demo.steps import calibrate
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.polarization import Aligner
from lumion_hw.storage import load_record, save_record
from tests.recorded_calibration import RECORD, SMALL, recorded_in


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """The recorded calibration, a copy."""
    return recorded_in(tmp_path / "recorded")


def test_a_source_of_four_wavelengths_is_warned_of() -> None:
    text = SMALL.read_text(encoding="utf-8").replace(
        "sfp-b: {kind: sfp-8472,", "sfp-b: {kind: qsfp-8636, profile: 100g-lr4,"
    )
    (remark,) = bench_notes(load_bench("small.yaml", text=text))
    assert remark.startswith("sfp-b launches 4 wavelengths, but a calibration assumes one per source.")


# What is done with a record ------------------------------------------------------------------------------------------


def test_show_prints_one_row_per_puc(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(record)]) == 0
    out, err = capsys.readouterr()
    rows = out[out.index("PUCs\n") :].splitlines()
    assert [row.split()[0] for row in rows[3:18]] == [str(puc) for puc in range(15)]
    assert "- PUCs: 15 of 15 calibrated" in out
    assert err == ""


def test_show_prints_one_document(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(record), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["heaters_calibrated"] == 30


def test_verify_passes_on_the_bench_that_was_calibrated(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(SMALL), str(record), "--emulate", "--seed", "1", "--against-truth", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["held_out_settings"] == 40
    assert document["held_out_excess_db"] < 0.1
    assert document["held_out_random_rms_db"] > 0.0
    assert document["held_out_states_rms_db"] > 0.0
    assert document["suspects"] == []
    assert document["held_out_worst_db"] >= document["held_out_rms_db"]
    assert document["phase_error_rms_rad"] < 0.1
    assert document["states_short_of_30_db"] == 0


def test_a_record_that_predicts_badly_is_exit_code_3_with_one_document(
    record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Another seed is another chip behind the same serial number: as if the record had aged beyond use.
    assert main(["verify", str(SMALL), str(record), "--emulate", "--seed", "2", "--json"]) == 3
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["held_out_rms_db"] > document["tolerance_db"] == 0.1
    assert document["error"]["exit_code"] == 3
    assert err.startswith("lumion-calibrate: held-out error ")
    assert len(err.splitlines()) == 1


def test_another_tolerance_can_be_asked_for_and_nan_is_none(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["verify", str(SMALL), str(record), "--emulate", "--seed", "2", "--tolerance-db"]  # another chip
    assert main([*words, "90"]) == 0
    assert "\nheld out rms db: " in capsys.readouterr().out
    assert main([*words, "nan"]) == 2
    assert "'nan' is not a finite number" in capsys.readouterr().err


def test_the_truth_is_known_to_an_emulated_bench_only(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(SMALL), str(record), "--against-truth"]) == 2
    assert "--against-truth needs --emulate" in capsys.readouterr().err


def test_the_record_of_another_controller_is_refused(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(SMALL.read_text().replace("SMALL-0001", "SMALL-0002"))
    assert main(["verify", str(other), str(record), "--emulate", "--seed", "1"]) == 3
    assert "made for SMALL-0001, and this is SMALL-0002" in capsys.readouterr().err


def test_a_record_that_was_edited_is_refused(record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(record.read_text())
    document["pucs"][3]["passive_phase_rad"] += 1e-6
    tampered = tmp_path / "tampered.json"
    tampered.write_text(json.dumps(document))
    for command in (["show", str(tampered)], ["verify", str(SMALL), str(tampered), "--emulate", "--seed", "1"]):
        assert main(command) == 3
        out, err = capsys.readouterr()
        assert out == ""
        assert f"{tampered}: the content does not match its hash" in err


@pytest.mark.parametrize("content", ["", "{", '{"schema": "something else"}', "[1, 2]"])
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "no-record.json"
    path.write_text(content)
    assert main(["show", str(path), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "CalibrationError"


def test_a_record_cut_in_half_is_refused(record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half = tmp_path / "half.json"
    half.write_text(record.read_text()[: record.stat().st_size // 2])
    assert main(["show", str(half)]) == 3
    assert "is not JSON" in capsys.readouterr().err


def test_a_record_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(tmp_path / "nowhere.json")]) == 3
    assert "cannot read calibration record" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "verify"])
def test_emulate_and_endpoints_exclude_each_other(
    command: str, record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(SMALL)] + ([str(record)] if command == "verify" else [])
    assert main([command, *files, "--emulate", "--endpoints", str(tmp_path / "e.json")]) == 2
    assert "cannot be combined" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, "nonsense", "[]", '{"mesh0": 7}', '{"mesh9": "tcp://127.0.0.1:9"}'])
def test_a_file_of_endpoints_that_is_none_is_refused(
    tmp_path: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "endpoints.json"
    if content is not None:
        path.write_text(content)
    assert main(["run", str(SMALL), "--endpoints", str(path)]) == 2
    assert capsys.readouterr().err.startswith("lumion: ")


def test_a_path_where_no_record_can_be_written_is_found_out_before_measuring(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", str(SMALL), "--emulate", "--out", "/dev/null/record.json"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("lumion: cannot write the calibration record /dev/null/record.json")
    assert "Traceback" not in err


def test_faults_found_are_exit_code_3_and_the_rest_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.json"
    broken = replace(load_record(RECORD), faults=("PUC 4 upper heater (channel 8): no effect",))

    def found_broken(*_: object, **__: object) -> CalibrationRecord:
        save_record(broken, path)
        return broken

    monkeypatch.setattr("calibration.run.journaled_run.calibrate", found_broken)
    assert main(["run", str(SMALL), "--emulate", "--seed", "1", "--out", str(path), "--json"]) == 3
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["error"]["exit_code"] == 3
    assert document["record"] == str(path)
    assert (document["complete"], document["pucs_calibrated"]) == (True, 15)
    assert document["faults"] == ["PUC 4 upper heater (channel 8): no effect"]
    assert err == (
        "lumion-calibrate: the calibration found 1 fault; see the summary above. Everything else is calibrated; "
        f"the record is {path}.\n"
    )


def test_the_result_is_printed_before_the_report_is_drawn(
    record: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped_report(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("calibration.run.journaled_run.calibrate", lambda *_, **__: load_record(record))
    monkeypatch.setattr("calibration.report.summary.write_report", stopped_report)
    report = record.with_name("report.html")
    arguments = ["run", str(SMALL), "--emulate", "--out", str(record), "--force", "--report", str(report)]
    assert main(arguments) == 130
    assert f"\nRecord: {record}\n" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 130
    assert "pucs_calibrated" not in json.loads(capsys.readouterr().out)  # one document, that of the error


@pytest.mark.long
def test_a_run_cut_short_leaves_the_bench_safe_and_an_incomplete_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.json"

    def progress(stage: str, done: int, total: int) -> None:
        if (stage, done) == ("sweeps", 5):
            raise SystemExit(143)

    with Bench.emulate(SMALL, seed=1) as bench:
        with pytest.raises(SystemExit), bench.dark():
            calibrate(bench, Aligner(bench.clock), 1, path, progress)
        assert not bench.mesh.confirmed_currents_ma().any()
        assert not np.any(bench.emulated.world.mesh_output_w())  # every transmitter is off
    loaded = load_record(path)
    assert not loaded.complete
    assert sum(arm.law is not None for entry in loaded.pucs for arm in (entry.upper, entry.lower)) >= 5
    assert main(["verify", str(SMALL), str(path), "--emulate", "--seed", "1"]) == 3
    assert "is incomplete" in capsys.readouterr().err


def test_an_interrupt_before_anything_was_measured_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bench.emulate(SMALL, seed=1) as bench:
        bench.events.write_to(tmp_path / "events.jsonl")
        monkeypatch.setattr(bench.transponders["sfp-b"], "enable", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            calibrate(bench, Aligner(bench.clock), 1, tmp_path / "record.json")
    last = json.loads((tmp_path / "events.jsonl").read_text().splitlines()[-1])
    assert (last["event"], last["stage"]) == ("calibration cut short", "alignment")
