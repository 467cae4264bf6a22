"""Watching the light: from loss of signal at receivers to a verdict that names a suspect.

One dark receiver may be a fade, a fibre or a port; it calls for another look, not for a spare. A server is the suspect
when every receiver that it feeds has lost its signal in two consecutive polls and the mesh's own monitors at the
inputs cannot tell otherwise. The control network is not asked: dark light is not a dead process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from lumion_hw.bench.bench import Bench
from lumion_hw.circuits import CircuitRequest
from lumion_hw.clock import deadline_after
from lumion_hw.errors import LinkError
from lumion_hw.fabric.servers import server_of

_CONSECUTIVE = 2


@dataclass(frozen=True)
class FailureVerdict:
    """What the light says.

    Attributes:
        server: Server that no longer sends light to anybody.
        dark: Receivers that lost their signal.
        unreachable: Modules of the suspect that do not answer either.
        at_s: Bench time of the verdict.
        since_s: Bench time of the last poll at which all was well: the fault lies between the two.
    """

    server: str
    dark: tuple[str, ...]
    unreachable: tuple[str, ...]
    at_s: float
    since_s: float


class LightWatch:
    """Polls the receivers of a set of circuits.

    Args:
        bench: The bench.
        requests: Circuits that are set up.
    """

    def __init__(self, bench: Bench, requests: Sequence[CircuitRequest]) -> None:
        self._bench = bench
        self._requests = tuple(requests)
        self._dark_polls: dict[str, int] = {}
        self._silent: set[str] = set()
        self._well_s = bench.clock.now()

    def poll(self) -> FailureVerdict | None:
        """Look at every receiver once; return a verdict if a server has gone dark."""
        bench = self._bench
        # A module that did not answer is not asked again: its time-out would delay the verdict on the others.
        asked = sorted({request.target for request in self._requests} - self._silent)
        losses = bench.side_by_side([(name, partial(self._lost, name)) for name in asked])
        for name, lost in zip(asked, losses, strict=True):
            if lost is None:
                self._silent.add(name)
                continue
            # In a row: a receiver that saw light in between has only faded.
            self._dark_polls[name] = self._dark_polls.get(name, 0) + 1 if lost else 0
        silent = self._silent
        if not silent and not any(self._dark_polls.values()):
            self._well_s = bench.clock.now()
            return None
        return self._judge(silent)

    def _lost(self, name: str) -> bool | None:
        """Return whether a receiver reports loss of signal; ``None`` if it does not answer."""
        try:
            return self._bench.transponders[name].status().rx_los
        except LinkError:
            return None

    def wait(self, timeout_s: float) -> FailureVerdict | None:
        """Poll at the bench file's period until there is a verdict, or ``None`` after ``timeout_s``."""
        period_s = self._bench.model.fabric.detect_poll_s
        deadline = deadline_after(self._bench.clock, timeout_s)
        while True:
            began_s = self._bench.clock.now()
            verdict = self.poll()
            if verdict is not None or self._bench.clock.now() >= deadline:
                return verdict
            self._bench.clock.sleep(max(began_s + period_s - self._bench.clock.now(), 0.0))

    def _judge(self, silent: set[str]) -> FailureVerdict | None:
        """Return the server all of whose light is lost, if there is one."""
        model = self._bench.model
        fed: dict[str, list[str]] = {}
        for request in self._requests:
            server = server_of(model, request.source)
            if server is not None and request.target not in silent:
                fed.setdefault(server.name, []).append(request.target)
        for server_name, receivers in fed.items():
            if receivers and all(self._dark_polls.get(name, 0) >= _CONSECUTIVE for name in receivers):
                nics = next(server.nics for server in model.servers if server.name == server_name)
                verdict = FailureVerdict(
                    server_name,
                    tuple(receivers),
                    tuple(sorted(silent & set(nics))),
                    self._bench.clock.now(),
                    self._well_s,
                )
                self._bench.events.add(
                    "verdict", server=server_name, dark=receivers, unreachable=list(verdict.unreachable)
                )
                return verdict
        return None
