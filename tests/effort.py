"""How many examples a property test draws in `make test`, `make test-long` and `make campaign`; the longest modules."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

TIMES = {"test": 0.25, "long": 0.15, "campaign": 200}
"""How much of its number a property test draws under each profile of Hypothesis (conftest.py).

`make test` draws the same examples each time: more of them would find nothing new the next time. `make test-long` draws
new ones, so that its number grows with every run.
"""
LONGEST_FIRST = (
    "cli/test_cli_demo_long.py",
    "chaos/test_chaos_suite.py",
    "testing/test_docs_examples.py",
    "calibration/test_faults_on_benches.py",
    "cli/test_new_driver.py",
    "cli/test_cli_circuits.py",
    "serving/test_page_browser.py",
    "calibration/run/test_by_hand.py",
    "calibration/run/test_example_benches.py",
    "serving/test_kept.py",
    "calibration/run/test_unknown_physics.py",
    "calibration/test_part_of_a_mesh.py",
    "serving/test_host_pause.py",
    "calibration/run/test_two_tributaries.py",
    "rehearsal/test_rehearsal.py",
    "integrations/test_torchrun.py",
)
"""Modules of few tests that take half a minute or more in `make test-long`; xdist alone would start them last.

One worker would then be busy with the last of them while the others have nothing left to do.
"""
_FEWEST = 5


def examples(count: int, **more: Any) -> settings:
    """Return the settings of a property test that is worth ``count`` examples: a quarter of them in `make test`."""
    share = TIMES[settings.get_current_profile_name()]
    return settings(max_examples=max(_FEWEST, round(count * share)), **more)
