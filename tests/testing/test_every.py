"""A test of many cases reports each that fails."""

from __future__ import annotations

import re

import pytest

from tests.every import for_every


def test_all_cases_are_tried_and_each_that_fails_is_named() -> None:
    tried = []

    @for_every([1, 2, 3, 4], name=lambda number: f"number {number}")
    def even(number: int) -> None:
        """It is even."""
        tried.append(number)
        assert 6 // (number - 3) is not None  # a program error counts, too
        assert number % 2 == 0, "it is odd"

    assert (even.__name__, even.__doc__) == ("even", "It is even.")
    with pytest.raises(AssertionError, match="2 of 4 cases fail") as failed:
        even()
    first, second = re.findall(r"^number (.*)$", str(failed.value), re.MULTILINE)
    assert first.startswith("1: AssertionError: it is odd")
    assert second.startswith("3: ZeroDivisionError")
    assert tried == [1, 2, 3, 4]
    assert isinstance(failed.value.__cause__, AssertionError)


def test_no_case_is_a_failure() -> None:
    @for_every([])
    def nothing(case: object) -> None:
        raise AssertionError(case)

    with pytest.raises(AssertionError):
        nothing()
