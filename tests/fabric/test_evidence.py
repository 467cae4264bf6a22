"""Verdicts from evidence: when a spare is needed, when another path, and when it was only a fade."""

import math

import pytest

from lumion_hw.fabric import Evidence, FailureJudge
from lumion_hw.fabric.evidence import TOGETHER_S, CircuitSender

FED = {
    "b0:a0": CircuitSender("b", "b0"),
    "b1:a1": CircuitSender("b", "b1"),
    "a0:b0": CircuitSender("a", "a0"),
    "a1:b1": CircuitSender("a", "a1"),
    "c0:d0": CircuitSender("c", "c0"),
}
FADE_S = 0.15


def judge() -> FailureJudge:
    return FailureJudge(FED, FADE_S)


def seen(observation: str, subject: str, at_s: float, by: str = "photodiodes", within_s: float = 1e-3) -> Evidence:
    return Evidence(by, observation, subject, at_s - within_s, at_s, at_s + 2e-3)  # type: ignore[arg-type]


def test_all_light_of_a_server_gone_at_once_is_the_server() -> None:
    it = judge()
    it.add(seen("dark", "b0:a0", 1.0))
    assert it.next_verdict(1.0) is None
    it.add(seen("dark", "b1:a1", 1.001))
    verdict = it.next_verdict(1.002)
    assert verdict is not None
    assert (verdict.suspect, verdict.name, verdict.cause) == ("unit", "b", "light")
    assert verdict.since_s == pytest.approx(0.999)
    assert set(verdict.circuits) == {"b0:a0", "b1:a1"}
    assert it.next_verdict(1.003) is None, "told once"


def test_two_fibres_dark_one_long_after_the_other_are_two_fibres() -> None:
    it = judge()
    it.add(seen("dark", "b0:a0", 1.0))
    it.add(seen("dark", "b1:a1", 1.0 + 2 * TOGETHER_S))
    assert it.next_verdict(1.1) is None
    assert it.unexplained_circuits(1.1) == []
    assert it.unexplained_circuits(1.01 + FADE_S) == ["b0:a0"]


@pytest.mark.parametrize(("apart_s", "cause"), [(0.020, "unit"), (0.023, None)])
def test_light_that_goes_out_within_20_ms_goes_out_together(apart_s: float, cause: str | None) -> None:
    """The limit of docs/recovery.md; each loss lies within the 1 ms before its reading."""
    it = judge()
    it.add(seen("dark", "b0:a0", 1.0))
    it.add(seen("dark", "b1:a1", 1.0 + apart_s))
    verdict = it.next_verdict(1.0 + apart_s)
    assert (verdict.suspect if verdict else None) == cause


def test_modules_that_refresh_every_100_ms_may_still_have_gone_dark_together() -> None:
    it = judge()
    it.add(seen("dark", "b0:a0", 1.05, "modules", 0.1))
    it.add(seen("dark", "b1:a1", 1.12, "modules", 0.1))
    verdict = it.next_verdict(1.12)
    assert verdict is not None
    assert verdict.detectors == ("modules",)


def test_a_server_with_one_fibre_is_never_condemned_by_that_alone() -> None:
    it = judge()
    it.add(seen("dark", "c0:d0", 1.0))
    assert it.next_verdict(9.0) is None
    assert it.next_due_s() == pytest.approx(1.0 + FADE_S)
    assert it.unexplained_circuits(9.0) == ["c0:d0"]


@pytest.mark.parametrize(
    ("sends", "suspect", "name"), [(True, "path", "c0:d0"), (False, "unit", "c"), (None, "unit", "c")]
)
def test_what_a_transmitter_says_decides_between_fibre_and_server(sends: bool | None, suspect: str, name: str) -> None:
    it = judge()
    it.add(seen("dark", "c0:d0", 1.0))
    verdict = it.explain("c0:d0", sends, "as it says", 1.2)
    assert (verdict.suspect, verdict.name) == (suspect, name)
    assert "as it says" in verdict.reason
    assert it.unexplained_circuits(9.0) == []


def test_a_fade_starts_nothing_and_is_counted() -> None:
    it = judge()
    it.add(seen("dark", "b0:a0", 1.0))
    it.add(seen("lit", "b0:a0", 1.05))
    assert it.unexplained_circuits(2.0) == []
    assert it.next_verdict(2.0) is None
    assert (it.counters.fades, it.counters.false_alarms, it.next_due_s()) == (1, 0, math.inf)


def test_light_that_comes_back_after_a_verdict_was_a_false_alarm() -> None:
    it = judge()
    it.add(seen("dark", "b0:a0", 1.0))
    it.add(seen("dark", "b1:a1", 1.0))
    assert it.next_verdict(1.0) is not None
    it.add(seen("lit", "b0:a0", 1.5))
    assert it.counters.false_alarms == 1


def test_a_circuit_is_dark_until_every_detector_that_said_so_sees_light() -> None:
    it = judge()
    it.add(seen("dark", "b0:a0", 1.0))
    it.add(seen("dark", "b0:a0", 1.1, "modules"))
    it.add(seen("lit", "b0:a0", 1.2))
    assert it.dark == ("b0:a0",)
    it.add(seen("lit", "b0:a0", 1.3, "modules"))
    assert it.dark == ()


def test_a_dead_process_is_no_dark_fibre() -> None:
    it = judge()
    it.add(Evidence("heartbeat", "gone", "a", 1.0, 1.3, 1.3, "no heartbeat for 0.300 s"))
    verdict = it.next_verdict(1.3)
    assert verdict is not None
    assert (verdict.suspect, verdict.name, verdict.cause, verdict.circuits) == ("unit", "a", "process", ())
    assert "no heartbeat" in verdict.reason


def test_what_is_not_in_service_is_nobodys_evidence() -> None:
    it = judge()
    it.add(seen("dark", "x:y", 1.0))
    it.add(seen("lit", "x:y", 1.0))
    assert (it.dark, it.counters.fades) == ((), 0)


def test_circuits_that_are_no_more_are_forgotten() -> None:
    it = judge()
    it.add(seen("dark", "c0:d0", 1.0))
    it.watch({name: senders for name, senders in FED.items() if name != "c0:d0"})
    assert (it.dark, it.unexplained_circuits(9.0)) == ((), [])


def test_when_a_fade_is_over_there_is_something_to_explain() -> None:
    for at_s in (1.0, 0.1, 7.3, 24.411050000000003):  # the two are equal except for rounding
        it = judge()
        it.add(seen("dark", "c0:d0", at_s))
        assert it.unexplained_circuits(it.next_due_s()) == ["c0:d0"]
    it = judge()
    it.add(seen("dark", "b0:a0", 1.0))
    it.add(seen("dark", "b1:a1", 1.0))
    assert it.next_verdict(1.0) is not None
    assert it.next_due_s() == math.inf, "nothing is waited for once the server is known"


def test_a_server_that_stays_gone_is_told_once_also_when_others_are_watched_in_its_place() -> None:
    it = judge()
    it.add(Evidence("heartbeat", "gone", "b", 1.0, 1.3, 1.3, "no heartbeat for 0.300 s"))
    assert it.next_verdict(1.3) is not None
    it.watch({name: senders for name, senders in FED.items() if senders.unit != "b"})
    assert it.next_verdict(1.4) is None, "it is found to have failed again and again, and each time is written down"
    it.forget("b")
    it.add(Evidence("heartbeat", "gone", "b", 2.0, 2.3, 2.3, "no heartbeat for 0.300 s"))
    assert it.next_verdict(2.3) is not None, "repaired since, and gone once more"
