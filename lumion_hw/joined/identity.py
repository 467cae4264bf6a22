"""Checks that the light at each last receiver comes from the right module.

The transmitters of new circuits are switched off in patterns, so that every receiver sees another sequence of light and
dark. Each pattern halves the circuits that could be confused: 32 circuits need five patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from lumion_hw.errors import CircuitError
from lumion_hw.joined.benches import JoinedBench, results_on_benches
from lumion_hw.joined.plan import JoinedPlan, PlannedLink

_NOTICE_S = 1.0
"""Longest time until a receiver reports a change of its light."""
_POLL_S = 0.02


def identify(benches: Mapping[str, JoinedBench], change: str, plan: JoinedPlan, pause: Callable[[float], None]) -> None:
    """Check by patterns of light and dark that every receiver gets the light of its own circuit.

    A single circuit needs no pattern: its receiver was dark before its transmitter was switched on.

    Args:
        benches: The benches.
        change: Name of the prepared change.
        plan: The circuits, all lit.
        pause: Waits for a time in seconds.

    Raises:
        CircuitError: A receiver sees another pattern than its circuit sends.
        LumionError: A bench failed.
    """
    for bit in range((len(plan.links) - 1).bit_length()):
        dark = {link for number, link in enumerate(plan.links) if not number >> bit & 1}
        _blink(benches, change, plan.links, dark)
        wrong = _wait_for(benches, plan.links, dark, pause)
        if wrong:
            raise CircuitError(
                f"the light at {', '.join(':'.join(link.request.target) for link in wrong)} comes from another module",
                hint="Check the fibres between the meshes: two of them may be exchanged. All benches were set back.",
            )
    if len(plan.links) > 1:
        _blink(benches, change, plan.links, set())
        dark_links = _wait_for(benches, plan.links, set(), pause)
        if dark_links:
            raise CircuitError(f"{dark_links[0].request}: its light did not return after it was switched off")


def _blink(
    benches: Mapping[str, JoinedBench], change: str, links: Sequence[PlannedLink], dark: set[PlannedLink]
) -> None:
    modules = {
        name: [link.request.source[1] for link in dark if link.request.source[0] == name]
        for name in dict.fromkeys(link.request.source[0] for link in links)
    }
    results_on_benches(benches, {name: partial(benches[name].blink, change, own) for name, own in modules.items()})


def _wait_for(
    benches: Mapping[str, JoinedBench],
    links: Sequence[PlannedLink],
    dark: set[PlannedLink],
    pause: Callable[[float], None],
) -> list[PlannedLink]:
    """Wait until the receivers of exactly these circuits are dark; return the circuits whose receivers are wrong."""
    receivers: dict[str, list[str]] = {}
    for link in links:
        receivers.setdefault(link.request.target[0], []).append(link.request.target[1])
    waited_s = 0.0
    while True:
        states = results_on_benches(
            benches, {name: partial(benches[name].are_dark, modules) for name, modules in receivers.items()}
        )
        wrong = [link for link in links if states[link.request.target[0]][link.request.target[1]] != (link in dark)]
        if not wrong or waited_s >= _NOTICE_S:
            return wrong
        pause(_POLL_S)
        waited_s += _POLL_S
