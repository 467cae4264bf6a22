"""The first account of the random settings: from the start that a search found, or from another's if that was wrong.

A search may end in a valley that only looks right. A fit from there explains hardly anything, and whatever is thought
of to explain the rest is false: another search, a few seconds, comes before all that takes a fit to find out. Where no
valley looked right, all starts of the search were made already: then something has happened to the readings.
"""

from __future__ import annotations

from collections.abc import Callable

from calibration.fit.account import Account, Accountant
from calibration.fit.phase_search import same_valley
from calibration.run.bootstrap import Bootstrap, Start

_MORE_STARTS = 4


def first_account(
    bootstrap: Bootstrap,
    start: Start,
    accountant: Callable[[Start], Accountant],
    found: Callable[[Start, Account], None],
) -> tuple[Start, Account]:
    """Fit from a start, and from others until one explains the readings; return that start and its account.

    Args:
        bootstrap: Searches again.
        start: Where its first search ended.
        accountant: Returns who fits the readings of a start.
        found: Told of every start and account on the way.
    """
    now = start, accountant(start).begin(start.parameters)
    found(*now)
    for settled in (False, *(True,) * _MORE_STARTS):
        if not now[1].fit.certified and (settled or now[0].trusted):
            now = _elsewhere(bootstrap, *now, accountant, settled=settled)
            found(*now)
        if not settled:
            now = now[0], accountant(now[0]).settle(now[1])
            found(*now)
    start, account = now
    return start, account if account.fit.certified else accountant(start).exchanged_from(start.parameters, account)


def _elsewhere(
    bootstrap: Bootstrap, start: Start, account: Account, accountant: Callable[[Start], Accountant], *, settled: bool
) -> tuple[Start, Account]:
    """Return the start of another search and its account, or those given if that explains no more.

    A search that ends in the same valley says that this is the right one.
    """
    other = bootstrap.again(start)
    if same_valley(other.search, start.search):
        return start, account
    found = accountant(other).begin(other.parameters)
    found = accountant(other).settle(found) if settled else found
    return (other, found) if found.fit.chi2_per_dof < account.fit.chi2_per_dof else (start, account)
