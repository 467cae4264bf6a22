"""``lumion apply`` as a user meets it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lumion_hw.circuits import read_state
from lumion_hw.cli import main
from tests.circuits.lasting_bench import LastingBench
from tests.recorded_calibration import SMALL

Apply = Callable[..., str]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> LastingBench:
    return LastingBench(tmp_path_factory.mktemp("bench"))


@pytest.fixture
def apply(
    bench: LastingBench, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Apply:
    """Write a circuit file, run `lumion apply` with it, and return what it prints."""
    monkeypatch.setattr("lumion_hw.cli.circuits.open_bench", lambda *_, **__: bench.open())

    def command(text: str, *options: str, code: int = 0) -> str:
        (tmp_path / "circuits.yaml").write_text(f"version: 1\n{text}")
        where = ["--state", str(bench.directory), "--record", str(bench.record)]
        assert main(["apply", str(SMALL), str(tmp_path / "circuits.yaml"), *where, *options]) == code
        printed = capsys.readouterr()
        return printed.out + printed.err

    return command


def names(bench: LastingBench) -> list[str]:
    return [circuit.name for circuit in read_state(bench.directory)[0].circuits]


def test_what_a_dry_run_shows_is_what_is_done_and_a_second_time_nothing(bench: LastingBench, apply: Apply) -> None:
    text = "circuits:\n  - sfp-b:sfp-a\n  - {source: sfp-a, target: sfp-b, min_margin_db: 1.0}\n"
    planned = json.loads(apply(text, "--dry-run", "--json"))
    assert planned["dry_run"]
    assert names(bench) == []
    done = json.loads(apply(text, "--json"))
    assert list(done["measured"]) == names(bench)
    assert done | {"measured": {}} == planned | {"dry_run": False}
    assert [circuit["circuit"] for circuit in done["connected"]] == names(bench) == ["sfp-b:sfp-a", "sfp-a:sfp-b"]
    assert apply(text).endswith("nothing to change\n")
    table = apply("circuits: [sfp-b:sfp-a]\n")
    assert [line.split()[:2] for line in table.splitlines()[3:5]] == [
        ["sfp-b:sfp-a", "stays"],
        ["sfp-a:sfp-b", "disconnect"],
    ]
    before = next(circuit for circuit in planned["connected"] if circuit["circuit"] == "sfp-b:sfp-a")
    hops, loss_db, margin_db = table.splitlines()[3].split()[2:]
    assert (int(hops), float(loss_db)) == (before["hops"], before["loss_db"])
    assert float(margin_db) == pytest.approx(before["margin_db"], abs=0.5)


def test_an_impossible_circuit_is_refused_with_the_nearest_one(bench: LastingBench, apply: Apply) -> None:
    text = "circuits:\n  - sfp-a:sfp-b\n  - {source: sfp-b, target: sfp-c, max_hops: 1}\n"
    before = names(bench)
    said = apply(text, code=3)
    assert "sfp-b:sfp-c: circuit sfp-b to sfp-c cannot be set up: number of PUCs on the path is 3" in said
    assert "Nearest feasible circuit" in said
    assert "sfp-b:sfp-c with max_hops=3." in said
    assert "nothing would be changed" in apply(text, "--dry-run", code=3)
    assert names(bench) == before
    apply(f"on_refusal: skip\n{text}", code=3)
    assert names(bench) == ["sfp-a:sfp-b"]


def test_explain_names_the_same_nearest_circuit(
    bench: LastingBench, apply: Apply, capsys: pytest.CaptureFixture[str]
) -> None:
    apply("circuits: [sfp-a:sfp-b]\n")
    refused = apply("circuits: [sfp-a:sfp-b, sfp-b:sfp-c]\n", "--dry-run", code=3)
    (nearest,) = re.findall(r"Nearest feasible circuit: \S+\.", refused)
    where = ["--state", str(bench.directory), "--record", str(bench.record)]
    for command in ("explain", "budget"):
        assert main([command, str(SMALL), "sfp-b:sfp-c", *where]) == 3
        said = capsys.readouterr().err
        assert "Disconnect sfp-a:sfp-b, or use other ports." in said
        assert nearest in said


def test_a_mistake_in_the_file_is_shown_with_its_line(bench: LastingBench, apply: Apply) -> None:
    before = names(bench)
    assert "circuits.yaml:3:5: circuits[0].target: expected the name of a module of the bench, found 'sfp-q'" in apply(
        "circuits:\n  - sfp-a:sfp-q\n", code=2
    )
    assert names(bench) == before
