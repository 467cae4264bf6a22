"""Which start is believed: another search comes before all explanations, and the better of two fits is kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from calibration.fit.diagnosed_fit import DiagnosedFit, FaultDiagnosis
from calibration.fit.phase_search import Levels, SearchResult
from calibration.model.work import FIRST_FITS_SHARE, FitWork
from calibration.run.bootstrap import Bootstrap, Start
from calibration.run.procedure import first_fit

_SEARCH_WORK = 1000
PASSIVE = np.random.default_rng(5).uniform(0.0, 2.0 * np.pi, 20)


@dataclass(frozen=True)
class Fit:
    """What a fit is asked for here."""

    certified: bool
    chi2_per_dof: float
    discrepancy: float = 0.05
    converged: bool = True


@dataclass
class Bench:
    """A bootstrap whose searches end in given valleys, and a diagnosis that knows what each is good for.

    Attributes:
        valleys: Valley of every search.
        fits: By valley, how the first fit ends.
        settled: By valley, how it ends with all taken out that can be thought of, if otherwise.
        trusted: Whether valleys look right.
        did: What was done, in words.
    """

    valleys: list[float]
    fits: dict[int, Fit]
    settled: dict[int, Fit] = field(default_factory=dict)
    trusted: bool = True
    did: list[str] = field(default_factory=list)
    work: FitWork = field(default_factory=FitWork)

    def start(self) -> Start:
        valley = self.valleys.pop(0)
        levels = Levels(np.ones(1), np.ones(1))
        search = SearchResult(
            PASSIVE + valley,
            np.zeros(3),
            np.zeros(1),
            levels,
            np.zeros(6),
            0.01 * (1 + valley),
            50,
            1,
            work=_SEARCH_WORK,
        )
        return cast(Start, SimpleNamespace(search=search, parameters=valley, trusted=self.trusted, miswiring=None))

    def search_again(self, start: Start) -> Start:
        self.did.append("search")
        return self.start()

    def diagnosis(self, start: Start) -> FaultDiagnosis:
        return cast(FaultDiagnosis, self)

    def begin(self, valley: int) -> DiagnosedFit:
        self.did.append(f"fit {valley}")
        return cast(DiagnosedFit, Told(valley, self.fits[valley]))

    def accept_field_error(self, now: DiagnosedFit) -> DiagnosedFit:
        return now

    def settle(self, now: Any) -> DiagnosedFit:
        self.did.append(f"settle {now.valley}")
        return cast(DiagnosedFit, replace(now, fit=self.settled.get(now.valley, now.fit)))

    def miswired_from(self, valley: int, now: Any) -> DiagnosedFit:
        self.did.append(f"exchange {valley}")
        return cast(DiagnosedFit, now)

    def run(self) -> tuple[int, list[int]]:
        """Return the valley believed in the end, and those told on the way."""
        told: list[int] = []

        def found(start: Start, diagnosed: DiagnosedFit) -> None:
            told.append(cast(Any, start).parameters)

        _, diagnosed = first_fit(cast(Bootstrap, self), self.start(), self.diagnosis, found, self.work)
        return cast(Any, diagnosed).valley, told


@dataclass(frozen=True)
class Told:
    """A diagnosed fit."""

    valley: int
    fit: Fit


@pytest.fixture(autouse=True)
def usual_crosstalk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No fit finds stronger crosstalk than the published."""
    monkeypatch.setattr("calibration.run.procedure._with_fitted_crosstalk", lambda fitted, *_: fitted)


LOST, BETTER, GOOD = Fit(False, 9.0), Fit(False, 4.0), Fit(True, 1.0)


def test_a_fit_that_explains_everything_is_left_alone_but_for_its_drift() -> None:
    bench = Bench([0], {0: GOOD})
    assert bench.run()[0] == 0
    assert bench.did == ["fit 0", "settle 0"]


def test_from_a_false_valley_another_search_comes_before_anything_else() -> None:
    bench = Bench([0, 1], {0: LOST, 1: GOOD})
    valley, told = bench.run()
    assert valley == 1
    assert bench.did == ["fit 0", "search", "fit 1", "settle 1"]
    assert told[0] == 0
    assert told[-1] == 1


@pytest.mark.parametrize("nearly", [Fit(False, 1.4, 0.002), Fit(False, 9.0, 0.009)])
def test_a_fit_that_lacks_a_little_lacks_physics_and_no_other_phases(nearly: Fit) -> None:
    bench = Bench([0], {0: nearly})
    bench.run()
    assert bench.did == ["fit 0", "settle 0"]


def test_a_fit_that_was_cut_short_says_nothing_of_how_much_it_lacks() -> None:
    bench = Bench([0, 1], {0: Fit(False, 1.4, 0.002, converged=False), 1: GOOD})
    assert bench.run()[0] == 1


def test_a_second_search_that_ends_in_the_same_valley_says_that_it_was_right() -> None:
    bench = Bench([0, 0], {0: LOST}, {0: GOOD})
    assert bench.run()[0] == 0
    assert bench.did == ["fit 0", "search", "settle 0"]


def test_a_valley_that_two_more_searches_end_in_is_believed_whatever_it_leaves() -> None:
    bench = Bench([0, 0, 0], {0: LOST})
    assert bench.run()[0] == 0
    assert bench.did == ["fit 0", "search", "settle 0", "search", "exchange 0"]


def test_every_search_counts_also_one_that_is_not_taken_and_the_last_cause_has_work_left() -> None:
    bench = Bench([0, 0], {0: LOST}, work=FitWork(allowed=2 * _SEARCH_WORK / FIRST_FITS_SHARE))
    bench.run()
    assert bench.did == ["fit 0", "search", "settle 0", "exchange 0"]
    assert bench.work.spent == 2 * _SEARCH_WORK
    assert not bench.work.is_used_up


def test_light_left_unexplained_scatters_from_search_to_search_in_one_valley() -> None:
    bench = Bench([0, 0.1], {0: LOST}, {0: GOOD})  # a tenth of a radian, and a tenth more light
    assert bench.run()[0] == 0
    assert bench.did == ["fit 0", "search", "settle 0"]


def test_where_no_valley_looked_right_explanations_come_before_another_search() -> None:
    bench = Bench([0, 1], {0: LOST, 1: GOOD}, {0: GOOD}, trusted=False)
    assert bench.run()[0] == 0
    assert bench.did == ["fit 0", "settle 0"]
    bench = Bench([0, 1], {0: LOST, 1: GOOD}, trusted=False)
    assert bench.run()[0] == 1
    assert bench.did == ["fit 0", "settle 0", "search", "fit 1", "settle 1"]


@pytest.mark.parametrize(("first", "second", "kept"), [(LOST, BETTER, 1), (BETTER, LOST, 0)])
def test_the_better_of_two_lost_fits_is_settled(first: Fit, second: Fit, kept: int) -> None:
    bench = Bench([0, 1], {0: first, 1: second}, {kept: GOOD})
    assert bench.run()[0] == kept
    assert bench.did == ["fit 0", "search", "fit 1", f"settle {kept}"]


def test_only_after_all_searches_channels_are_taken_to_be_exchanged() -> None:
    bench = Bench([0, 1, 2, 3, 4, 5], {0: BETTER, **dict.fromkeys(range(1, 6), LOST)})
    assert bench.run()[0] == 0
    assert bench.did.count("search") == 5
    assert bench.did[-1] == "exchange 0"
    assert [done for done in bench.did if done.startswith("settle")] == [f"settle {n}" for n in (0, 2, 3, 4, 5)]
