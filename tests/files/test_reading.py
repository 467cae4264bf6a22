"""Reading user files: regular files only, up to a size limit, and strict JSON."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lumion_hw.errors import CalibrationError, ConfigError
from lumion_hw.files.reading import parse_json, read_file, read_json


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/", "x" * 5000, "a\0b", "nowhere/at all"])
def test_what_is_no_file_is_refused_at_once(path: str) -> None:
    with pytest.raises(CalibrationError, match=r"^cannot read calibration record "):
        read_json(Path(path), "calibration record", error=CalibrationError)


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="it is a pipe, not a file"):
        read_file(tmp_path / "pipe", "endpoints file")


def test_a_file_larger_than_its_kind_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse: no disk has it
    with pytest.raises(ConfigError, match="larger than 64 KiB"):
        read_file(path, "endpoints file", max_bytes=1 << 16)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": [0, {"b": NaN}]}', r"a\[1\].b is NaN"),
        ('{"a": -Infinity}', "a is infinite"),
        ('{"a": 1e999}', "a is infinite"),
        ("NaN", "the document is NaN"),
        ('{"a": ' + "1" + "0" * 400 + "}", "a is a number that is too large"),
        ('{"a": ' + "9" * 5000 + "}", "a is a number that is too large"),
        ('{"a": "\\ud800"}', "a is text with half a surrogate pair"),
        ('{"\\udfff": 1}', "half a surrogate pair"),
        ("[" * 34 + "]" * 34, "nested deeper than 32 levels"),
        ('{"a":' * 1_000_000, "nested deeper than 32 levels"),
        ("[" * 1_000_000, "nested deeper than 32 levels"),
        ('{"a": 1', "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        ("", "is not JSON"),
    ],
    ids=range(14),
)
def test_what_no_other_reader_could_take_is_refused_by_its_name(text: str | bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=f"^x.json.*{words}"):
        parse_json(text, "x.json")


def test_json_is_read_as_it_is() -> None:
    assert parse_json('{"a": [1, -2.5, "\\u00e9\\ud83d\\ude00", null, true, 18446744073709551615]}', "x") == {
        "a": [1, -2.5, "é😀", None, True, 2**64 - 1]
    }
