"""Requests of other programs to the manager of a fabric: done once, by the right manager, in time, or not at all."""

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from lumion_hw.circuits.lock import LockOwner
from lumion_hw.errors import CircuitError, ConfigError
from lumion_hw.fabric.requests import MAX_AGE_S, FabricRequest, Outcome, RequestBox

ME = LockOwner("ada", "lab3", 4711, "lumion fabric run", "2026-11-27T10:00:00+00:00")
FAIL_B = FabricRequest("fail", "b", "ECC errors")


@pytest.fixture
def box(tmp_path: Path) -> RequestBox:
    return RequestBox(tmp_path)


def test_a_request_is_done_once_and_its_sender_learns_the_outcome(box: RequestBox) -> None:
    done: list[FabricRequest] = []
    number = box.send(FAIL_B, ME)
    assert box.outcome(number) is None
    box.serve(ME, done.append)
    box.serve(ME, done.append)
    assert done == [FAIL_B]
    assert box.outcome(number) == Outcome()
    assert not box.withdraw(number)
    assert list(box._folder.iterdir()) == []


@pytest.mark.parametrize(
    ("raised", "exit_code", "text"),
    [
        (ConfigError("b has failed already"), 2, "b has failed already"),
        (CircuitError("sfp-a:sfp-b is dark"), 3, "sfp-a:sfp-b is dark"),
        (ZeroDivisionError("float division"), 1, "unexpected ZeroDivisionError: float division"),
    ],
)
def test_what_a_request_raises_is_its_outcome_and_ends_no_manager(box: RequestBox, raised, exit_code, text) -> None:
    def perform(_request: FabricRequest) -> None:
        raise raised

    number = box.send(FAIL_B, ME)
    box.serve(ME, perform)
    assert box.outcome(number) == Outcome(text, exit_code)


@pytest.mark.parametrize(
    "later", [replace(ME, pid=4712), replace(ME, since_utc="2026-11-27T11:00:00+00:00"), replace(ME, host="lab4")]
)
def test_a_request_for_another_manager_is_refused(box: RequestBox, later: LockOwner) -> None:
    done: list[FabricRequest] = []
    number = box.send(FAIL_B, ME)
    box.serve(later, done.append)
    outcome = box.outcome(number)
    assert done == []
    assert outcome is not None
    assert "is for another manager, ada@lab3:4711 since 2026-11-27T10:00:00" in outcome.error


@pytest.mark.parametrize(("age_s", "is_done"), [(MAX_AGE_S - 5.0, True), (MAX_AGE_S + 5.0, False)])
def test_a_request_is_refused_when_it_is_old(box: RequestBox, monkeypatch, age_s: float, is_done: bool) -> None:
    done: list[FabricRequest] = []
    number, now_s = box.send(FAIL_B, ME), time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + age_s)
    box.serve(ME, done.append)
    assert bool(done) is is_done
    assert (box.outcome(number) == Outcome()) is is_done


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe{", b"[]", b"{}", b'{"what": "fail", "unit": "b", "reason": "", "sent_s": "now", "manager": ""}'],
)
def test_a_damaged_request_is_refused_and_the_next_one_is_done(box: RequestBox, content: bytes) -> None:
    done: list[FabricRequest] = []
    damaged, good = box.send(FAIL_B, ME), box.send(FAIL_B, ME)
    (box._folder / f"{damaged}.json").write_bytes(content)
    box.serve(ME, done.append)
    assert done == [FAIL_B]
    assert box.outcome(good) == Outcome()
    refused = box.outcome(damaged)
    assert refused is not None
    assert refused.exit_code == 2


def test_a_request_that_is_withdrawn_is_not_done(box: RequestBox) -> None:
    done: list[FabricRequest] = []
    number = box.send(FAIL_B, ME)
    assert box.withdraw(number)
    box.serve(ME, done.append)
    assert done == []


def test_an_unknown_request_says_which_there_are() -> None:
    with pytest.raises(
        ConfigError, match=r"there is no request 'explode'\. Requests: status, clear, recover, fail, drain, repaired"
    ):
        FabricRequest("explode").perform(SimpleNamespace(begin=None))  # type: ignore[arg-type] # not called
