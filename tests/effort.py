"""How many examples a property test draws: few in `make test`, more in `make test-long` and `make campaign`."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

TIMES = {"test": 0.25, "long": 0.4, "campaign": 200}
"""How much of its number a property test draws under each profile of Hypothesis (conftest.py).

`make test` draws the same examples each time: more of them would find nothing new the next time. `make test-long` draws
new ones, so that its number grows with every run.
"""
_FEWEST = 5


def examples(count: int, **more: Any) -> settings:
    """Return the settings of a property test that is worth ``count`` examples: a quarter of them in `make test`."""
    share = TIMES[settings.get_current_profile_name()]
    return settings(max_examples=max(_FEWEST, round(count * share)), **more)
