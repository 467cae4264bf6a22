"""Causes of faults: from a file to shares of time."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumion_hw.errors import ConfigError
from lumion_hw.planning import FaultRate, Faults, read_causes

EXAMPLE = Path(__file__).parents[2] / "examples" / "fault_causes.csv"


def test_one_cause_of_each_kind_is_a_rate() -> None:
    causes = (FaultRate("chip", "accelerator", 3e-4, 7.0), FaultRate("host", "server", 1e-4, 7.0))
    assert Faults.from_causes(causes, 4) == Faults.from_rate(4e-4, 7.0, 0.25, 4)


def test_causes_with_repair_times_of_their_own_by_hand() -> None:
    # Lost for half and for a fifth of the time: in service for 0.5 * 0.8. Servers of 8: 0.125 * 8 = 1 fault a day.
    causes = (
        FaultRate("one", "accelerator", 0.1, 10.0),
        FaultRate("other", "accelerator", 0.25, 1.0),
        FaultRate("host", "server", 0.125, 3.0),
    )
    faults = Faults.from_causes(causes, 8)
    assert faults.accelerator_unavailable == pytest.approx(0.6)
    assert faults.server_unavailable == pytest.approx(0.75)


def test_the_example_has_all_interruptions_of_the_table() -> None:
    causes = read_causes(EXAMPLE)
    # 419 unexpected interruptions of 16,384 accelerators in 54 days, to two digits in each line.
    assert sum(each.per_accelerator_day for each in causes) == pytest.approx(419 / (16_384 * 54), rel=0.01)
    gpu = sum(each.per_accelerator_day for each in causes if each.scope == "accelerator")
    assert gpu == pytest.approx(268 / (16_384 * 54), rel=0.01)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "holds no cause"),
        (b"# nothing\n\n", "holds no cause"),
        (b"a,accelerator,1\n", r":1: expected 4 entries, found 3"),
        (b"#\na,rack,1,1\n", r":2: expected accelerator or server, found 'rack'"),
        (b"a,server,x,1\n", r":1: expected two numbers, found 'x, 1'"),
        (b"a,server,-1,1\n", r":1: a: faults per day must be finite and at least 0, found -1"),
        (b"a,server,1,nan\n", r":1: a: days to repair must be finite and at least 0, found nan"),
        (b"a,server,inf,1\n", r":1: a: faults per day must"),
        (b"\xff\xfe\n", "expected UTF-8 text"),
    ],
)
def test_other_files_are_refused_with_the_line(tmp_path: Path, text: bytes, says: str) -> None:
    path = tmp_path / "causes.csv"
    path.write_bytes(text)
    with pytest.raises(ConfigError, match=says):
        read_causes(path)


def test_a_name_may_hold_a_comma_in_quotes(tmp_path: Path) -> None:
    path = tmp_path / "causes.csv"
    path.write_text('"fans, pumps", server, 1e-5, 2\n', encoding="utf-8")
    assert read_causes(path) == (FaultRate("fans, pumps", "server", 1e-5, 2.0),)
    with pytest.raises(ConfigError, match="unknown scope 'rack'"):
        FaultRate("a", "rack", 1.0, 1.0)  # type: ignore[arg-type]
