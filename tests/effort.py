"""How many examples a property test draws: few in `make test`, more in `make test-long` and `make campaign`."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

TIMES = {"test": 1, "long": 3, "campaign": 200}
"""How often the number of `make test` is drawn under each profile of Hypothesis (conftest.py)."""


def examples(count: int, **more: Any) -> settings:
    """Return the settings of a property test: ``count`` examples in `make test`."""
    return settings(max_examples=count * TIMES[settings.get_current_profile_name()], **more)
