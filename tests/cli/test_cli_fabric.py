"""``lumion fabric`` as a user meets it: run, fail, status, history, and requests to a manager that runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import recorded_calibration
from recorded_calibration import RECORD, SMALL

from lumion_hw.circuits import BenchLock
from lumion_hw.cli import main

ON_THE_BENCH = ["--emulate", "--seed", str(recorded_calibration.SEED), "--record", str(RECORD)]
Told = Callable[..., list[dict]]


@pytest.fixture
def told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    """Run a subcommand with its state in one directory, and return the JSON documents that it prints."""

    def command(name: str, *rest: str, code: int = 0) -> list[dict]:
        assert main(["fabric", name, str(SMALL), *rest, "--state", str(tmp_path / "state"), "--json"]) == code
        text, found = capsys.readouterr().out.strip(), []
        decoder = json.JSONDecoder()
        while text:
            document, end = decoder.raw_decode(text)
            found.append(document)
            text = text[end:].lstrip()
        return found

    return command


def test_a_server_is_failed_by_hand_and_the_history_tells_where_the_time_went(told: Told) -> None:
    events = [each["event"] for each in told("run", "--for", "1s", *ON_THE_BENCH)]
    assert events[-1] == "watching"
    (status,) = told("status")
    assert [(job["members"], job["state"]) for job in status["jobs"]] == [(["a", "b"], "connected")]
    failed = told("fail", "b", "--because", "ECC errors", *ON_THE_BENCH)
    assert failed[-1]["jobs"] == {"a-b": ["a", "c"]}
    (status,) = told("status")
    assert status["state"]["failed"] == {"b": "ECC errors"}
    (history,) = told("history")
    done = next(entry for entry in history["entries"] if entry.get("outcome") == "done")
    assert (done["failed"], done["spare"]) == ("b", "c")
    assert [span["name"] for span in done["spans"]][:3] == ["detected", "spare_chosen", "route_found"]


@pytest.mark.long
def test_a_job_without_a_spare_ends_with_code_3_and_the_reason(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    told("fail", "c", *ON_THE_BENCH)
    told("fail", "b", *ON_THE_BENCH, code=3)
    (status,) = told("status")
    assert "no spare that is free" in status["state"]["refused"]["a-b"]


@pytest.mark.long
def test_where_a_manager_runs_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "state"
    with BenchLock(state, "another manager"):
        assert main(["fabric", "fail", str(SMALL), "b", "--state", str(state), *ON_THE_BENCH]) == 0
    assert "told the manager that runs" in capsys.readouterr().out
    (line,) = (state / "fabric.requests").read_text().splitlines()
    assert json.loads(line) == {"what": "fail", "unit": "b", "words": "declared by hand"}
    assert main(["fabric", "run", str(SMALL), "--for", "2s", "--state", str(state), *ON_THE_BENCH]) == 0
    assert "recovered: failed: b, spare: c" in capsys.readouterr().out
    assert not (state / "fabric.requests").exists()
