"""Whoever waits says for how long: a duration. Instants of a clock stay with links and sessions."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

import lumion_hw
from lumion_hw.clock import VirtualClock, deadline_after
from lumion_hw.errors import LimitError

_ROOT = Path(lumion_hw.__file__).parent
_ROOMS = ("interfaces", "drivers", "bench", "circuits", "schedules", "fabric", "acquisition")


def _public_parameters() -> Iterator[tuple[str, str]]:
    for room in _ROOMS:
        for path in sorted((_ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    for argument in (*node.args.args, *node.args.kwonlyargs):
                        yield f"{path.relative_to(_ROOT)}: {node.name}", argument.arg


def test_no_public_call_above_the_sessions_takes_an_instant() -> None:
    found = list(_public_parameters())
    assert any(name == "timeout_s" for _, name in found)  # the walk sees them
    assert [where for where in found if "deadline" in where[1] or "until" in where[1]] == []


@pytest.mark.parametrize("timeout_s", [math.nan, -0.001, -math.inf])
def test_a_time_that_would_never_end_is_refused(timeout_s: float) -> None:
    with pytest.raises(LimitError, match="time-out is negative"):
        deadline_after(VirtualClock(), timeout_s)


def test_a_duration_counts_from_now() -> None:
    clock = VirtualClock(start_s=100.0)
    assert deadline_after(clock, 2.5) == 102.5
    assert deadline_after(clock, math.inf) == math.inf
