"""``lumion mesh program`` on the emulated small bench, and files that are no matrix."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.cli import main
from tests.mesh.known_truth import haar_unitary
from tests.recorded_calibration import RECORD, SEED, SMALL

PORTS = ["--inputs", "1,6", "--outputs", "0,2"]


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    path = tmp_path / "matrix.npy"
    np.save(path, haar_unitary(2, np.random.default_rng(3)))
    return path


def program(matrix: Path, *options: str) -> list[str]:
    bench = [str(SMALL), "--record", str(RECORD), "--emulate", "--seed", str(SEED)]
    return ["mesh", "program", *bench, "--matrix", str(matrix), *options]


def test_a_matrix_is_programmed_measured_written_and_drawn(
    matrix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, picture = tmp_path / "setting.json", tmp_path / "matrix.svg"
    command = program(matrix, *PORTS, "--measure", "--readings", "20", "--out", str(out), "--picture", str(picture))
    for _ in range(2):  # both files are recognised and may be written again
        assert main(command) == 0
    said = capsys.readouterr().out
    assert "2 x 2 matrix on the mesh: measured fidelity 0.99" in said
    assert "inputs: ports 1, 6" in said
    document = json.loads(out.read_text())
    assert document["schema"] == "lumion-matrix-setting-1"
    assert len(document["currents_ma"]) == 30
    (measured,) = document["measurements"]
    assert measured["fidelity"] == pytest.approx(document["predicted_fidelity"], abs=0.01)
    drawing = picture.read_text()
    assert drawing.count("<title>output") == 12
    assert "difference, " in drawing


def test_the_document_alone_is_printed(matrix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(program(matrix, *PORTS, "--json")) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["measurements"] == []
    assert not captured.err


def test_text_is_read_as_a_matrix_and_another_file_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "matrix.txt"
    path.write_text("0.6, 0.8i\n0.8i, 0.6\n")
    assert main(program(path, *PORTS, "--json")) == 0
    wanted = json.loads(capsys.readouterr().out)["wanted"]
    assert wanted["real"][0][0] == 0.6
    assert wanted["imag"][0][1] == 0.8
    for content in (b"1 2\n3\n", b"\xff\xfe", b""):
        path.write_bytes(content)
        assert main(program(path, *PORTS)) == 2
        assert "this is not a matrix" in capsys.readouterr().err
    pickled = tmp_path / "pickled.npy"
    np.save(pickled, np.array([[{}]], dtype=object), allow_pickle=True)
    assert main(program(pickled, *PORTS)) == 2
    assert "this is not a matrix" in capsys.readouterr().err
    assert main(program(tmp_path / "missing.npy", *PORTS)) == 2
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--inputs", "1,x", "--outputs", "0,2"], "--inputs '1,x' is no list of ports"),
        (["--inputs", "1,6"], "needs as many ports"),
        (["--inputs", "1,5", "--outputs", "0,2", "--measure"], "port 5 has no source"),
    ],
)
def test_what_cannot_be_done_is_said(
    matrix: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(program(matrix, *options)) == 2
    assert message in capsys.readouterr().err


def test_connected_circuits_are_not_interrupted(
    matrix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Connected:
        circuits = (type("Circuit", (), {"name": "sfp-a:sfp-b"}),)

    monkeypatch.setattr("lumion_hw.circuits.state.read_state", lambda directory: (Connected(), None))
    assert main(program(matrix, *PORTS, "--state", str(tmp_path))) != 0
    assert "would interrupt the connected circuits sfp-a:sfp-b" in capsys.readouterr().err
