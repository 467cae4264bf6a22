"""What commands print with: tables, one JSON document, progress on stderr."""

import io
import json
import math
import pathlib
import sys
from dataclasses import dataclass

import click
import numpy as np
import pytest
from click.testing import CliRunner

from lumion_hw.cli.common.lazy import LazyCommand, LazyGroup
from lumion_hw.cli.common.output import echo_json, echo_table, json_option, note, progress, table


@dataclass(frozen=True)
class Reading:
    channel: int
    power_dbm: float


def test_a_table_aligns_words_left_and_numbers_right() -> None:
    assert table(("name", "port"), [("a", 5), ("longer", 12)]) == (
        "name    port\n"
        "------  ----\n"
        "a          5\n"
        "longer    12"
    )  # fmt: skip


def test_a_table_shows_what_is_not_there_as_a_dash() -> None:
    assert table(("x", "y"), [(None, 1), ("b", None)]).splitlines()[2:] == ["-  1", "b  -"]


def test_a_table_refuses_rows_of_another_width() -> None:
    with pytest.raises(ValueError, match="shorter"):
        table(("x", "y"), [("only one",)])


def test_a_table_without_rows_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    echo_table("Title", ("x",), [])
    assert capsys.readouterr().out == ""
    echo_table("Title", ("x",), [("y",)])
    assert capsys.readouterr().out == "Title\nx\n-\ny\n\n"


def test_json_knows_arrays_dataclasses_and_paths(capsys: pytest.CaptureFixture[str]) -> None:
    values = {
        "array": np.array([1.5, 2.5]),
        "number": np.float64(0.5),
        "reading": Reading(1, -3.0),
        "readings": (Reading(2, -4.0),),
        "path": pathlib.Path("runs/1"),
    }
    echo_json(values)
    assert json.loads(capsys.readouterr().out) == {
        "array": [1.5, 2.5],
        "number": 0.5,
        "reading": {"channel": 1, "power_dbm": -3.0},
        "readings": [{"channel": 2, "power_dbm": -4.0}],
        "path": "runs/1",
    }


@pytest.mark.parametrize(
    ("value", "printed"), [(math.nan, "null"), (-math.inf, "null"), (np.array([1.5, math.nan]), "[1.5, null]")]
)
def test_json_has_no_number_that_is_none(value: object, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    echo_json({"power_dbm": value}, single_line=True)
    assert capsys.readouterr().out == f'{{"power_dbm": {printed}}}\n'


def test_notes_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    note("calibrating")
    assert capsys.readouterr() == ("", "calibrating\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_drawn_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for stream, drawn in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress(2, "sweeping") as bar:
            bar.update(1)
            bar.update(1)
        assert ("sweeping" in stream.getvalue()) is drawn
    assert capsys.readouterr().out == ""


def test_the_json_option_reaches_the_command_as_as_json() -> None:
    @click.command()
    @json_option
    def read(as_json: bool) -> None:
        click.echo(f"{as_json}")

    assert CliRunner().invoke(read, ["--json"]).output == "True\n"
    assert CliRunner().invoke(read, []).output == "False\n"


def test_a_table_row_that_names_no_command_is_refused() -> None:
    with pytest.raises(TypeError, match="json:dumps is not a click command"):
        LazyCommand("x", "json:dumps", "").load()
    with pytest.raises(ModuleNotFoundError):
        LazyCommand("x", "lumion_hw.cli.nothing:x", "").load()


def test_a_lazy_group_lists_its_table_and_loads_one_command() -> None:
    rows = (
        LazyCommand("bench", "lumion_hw.cli.bench:bench", "Bench files."),
        LazyCommand("later", "lumion_hw.cli.not_written_yet:later", "Not there."),
    )
    group = LazyGroup("lumion", table=rows)
    runner = CliRunner()
    listed = runner.invoke(group, ["--help"])
    assert listed.exit_code == 0
    assert "bench  Bench files." in listed.output
    assert "later  Not there." in listed.output
    assert "FILE is the path of a bench file" in runner.invoke(group, ["bench", "--help"]).output
    assert runner.invoke(group, ["nothing"]).exit_code == 2
