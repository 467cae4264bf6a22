"""From what detectors see to a verdict that names a suspect. No device is asked here, and no clock.

One dark receiver may be a fade, a fibre, a cell or a port: it calls for another look, and then for another way, not for
a spare. A server is the suspect when all the light it sends goes out together, over fibres that have nothing else in
common; or when its processes say so. Dark fibre is not a dead process: each verdict says which of the two was seen.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

TOGETHER_S = 0.02
"""Light of several fibres that goes out within this time has gone out together: what they share is their server."""

Observation = Literal["dark", "lit", "gone", "back"]
"""``dark`` and ``lit`` are said of circuits, ``gone`` and ``back`` of servers and accelerators."""


@dataclass(frozen=True)
class Evidence:
    """What one detector has seen.

    Attributes:
        detector: Name of the detector.
        sees: What.
        subject: Circuit, as ``from:to``; or server or accelerator.
        since_s: Bench time at which it was not so for the last time.
        at_s: Bench time at which it was so for the first time.
        told_s: Bench time at which it was told.
        words: What was seen, in words.
    """

    detector: str
    observation: Observation
    subject: str
    since_s: float
    at_s: float
    reported_s: float
    words: str = ""


@dataclass(frozen=True)
class FailureVerdict:
    """What is believed to have failed.

    Attributes:
        suspect: ``unit`` calls for a spare, ``path`` for another way to the same place.
        name: Server, accelerator, or circuit.
        cause: ``light`` or ``process``.
        words: Why, in a sentence.
        since_s: Bench time of the last sign that all was well: the fault lies between it and ``at_s``.
        at_s: Bench time of the verdict.
        detectors: Who saw it, the first one first.
        circuits: Circuits that are dark.
    """

    suspect: Literal["unit", "path"]
    name: str
    cause: Literal["light", "process"]
    words: str
    since_s: float
    at_s: float
    detectors: tuple[str, ...]
    circuits: tuple[str, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> FailureVerdict:
        """Return a verdict that was written down with ``dataclasses.asdict``."""
        named = {name: tuple(document[name]) for name in ("detectors", "circuits")}
        return cls(**{**document, **named})


@dataclass(frozen=True)
class CircuitSender:
    """Who sends the light of a circuit.

    Attributes:
        unit: Server or accelerator.
        module: The transmitting module.
    """

    unit: str
    module: str


@dataclass
class FadeCounts:
    """What was seen so far.

    Attributes:
        fades: Circuits that were dark for a while and came back by themselves.
        verdicts: Verdicts reached.
        false_alarms: Verdicts whose light came back although nobody had repaired anything.
    """

    fades: int = 0
    verdicts: int = 0
    false_alarms: int = 0


@dataclass
class Judge:
    """Collects evidence and says when it is enough.

    Attributes:
        fed: Circuits in service and who feeds them.
        fade_s: Dark for less, a fibre alone has only faded.
        counters: Fades, verdicts, false alarms.
        searched: Circuits whose polarization is being searched: their light goes and comes, which says nothing.
    """

    senders: Mapping[str, CircuitSender]
    fade_s: float
    counters: FadeCounts = field(default_factory=FadeCounts)
    searched: Collection[str] = ()
    _dark: dict[str, dict[str, Evidence]] = field(default_factory=dict)
    _gone: dict[str, Evidence] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _asked: set[str] = field(default_factory=set)

    def watch(self, senders: Mapping[str, CircuitSender]) -> None:
        """Judge other circuits from now on; what was seen of those that are no more is forgotten."""
        self.senders = senders
        self._dark = {name: seen for name, seen in self._dark.items() if name in senders}
        # What is gone stays so until it is back or repaired, whoever stands in its place.
        self._told &= set(senders) | {each.unit for each in senders.values()} | set(self._gone)
        self._asked &= set(senders)

    def take(self, evidence: Evidence) -> None:
        """Note what a detector has seen."""
        name = evidence.subject
        if evidence.observation == "dark" and name in self.senders:
            self._dark.setdefault(name, {}).setdefault(evidence.detector, evidence)
        elif evidence.observation == "lit" and evidence.detector in self._dark.get(name, {}):
            del self._dark[name][evidence.detector]
            if not self._dark[name]:
                del self._dark[name]
                self._asked.discard(name)
                if name in self._told or self.senders[name].unit in self._told:
                    self._told -= {name, self.senders[name].unit}
                    self.counters.false_alarms += 1
                elif name not in self.searched:
                    self.counters.fades += 1
        elif evidence.observation == "gone":
            self._gone.setdefault(name, evidence)
        elif evidence.observation == "back":
            self._gone.pop(name, None)
            self._told.discard(name)

    def verdict(self, now_s: float) -> FailureVerdict | None:
        """Return what has failed, if the evidence is enough; each thing is told once."""
        for unit, evidence in self._gone.items():
            if unit not in self._told:
                words = f"{unit} is gone: {evidence.words or evidence.detector}"
                return self._tell("unit", unit, "process", words, [evidence], (), now_s)
        for unit, circuits in self._by_unit().items():
            if unit not in self._told and self._went_together(unit, circuits):
                seen = self._first(circuits)
                words = f"all light of {unit} went out together ({len(circuits)} fibres)"
                return self._tell("unit", unit, "light", words, seen, circuits, now_s)
        return None

    def unexplained(self, now_s: float) -> list[str]:
        """Return circuits dark for longer than a fade: what feeds them is to be asked, then :meth:`explain`."""
        return [name for name, due_s in self._waiting().items() if now_s >= due_s]

    def _waiting(self) -> dict[str, float]:
        """Return when each dark circuit is more than a fade, of those that nothing is known of yet."""
        return {
            name: self._first([name])[0].at_s + self.fade_s
            for name in self._dark
            if name not in self._told and name not in self._asked and self.senders[name].unit not in self._told
            if name not in self.searched
        }

    def explain(self, circuit: str, sends: bool | None, words: str, now_s: float) -> FailureVerdict:
        """Return the verdict on a circuit that stays dark, by what its transmitter says.

        Args:
            circuit: The circuit.
            sends: Its transmitter says that it sends light; ``None`` if it does not answer.
            words: What it says.
            now_s: Bench time.
        """
        self._asked.add(circuit)
        seen, unit = self._first([circuit]), self.senders[circuit].unit
        if sends:
            text = f"{circuit} is dark, and its transmitter says it sends ({words}): fibre, cell or port"
            return self._tell("path", circuit, "light", text, seen, (circuit,), now_s)
        said = "does not answer" if sends is None else "sends nothing"
        text = f"{circuit} is dark, and its transmitter {said} ({words})"
        return self._tell("unit", unit, "light", text, seen, (circuit,), now_s)

    def next_due_s(self) -> float:
        """Return when a fade becomes more than that; infinity if nothing is dark."""
        return min(self._waiting().values(), default=math.inf)

    def forget(self, name: str) -> None:
        """Take a server, an accelerator or a circuit for well again."""
        self._gone.pop(name, None)
        self._told.discard(name)
        for circuit in [each for each, senders in self.senders.items() if name in (each, senders.unit)]:
            self._dark.pop(circuit, None)
            self._asked.discard(circuit)

    def forget_light(self) -> None:
        """Forget which circuits were dark: the mesh was off, and what is dark from now on is seen anew."""
        self._told -= set(self._dark) | {self.senders[name].unit for name in self._dark if name in self.senders}
        self._told |= set(self._gone)
        self._dark.clear()
        self._asked.clear()

    @property
    def dark(self) -> tuple[str, ...]:
        """Circuits that are dark now."""
        return tuple(self._dark)

    def _by_unit(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for name, senders in self.senders.items():
            found[senders.unit] = (*found.get(senders.unit, ()), name)
        return found

    def _went_together(self, unit: str, circuits: Iterable[str]) -> bool:
        """Return whether all light of a unit went out, over two fibres at least, within one short time."""
        circuits = tuple(name for name in circuits if name not in self.searched)
        modules = {self.senders[name].module for name in circuits}
        if len(modules) < 2 or any(name not in self._dark for name in circuits):
            return False
        firsts = [min(self._dark[name].values(), key=lambda each: each.at_s) for name in circuits]
        # Each went out between the last look that saw it and the first that did not.
        return max(each.since_s for each in firsts) <= min(each.at_s for each in firsts) + TOGETHER_S

    def _first(self, circuits: Iterable[str]) -> list[Evidence]:
        seen = [each for name in circuits for each in self._dark.get(name, {}).values()]
        return sorted(seen, key=lambda each: each.reported_s)

    def _tell(
        self,
        suspect: Literal["unit", "path"],
        name: str,
        cause: Literal["light", "process"],
        words: str,
        seen: list[Evidence],
        circuits: tuple[str, ...],
        now_s: float,
    ) -> FailureVerdict:
        self._told |= {name, *circuits}
        self.counters.verdicts += 1
        detectors = tuple(dict.fromkeys(each.detector for each in seen))
        since_s = min((each.since_s for each in seen), default=now_s)
        return FailureVerdict(suspect, name, cause, words, since_s, now_s, detectors, circuits)
