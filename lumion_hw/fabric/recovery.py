"""Result of a recovery from a failure of the fabric, as returned by the manager and as read from its journal."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lumion_hw.circuits import CircuitProof, CircuitRequest
from lumion_hw.fabric.evidence import FailureVerdict
from lumion_hw.fabric.spans import Span


@dataclass(frozen=True)
class Recovery:
    """Result of a recovery from a failure of the fabric.

    Attributes:
        failed: The server or accelerator that was replaced; empty if a path was replaced.
        spare: The server or accelerator that replaced it; empty if a path was replaced.
        spans: Durations of all phases, in order.
        proofs: Measurements of the new circuits, first by photodiodes and then by modules and meters.
        kept: Circuits that stayed connected, with unchanged heater currents.
    """

    verdict: FailureVerdict
    failed: str
    spare: str
    spans: tuple[Span, ...]
    proofs: tuple[CircuitProof, ...]
    kept: tuple[CircuitRequest, ...]

    def __repr__(self) -> str:
        """Return a one-line summary of the recovery."""
        action = f"{self.spare} for {self.failed}" if self.spare else f"another path: {self.verdict.name}"
        proven = sum(proof.proven for proof in self.proofs)
        duration_ms = self.spans[-1].at_ms if self.spans else 0.0
        return f"<Recovery: {action}, {proven} of {len(self.proofs)} proofs hold, {duration_ms:.0f} ms since the fault>"

    def _repr_html_(self) -> str:
        from lumion_hw.files.html import html_table

        action = f"{self.spare} for {self.failed}" if self.spare else f"another path: {self.verdict.name}"
        rows = [(span.name, span.bench_ms, span.at_ms, span.cpu_ms, span.source) for span in self.spans]
        headers = ("span", "bench ms", "since the fault ms", "CPU ms", "where the number is from")
        return html_table(f"Recovery: {action} ({self.verdict.reason})", headers, rows)


@dataclass(frozen=True)
class RecoveryStatus:
    """The last recovery of a fabric.

    Attributes:
        time_s: Time at which the new circuits were proven, in seconds since 1970.
        failed: Name of the replaced server or accelerator, or empty.
        spare: Name of the spare that replaced it, or empty.
        reason: Reason for the recovery.
        spans: Durations of the phases of the recovery, in order.
        circuit: Name of the circuit that got another path, or empty.
        is_confirmed: Whether modules and meters confirmed the new circuits; ``None`` before they were read.
    """

    time_s: float
    failed: str
    spare: str
    reason: str
    spans: tuple[Span, ...]
    circuit: str = ""
    is_confirmed: bool | None = None


def last_recovery(entries: Iterable[Mapping[str, Any]]) -> RecoveryStatus | None:
    """Return the last recovery in the entries of a fabric journal; ``None`` without a recovery."""
    return functools.reduce(recovery_after, entries, None)


def recovery_after(previous: RecoveryStatus | None, entry: Mapping[str, Any]) -> RecoveryStatus | None:
    """Return the last recovery after one more entry of a fabric journal; an entry of another version is skipped."""
    with contextlib.suppress(KeyError, TypeError, ValueError):
        if entry.get("outcome") == "done":
            failed, spare, reason, circuit = (
                str(entry.get(key, "")) for key in ("failed", "spare", "words", "circuit")
            )
            time_s = datetime.fromisoformat(entry["utc"]).timestamp()
            return RecoveryStatus(time_s, failed, spare, reason, _spans(entry), circuit)
        if entry.get("entry") == "confirmed" and previous is not None:
            spans = (*previous.spans, *_spans(entry))
            return dataclasses.replace(previous, spans=spans, is_confirmed=bool(entry["proven"]))
    return previous


def _spans(entry: Mapping[str, Any]) -> tuple[Span, ...]:
    return tuple(Span(**span) for span in entry.get("spans", ()))
