"""One thing that a run asked of the bench, and the answer: what the logbook keeps and the journal stores."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import CalibrationError

Real = NDArray[np.float64]
Kind = Literal["settings", "launched", "fibre", "tuned"]

DARK = -1
"""Source of settings without light."""


@dataclass(frozen=True, eq=False)
class LogbookEntry:
    """A question to the bench and its answer.

    Attributes:
        kind: ``settings``: a batch of settings, the answer photocurrents in mA, shape ``(n, M)``, NaN where saturated.
            ``launched``: the power a source is said to launch, the answer dBm, shape ``(1, 1)``.
            ``fibre``: what external meters see at the present setting, the answer port and dBm, shape ``(n, 2)``.
            ``tuned``: a source was tuned, the answer the frequency it then said it had, Hz, shape ``(1, 1)``.
        source: Port lit, launching or tuned, or :data:`DARK`.
        currents_ma: Settings of the batch, shape ``(n, 2E)``; no rows for the other kinds.
        answer: What the bench said.
        at_s: Bench time of the run when it was there.
        asked_hz: Frequency a source was to be tuned to.
    """

    kind: Kind
    source: int
    currents_ma: Real
    answer: Real
    at_s: float = 0.0
    asked_hz: float = 0.0

    def asks_as(self, other: LogbookEntry) -> bool:
        """Return whether both ask the same."""
        return (
            self.kind == other.kind
            and self.source == other.source
            and self.asked_hz == other.asked_hz
            and self.currents_ma.shape == other.currents_ma.shape
            and bool(np.allclose(self.currents_ma, other.currents_ma, rtol=0.0, atol=_SAME_MA))
        )

    def document(self) -> dict[str, Any]:
        """Return the entry as JSON can hold it; arrays keep every bit."""
        return {
            "kind": self.kind,
            "source": self.source,
            "at_s": self.at_s,
            "asked_hz": self.asked_hz,
            "currents_ma": _packed(self.currents_ma),
            "answer": _packed(self.answer),
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> LogbookEntry:
        """Return the entry of a document.

        Raises:
            CalibrationError: It is none.
        """
        try:
            kind: Kind = document["kind"]
            currents_ma, answer = _unpacked(document["currents_ma"]), _unpacked(document["answer"])
            at_s, asked_hz = float(document["at_s"]), float(document["asked_hz"])
            _check(kind, currents_ma, answer)
            return cls(kind, int(document["source"]), currents_ma, answer, at_s, asked_hz)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CalibrationError(f"no entry of a journal: {error!r}") from error


def _check(kind: Kind, currents_ma: Real, answer: Real) -> None:
    """Refuse an answer that no bench gives, as ``ValueError``."""
    if not np.isfinite(currents_ma).all():
        raise ValueError("currents_ma holds NaN or infinity")
    if np.isinf(answer).any():
        raise ValueError("answer is infinite")
    if currents_ma.ndim != 2 or answer.ndim != 2:
        raise ValueError(f"currents_ma has the shape {currents_ma.shape}, answer {answer.shape}")
    if kind == "settings" and len(currents_ma) != len(answer):
        raise ValueError(f"{len(answer)} answers to {len(currents_ma)} settings")


_SAME_MA = 1e-9
"""Currents that are the same but for the last bits of another processor's arithmetic."""


def _packed(array: Real) -> dict[str, Any]:
    return {"shape": list(array.shape), "float64": base64.b64encode(array.astype("<f8").tobytes()).decode()}


def _unpacked(document: Mapping[str, Any]) -> Real:
    flat = np.frombuffer(base64.b64decode(document["float64"], validate=True), dtype="<f8").astype(np.float64)
    return flat.reshape([int(size) for size in document["shape"]])


def times_s(entries: Sequence[LogbookEntry]) -> Real:
    """Return the bench time of every setting of a run: a batch takes all the time since what was asked before."""
    times, before_s = [], entries[0].at_s if entries else 0.0
    for entry in entries:
        if entry.kind == "settings":
            count = len(entry.currents_ma)
            times.append(before_s + (entry.at_s - before_s) * np.arange(1, count + 1) / count)
        before_s = entry.at_s
    return np.concatenate(times) if times else np.zeros(0)
