"""`lumion schedule` as somebody would type it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.cli import main
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
JOB = ROOT / "examples" / "job_phases.yaml"
SMALL, RECORD = ROOT / "tests" / "data" / "small.yaml", ROOT / "tests" / "data" / "recorded" / "record.json"


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["schedule", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def document(capsys: pytest.CaptureFixture[str], *arguments: object):
    return json.loads(printed(capsys, *arguments, "--json"))


def test_the_help_of_the_group_loads_neither_numpy_nor_scipy() -> None:
    code = (
        "import sys; from lumion_hw.cli import main; main(['schedule', '--help']); "
        "sys.exit(bool({'numpy', 'scipy', 'matplotlib'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=PATIENCE_S, check=False)
    assert run.returncode == 0


def test_list_names_what_there_is_and_why_the_rest_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "list", "--ranks", 6)
    assert re.search(r"stragglar +straggler all-reduce +duplex +7 ", out)
    assert "XOR matchings needs a power of two, not 6 ranks" in out
    rows = {row["name"]: row for row in document(capsys, "list", "--ranks", 8)["schedules"]}
    assert rows["halving-doubling"]["programmings"] == 5


def test_make_writes_what_verify_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.json"
    out = printed(capsys, "make", "stragglar", "--ranks", 10, "--out", path)
    assert "12 rounds; the lower bound is 12" in out
    assert printed(capsys, "verify", path).startswith(f"{path}: stragglar: straggler all-reduce, 10 ranks")
    assert document(capsys, "verify", path)["verified"] is True
    spoilt = json.loads(path.read_text())
    spoilt["rounds"][5]["transfers"].pop()
    path.write_text(json.dumps(spoilt))
    assert main(["schedule", "verify", str(path)]) == 2
    assert "rank" in capsys.readouterr().err


def test_make_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of the extra plots, is not there")
    for name in ("s.svg", "s.png"):
        printed(capsys, "make", "ring", "--ranks", 4, "--plot", tmp_path / name)
        printed(capsys, "make", "ring", "--ranks", 5, "--plot", tmp_path / name)  # its own it writes over
    printed(capsys, "cost", "ring", "bruck", "--ranks", 8, "--buffer", 2**20, "--plot", tmp_path / "c.svg")
    assert "<!-- bruck, 8 ranks -->" in (tmp_path / "c.svg").read_text()
    assert "ring, 8 ranks -->" in (tmp_path / "c.svg").read_text()
    (tmp_path / "m.csv").write_text("0,1\n1,0\n")
    printed(capsys, "demand", tmp_path / "m.csv", "--plot", tmp_path / "d.svg")
    assert "served" in (tmp_path / "d.svg").read_text()
    (tmp_path / "mine.svg").write_text("<svg>mine</svg>")
    assert main(["schedule", "make", "ring", "--ranks", "4", "--plot", str(tmp_path / "mine.svg")]) == 2
    assert "not from this program" in capsys.readouterr().err


def test_cost_says_both_times_and_when_it_pays(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("cost", "ring", "stragglar", "--ranks", 64, "--buffer", 2**30)
    out = printed(capsys, *arguments)
    assert re.search(r"stragglar +68 +68 +703 ms +23.4 ms +52.7 ms +288 µs +21.3 ms", out)
    assert "stragglar against ring: at 10 ms from 35.1 GiB up" in out
    rows = document(capsys, *arguments, "--delta", 0)["schedules"]
    assert rows[1]["time_s"] == pytest.approx(0.02338, rel=1e-3)
    assert rows[0]["break_even_delta_s"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cost", "stragglar", "--ranks", "7", "--buffer", "1"), "even number of ranks, not 7"),
        (("cost", "ring", "--buffer", "1"), "Give --ranks"),
        (("cost", "ring", "--ranks", "8", "--buffer", "1", "--delta", "-1"), "out of range"),
        (("cost", "ring", "--ranks", "8", "--buffer", "nan"), "not a finite number"),
        (("make", "rong", "--ranks", "8"), "no schedule is called 'rong'"),
        (("verify", "missing.json"), "cannot read schedule"),
        (("demand", "missing.csv"), "cannot read matrix"),
        (("demand", "m.csv", "--duplex"), "--duplex needs --configurations"),
        (("route", "ring", "--ranks", "4", "--inputs", "0,a"), "not a list of integers"),
        (("route", "ring", "--ranks", "4", "--inputs", "0,2,4"), "4 ranks, but only 3 ports"),
        (("phases", "missing.yaml"), "cannot read phase file"),
        (("phases", str(JOB), "--run"), "--bench and --record must be given together, and --run needs both"),
        (("phases", str(JOB), "--bench", "x"), "--bench and --record must be given together"),
        (("phases", str(JOB), "--out", "x.json"), "--out and prepared configurations"),
        (("phases", "prepared.json"), "prepared configurations (.json) need --bench"),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_code_2(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schedule", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_demand_of_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tokens.npy"
    np.save(path, np.array([[0, 3, 1], [2, 0, 2], [1, 1, 7]]))
    found = document(capsys, "demand", path, "--bytes-per-count", 2**20)
    assert (found["served_bytes"], found["local_bytes"], len(found["configurations"])) == (10 * 2**20, 7 * 2**20, 3)
    out = printed(capsys, "demand", path, "--configurations", 1, "--rest-rate", 1e9, "--bytes-per-count", 2**20)
    assert "served 60.0 %" in out
    assert "7 MiB are local to a rank" in out
    back = document(capsys, "demand", path, "--combine", "--configurations", 2, "--duplex")
    assert back["method"] == "bounded"
    assert all([b, a] in each["circuits"] for each in back["configurations"] for a, b in each["circuits"])


def test_route_splits_and_keeps(capsys: pytest.CaptureFixture[str]) -> None:
    ports = ("--mesh", "columns:2", "--inputs", "1,6,11", "--outputs", "3,8,13")
    found = document(capsys, "route", "ring", "--ranks", 3, *ports)
    assert (found["rounds"], found["extra"], len(found["steps"])) == (4, 0, 4)
    assert found["steps"][3]["kept"] == [[0, 1], [1, 2], [2, 0]]
    assert "0 additional settings" in printed(capsys, "route", "ring", "--ranks", 3, *ports)


@pytest.mark.long
def test_rounds_and_places_of_ranks_are_chosen_for_the_mesh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ports = ("--mesh", "columns:2", "--inputs", "1,6,11,15", "--outputs", "3,8,13,0")
    as_given = document(capsys, "route", "all-to-all-shifts", "--ranks", 4, *ports)
    assert as_given["extra"] > 0
    out = tmp_path / "chosen.json"
    said = printed(capsys, "route", "all-to-all-shifts", "--ranks", 4, *ports, "--regroup", "--out", out)
    assert "0 additional settings" in said
    assert "the lower bound for any mesh is 3" in said
    assert "verified" in printed(capsys, "verify", out)  # what was chosen still does what it says
    found = document(capsys, "route", out, *ports)
    assert found["extra"] == 0
    assert len(found["steps"]) < len(as_given["steps"])
    labelled = document(capsys, "route", "stragglar", "--ranks", 4, *ports, "--relabel")
    assert sorted(labelled["places"]) == [0, 1, 2, 3]


def test_a_schedule_goes_from_its_name_to_measured_light(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = ("--bench", SMALL, "--record", RECORD)
    job = tmp_path / "all-to-all.yaml"
    modules = ("--modules", "sfp-a,sfp-b,sfp-c")
    asked = ("route", "all-to-all-shifts", "--ranks", 3, *bench, *modules, "--phases", job, "--duration", 0.02)
    assert document(capsys, *asked)["extra"] == 0
    printed(capsys, *asked)  # over its own file, without being told
    said = printed(capsys, "phases", job, *bench, "--emulate", "--run", "--seed", 1)
    # Every module changes its partner both ways before every step.
    ports = {port for name in "abc" for port in (f"sfp-{name}>", f">sfp-{name}")}
    table = said[said.index("Dark times by port") :]
    rows = re.findall(r"^(step-\d) +(\S+) +1 +([\d.]+) ms +\3 ms +([\d.]+) ms$", table, re.MULTILINE)
    assert {row[:2] for row in rows} == {(f"step-{step}", port) for step in (0, 1) for port in ports}
    # Heaters need what the controller says, proofs by light a few looks more.
    assert all(float(settle_ms) < float(dark_ms) < 10.0 for _, _, dark_ms, settle_ms in rows)
    assert re.search(r"by the model with the measured dark times: 4\d(\.\d)? ms", said)


@pytest.mark.long
def test_configurations_are_prepared_once_and_run_from_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench, out = ("--bench", SMALL, "--record", RECORD), tmp_path / "prepared.json"
    made = document(capsys, "phases", JOB, *bench, "--out", out)
    read = document(capsys, "phases", out, *bench, "--emulate", "--seed", 1, "--run", "--iterations", 1)
    assert read["configurations"] == made["configurations"]
    assert (read["job"], read["tags"]) == (made["job"], made["tags"])
    changes = read["changes"]
    assert changes["compute"] == {"light_s": 0.0, "receivers_s": 0.0}
    assert 0.0 < changes["tensor"]["light_s"] < changes["tensor"]["receivers_s"] < 0.05
    other = tmp_path / "other.yaml"
    other.write_text(SMALL.read_text(encoding="utf-8").replace("loss_db: 0.3", "loss_db: 0.4"), encoding="utf-8")
    assert main(["schedule", "phases", str(out), "--bench", str(other), "--record", str(RECORD)]) == 2
    assert "was prepared for another bench file (small, hash" in capsys.readouterr().err
    mine = tmp_path / "mine.json"
    mine.write_text("my own", encoding="utf-8")
    assert main(["schedule", "phases", str(JOB), *map(str, bench), "--out", str(mine)]) == 2
    assert mine.read_text(encoding="utf-8") == "my own"
    capsys.readouterr()


def test_phases_by_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert "three-servers: one iteration, by the model" in printed(capsys, "phases", JOB, "--delta", 0.003)
    slow = main(["schedule", "phases", str(JOB), "--delta", "0.05"])
    assert slow == 0
    assert "of an iteration is spent waiting for circuits" in capsys.readouterr().err


@pytest.mark.long
def test_phases_as_measured(capsys: pytest.CaptureFixture[str]) -> None:
    bench = ("--bench", SMALL, "--record", RECORD, "--emulate", "--seed", 1, "--run", "--iterations", 2)
    found = document(capsys, "phases", JOB, *bench)
    assert found["iterations"] == 2
    assert found["iteration"]["total_s"] == pytest.approx(found["model"]["total_s"], abs=3e-4)
    assert 0.0 < max(found["dark_s"].values()) < 0.01
    assert all(heat_mw > 0.0 for heat_mw in found["heat_mw"].values())
    assert {(each["tag"], each["changes"]) for each in found["ports"]} == {("tensor", 2), ("pipeline", 2), ("data", 2)}
    assert {each["port"] for each in found["ports"] if each["tag"] == "tensor"} == {"sfp-b>", ">sfp-a"}
    assert max(each["longest_s"] for each in found["ports"]) == max(found["dark_s"].values())
    assert set(found["configurations"]) == {"tensor", "compute", "pipeline", "data"}
