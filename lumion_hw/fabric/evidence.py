"""Decide from the observations of detectors which server or path has failed.

A server is suspected if all its fibres become dark together, or if its processes have ended. A single dark fibre calls
for another path, not for a spare.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from lumion_hw.files.json_text import rename_key

TOGETHER_S = 0.02
"""If all fibres of a server become dark within this time, the server is the cause."""

Observation = Literal["dark", "lit", "gone", "back"]
"""Kinds of observations: ``dark`` and ``lit`` for circuits, ``gone`` and ``back`` for servers and accelerators."""


@dataclass(frozen=True)
class Evidence:
    """One observation of a failure detector.

    Attributes:
        subject: Circuit as ``from:to``, or server, or accelerator.
        since_s: Time on the bench's clock of the last check without this observation.
        at_s: Time on the bench's clock of the first check with this observation.
        reported_s: Time on the bench's clock when the observation was reported.
        reason: Description of the observation.
    """

    detector: str
    observation: Observation
    subject: str
    since_s: float
    at_s: float
    reported_s: float
    reason: str = ""


@dataclass(frozen=True)
class FailureVerdict:
    """Decision on which server, accelerator or path has failed.

    Attributes:
        suspect: ``unit`` if a server or accelerator failed: a spare replaces it. ``path`` if a circuit failed: it gets
            another path between the same ends. ``end`` if it has no other path: a spare replaces the unit at one of
            its ends, which is healthy as far as the readings show.
        name: Name of the server, accelerator or circuit.
        cause: ``light``, ``process``, or ``drain`` if an operator takes a healthy unit out of service.
        reason: Reason, as a sentence.
        since_s: Time of the last check without a failure, in s on the bench's clock.
        at_s: Time of the decision, in s on the bench's clock.
        detectors: Detectors that observed the failure, in order of time.
        pucs: PUCs that may be broken.
    """

    suspect: Literal["unit", "path", "end"]
    name: str
    cause: Literal["light", "process", "drain"]
    reason: str
    since_s: float
    at_s: float
    detectors: tuple[str, ...]
    circuits: tuple[str, ...] = ()
    pucs: tuple[int, ...] = ()

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> FailureVerdict:
        """Return a failure verdict from its stored fields."""
        fields = cls.fields_of(document)
        return cls(**{**fields, **{name: tuple(fields.get(name, ())) for name in ("detectors", "circuits", "pucs")}})

    @staticmethod
    def fields_of(document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the stored fields under their present names: journals contain the reason as ``words``."""
        return rename_key(document, "words", "reason")

    def document(self) -> dict[str, Any]:
        """Return the fields under their stored names."""
        return rename_key(asdict(self), "reason", "words")


@dataclass(frozen=True)
class CircuitSender:
    """Server or accelerator (``unit``) and transmitter (``module``) of a circuit."""

    unit: str
    module: str


@dataclass
class FadeCounts:
    """Counters of light fades, failures and false alarms.

    Attributes:
        fades: Number of times a circuit was dark for a while and recovered without action.
        verdicts: Number of failures found.
        false_alarms: Number of failures after which the light came back without a repair.
    """

    fades: int = 0
    verdicts: int = 0
    false_alarms: int = 0


@dataclass
class FailureJudge:
    """Collects observations of detectors and decides when a server or path has failed.

    Attributes:
        senders: Circuits in service and their senders.
        fade_s: Longest darkness of a single fibre that is not yet a failure.
        counters: Counts of fades, failures and false alarms.
        searched: Circuits whose polarization is being searched; their darkness is ignored.
    """

    senders: Mapping[str, CircuitSender]
    fade_s: float
    counters: FadeCounts = field(default_factory=FadeCounts)
    searched: Collection[str] = ()
    _dark: dict[str, dict[str, Evidence]] = field(default_factory=dict)
    _missing: dict[str, Evidence] = field(default_factory=dict)
    _reported: set[str] = field(default_factory=set)
    _explained: set[str] = field(default_factory=set)

    def watch(self, senders: Mapping[str, CircuitSender]) -> None:
        """Watch the given circuits from now on; forget observations of all others."""
        self.senders = senders
        self._dark = {name: observations for name, observations in self._dark.items() if name in senders}
        # A failed unit stays failed until it is back or repaired, even if a spare has replaced it.
        self._reported &= set(senders) | {sender.unit for sender in senders.values()} | set(self._missing)
        self._explained &= set(senders)

    def add(self, evidence: Evidence) -> None:
        """Add an observation of a detector."""
        name = evidence.subject
        if evidence.observation == "dark" and name in self.senders:
            # The first observation counts: it is the closest to the fault.
            self._dark.setdefault(name, {}).setdefault(evidence.detector, evidence)
        # Only the detector that saw the darkness can take it back: another one may have missed it.
        elif evidence.observation == "lit" and evidence.detector in self._dark.get(name, {}):
            del self._dark[name][evidence.detector]
            if not self._dark[name]:
                del self._dark[name]
                self._explained.discard(name)
                if name in self._reported or self.senders[name].unit in self._reported:
                    self._reported -= {name, self.senders[name].unit}
                    self.counters.false_alarms += 1
                elif name not in self.searched:
                    self.counters.fades += 1
        elif evidence.observation == "gone":
            self._missing.setdefault(name, evidence)
        elif evidence.observation == "back":
            self._missing.pop(name, None)
            self._reported.discard(name)

    def next_verdict(self, now_s: float) -> FailureVerdict | None:
        """Return the next failure that the observations prove, or ``None``; each is reported once."""
        for unit, evidence in self._missing.items():
            if unit not in self._reported:
                reason = f"{unit} is gone: {evidence.reason or evidence.detector}"
                return self._report_failure("unit", unit, "process", reason, [evidence], (), now_s)
        for unit, circuits in self._circuits_by_unit().items():
            if unit not in self._reported and self._failed_together(unit, circuits):
                observations = self._evidence_in_order(circuits)
                reason = f"all light of {unit} went out together ({len(circuits)} fibres)"
                return self._report_failure("unit", unit, "light", reason, observations, circuits, now_s)
        return None

    def unexplained_circuits(self, now_s: float) -> list[str]:
        """Return circuits that were dark for longer than a fade. Check their senders, then call :meth:`explain`."""
        return [name for name, due_s in self._waiting().items() if now_s >= due_s]

    def _waiting(self) -> dict[str, float]:
        return {
            name: self._evidence_in_order([name])[0].at_s + self.fade_s
            for name in self._dark
            if name not in self._reported
            and name not in self._explained
            and self.senders[name].unit not in self._reported
            if name not in self.searched
        }

    def explain(self, circuit: str, sends: bool | None, reason: str, now_s: float) -> FailureVerdict:
        """Return the failure of a circuit that stays dark.

        ``sends`` is whether the transmitter reports that it sends light, or ``None`` if it does not answer.
        """
        self._explained.add(circuit)
        reports, unit = self._evidence_in_order([circuit]), self.senders[circuit].unit
        if sends:
            text = f"{circuit} is dark, but its transmitter reports light ({reason}): fibre, PUC or port"
            return self._report_failure("path", circuit, "light", text, reports, (circuit,), now_s)
        state = "does not answer" if sends is None else "sends no light"
        text = f"{circuit} is dark, and its transmitter {state} ({reason})"
        return self._report_failure("unit", unit, "light", text, reports, (circuit,), now_s)

    def explain_receiver(self, circuit: str, unit: str, reason: str, now_s: float) -> FailureVerdict:
        """Return the failure of a circuit whose light leaves the mesh and does not arrive at the receiver of a unit."""
        self._explained.add(circuit)
        text = f"the light of {circuit} leaves the mesh, but {reason}: fibre behind the mesh or receiver"
        reports = self._evidence_in_order([circuit])
        return self._report_failure("unit", unit, "light", text, reports, (circuit,), now_s)

    def trust_receiver(self, circuit: str) -> None:
        """Count a circuit as lit, because its receiver has its light: the detector that saw it dark is wrong."""
        self._dark.pop(circuit, None)
        self._explained.discard(circuit)
        self.counters.fades += 1

    def next_due_s(self) -> float:
        """Return the time when the next dark circuit counts as failed; infinity if no circuit is dark."""
        return min(self._waiting().values(), default=math.inf)

    def forget(self, name: str) -> None:
        """Forget observations of a server, an accelerator or a circuit, which then counts as healthy."""
        self._missing.pop(name, None)
        self._reported.discard(name)
        for circuit in [other for other, senders in self.senders.items() if name in (other, senders.unit)]:
            self._dark.pop(circuit, None)
            self._explained.discard(circuit)

    def forget_light(self) -> None:
        """Forget which circuits are dark; call this after the mesh was off."""
        self._reported -= set(self._dark) | {self.senders[name].unit for name in self._dark if name in self.senders}
        # Ended processes have nothing to do with light, so they stay reported.
        self._reported |= set(self._missing)
        self._dark.clear()
        self._explained.clear()

    @property
    def dark(self) -> tuple[str, ...]:
        """Circuits that carry no light now."""
        return tuple(self._dark)

    def _circuits_by_unit(self) -> dict[str, tuple[str, ...]]:
        result: dict[str, tuple[str, ...]] = {}
        for name, senders in self.senders.items():
            result[senders.unit] = (*result.get(senders.unit, ()), name)
        return result

    def _failed_together(self, unit: str, circuits: Iterable[str]) -> bool:
        circuits = tuple(name for name in circuits if name not in self.searched)
        modules = {self.senders[name].module for name in circuits}
        # A single dark fibre may be a fade or a broken fibre, so it never convicts a server (docs/decisions/0019).
        if len(modules) < 2 or any(name not in self._dark for name in circuits):
            return False
        first_reports = [min(self._dark[name].values(), key=lambda report: report.at_s) for name in circuits]
        # Each light went out between the last check with light and the first one without.
        return max(first.since_s for first in first_reports) <= min(first.at_s for first in first_reports) + TOGETHER_S

    def _evidence_in_order(self, circuits: Iterable[str]) -> list[Evidence]:
        reports = [report for name in circuits for report in self._dark.get(name, {}).values()]
        return sorted(reports, key=lambda report: report.reported_s)

    def _report_failure(
        self,
        suspect: Literal["unit", "path"],
        name: str,
        cause: Literal["light", "process"],
        description: str,
        reports: list[Evidence],
        circuits: tuple[str, ...],
        now_s: float,
    ) -> FailureVerdict:
        # With these names recorded, each failure leads to one verdict only.
        self._reported |= {name, *circuits}
        self.counters.verdicts += 1
        detectors = tuple(dict.fromkeys(report.detector for report in reports))
        since_s = min((report.since_s for report in reports), default=now_s)
        return FailureVerdict(suspect, name, cause, description, since_s, now_s, detectors, circuits)
