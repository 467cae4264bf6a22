"""Five server processes, one of which watches all: no fault makes a circuit dark without an alarm."""

from pathlib import Path

import pytest

from tests.joined.watched_servers import FAULTS, campaign, operator_killed

# Five servers at a time keep two cores busy for minutes.
pytestmark = [pytest.mark.long, pytest.mark.campaign]

ROUNDS = 1
"""Tries of each fault."""


def test_no_circuit_gets_dark_without_an_alarm_and_all_come_back(tmp_path: Path) -> None:
    tries = list(campaign(tmp_path, ROUNDS, seed=1))
    assert [(name, attempt.lost, attempt.broken) for name, attempt in tries if attempt.lost or attempt.broken] == []
    assert len(tries) == ROUNDS * len(FAULTS)
    # The program of the operator may be killed after it has finished.
    due = {name for name in FAULTS if FAULTS[name] is not operator_killed}
    assert {name for name, attempt in tries if attempt.alarm_s is not None} >= due
