"""Whatever happens in whatever order: jobs end connected or refused, and no circuit is left over."""

from pathlib import Path

import pytest

from tests.fabric.chaos import EVENTS, sequence


def test_what_is_left_after_chaos(tmp_path: Path) -> None:
    chaos = sequence(0, tmp_path)
    assert set(chaos.done) <= set(EVENTS)


@pytest.mark.long
@pytest.mark.parametrize("number", range(1, 5))
def test_what_is_left_after_more_chaos(number: int, tmp_path: Path) -> None:
    sequence(number, tmp_path)


@pytest.mark.campaign
@pytest.mark.parametrize("number", range(5, 222))
def test_what_is_left_after_chaos_without_end(number: int, tmp_path: Path) -> None:
    sequence(number, tmp_path)
