"""Result of a recovery from a failure of the fabric."""

from __future__ import annotations

from dataclasses import dataclass

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
