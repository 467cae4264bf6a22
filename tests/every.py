"""One test for many small cases: pytest spends some milliseconds on each test, the case itself often microseconds."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

Case = TypeVar("Case")


def for_every(
    cases: Collection[Case], name: Callable[[Case], str] = str
) -> Callable[[Callable[[Case], None]], Callable[[], None]]:
    """Make a test of a check of one case: it tries all cases, and reports each that fails under its name.

    For cases that share no fixture and differ only in a row of a table.
    """

    def decorate(check: Callable[[Case], None]) -> Callable[[], None]:
        def test() -> None:
            assert cases
            failures: dict[str, Exception] = {}
            for case in cases:
                try:
                    check(case)
                except Exception as error:  # noqa: BLE001  # all of them are reported, below
                    failures[name(case)] = error
            if failures:
                said = [f"{case}: {type(error).__name__}: {error}" for case, error in failures.items()]
                raise AssertionError("\n".join([f"{len(failures)} of {len(cases)} cases fail", *said])) from next(
                    iter(failures.values())
                )  # the traceback of the first

        test.__name__, test.__qualname__ = check.__name__, check.__qualname__
        test.__doc__, test.__module__ = check.__doc__, check.__module__
        return test

    return decorate
