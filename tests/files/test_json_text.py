"""JSON text that every reader accepts: NaN and infinity become null without an error."""

from __future__ import annotations

import ast
import json
import math
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lumion_hw.acquisition.columns import Column
from lumion_hw.acquisition.journal import LogHeader
from lumion_hw.bench.events import EventLog
from lumion_hw.clock import VirtualClock
from lumion_hw.files.json_text import json_text
from lumion_hw.serving.page.updates import to_json

ROOT = Path(__file__).parents[2]
WITHOUT_REALS = {
    "lumion_hw/files/json_text.py": "the shared writer",
    "lumion_hw/mesh/record/canonical.py": "hashes, and records, which refuse what is no number",
    "lumion_hw/schedules/leases.py": "names and whole numbers",
    "lumion_hw/schedules/documents.py": "names and whole numbers",
    "lumion_hw/circuits/lock.py": "names and whole numbers",
    "lumion_hw/cli/emulate.py": "names and addresses",
    "lumion_hw/training/member.py": "between processes of one job",
    "lumion_hw/training/ranks.py": "between processes of one job",
    "lumion_hw/integrations/torchrun.py": "between processes of one job, and times",
    "lumion_hw/emulator/wires/light_link.py": "between emulators, and a reader ignores light without a finite power",
    "lumion_hw/rehearsal/network.py": "between processes of one rehearsal",
    "firmware_protocol/schema.py": "the description of the protocol",
}
"""Modules that call ``json.dumps`` themselves, and why nothing there can be NaN or infinite."""


def strict(text: str) -> object:
    """Read JSON strictly by RFC 8259, which has no NaN, Infinity or -Infinity."""

    def refuse(token: str) -> object:
        raise AssertionError(f"{token} is no JSON")

    return json.loads(text, parse_constant=refuse)


@dataclass
class Measured:
    power_dbm: float


def plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    assert isinstance(value, np.ndarray)
    return value.tolist()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_becomes_null_wherever_it_stands(number: float) -> None:
    document = {
        "plain": number,
        "list": [1.5, (number, "NaN")],
        "deep": {"er": {"still": number, "good": 0.0}},
        "dataclass": Measured(number),
        "array": np.array([1.0, number]),
    }
    assert strict(json_text(document, default=plain)) == {
        "plain": None,
        "list": [1.5, [None, "NaN"]],
        "deep": {"er": {"still": None, "good": 0.0}},
        "dataclass": {"power_dbm": None},
        "array": [1.0, None],
    }


@given(st.lists(st.floats(), min_size=1))
def test_all_other_numbers_keep_every_bit(numbers: list[float]) -> None:
    expected = [number if math.isfinite(number) else None for number in numbers]
    assert strict(json_text(numbers)) == expected


def test_the_form_is_the_one_that_was_asked_for() -> None:
    document = {"ä": [1.0, math.nan]}
    assert json_text(document) == '{"\\u00e4": [1.0, null]}'
    assert json_text(document, compact=True, ascii_only=False) == '{"ä":[1.0,null]}'
    assert json_text(document, indent=1) == '{\n "\\u00e4": [\n  1.0,\n  null\n ]\n}'


def test_what_is_no_document_is_an_error() -> None:
    with pytest.raises(TypeError):
        json_text({"x": object()})
    itself: list[object] = []
    itself.append(itself)
    with pytest.raises(ValueError, match="Circular"):
        json_text(itself)


def test_every_writer_of_the_package_uses_it() -> None:
    """No writer fails because of NaN, and none writes a token that other JSON readers reject."""
    callers = set()
    for package in ("lumion_hw", "calibration", "firmware_protocol"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                named = isinstance(node, ast.Attribute) and node.attr in ("dumps", "dump", "JSONEncoder")
                if named and isinstance(node.value, ast.Name) and node.value.id == "json":
                    callers.add(path.relative_to(ROOT).as_posix())
    assert callers == WITHOUT_REALS.keys()


# -- what is kept of a run


def test_an_event_with_a_number_that_is_none_is_logged(tmp_path: Path) -> None:
    log, told = EventLog(VirtualClock()), list[dict[str, object]]()
    log.add_listener(told.append)
    log.write_to(tmp_path / "events.jsonl")
    log.add("circuit proven", margin_db=math.inf, readings_w=np.array([1e-3, np.nan]))
    log.close()
    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
    kept = strict(line)
    assert kept == told[0]
    assert (told[0]["margin_db"], told[0]["readings_w"]) == (None, [1e-3, None])


def test_a_log_of_settings_that_are_not_known_can_be_read_again(tmp_path: Path) -> None:
    header = LogHeader(
        "small",
        (Column("a.b", "a", "W"),),
        1.0,
        10,
        "2026-11-20T12:00:00.000+00:00",
        settings={"m.range_dbm": math.nan},
    )
    strict(header.line().decode())
    assert LogHeader.parse(header.line(), tmp_path / "log").settings == {"m.range_dbm": None}


def test_a_page_shows_the_rest_beside_a_number_that_is_none() -> None:
    assert to_json({"margin_db": math.inf, "lost_db": 0.5}) == '{"margin_db":null,"lost_db":0.5}'
