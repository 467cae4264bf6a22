"""Model of a phase file, the YAML file that lists the phases of a job and their circuits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from lumion_hw.bench.file.checks import Check, Uses
from lumion_hw.bench.file.fields import Name, Number, StrictModel, Version, WholeNumber

MAX_PHASES = 256
_Pair = Annotated[tuple[Name, ...], Field(min_length=2, max_length=2)]
_Ring = Annotated[tuple[Name, ...], Field(min_length=2, max_length=1024)]


class PhaseModel(StrictModel):
    """One phase of a job: its duration and its circuits, as pairs of device names of modules."""

    tag: Name = Field(description="Name of the phase.")
    duration_s: Number = Field(gt=0.0, le=86_400.0, description="Duration once its circuits are up, in seconds.")
    rings: tuple[_Ring, ...] = Field((), description="Rings: each module sends to the next, the last to the first.")
    pairs: tuple[_Pair, ...] = Field((), description="Pairs of modules that send to each other.")
    circuits: tuple[_Pair, ...] = Field((), description="Single circuits, from the first module to the second.")

    def placed(self) -> Iterator[tuple[tuple[str, str], tuple[str, int]]]:
        """Yield every circuit with its position in the file."""
        for number, ring in enumerate(self.rings):
            for pair in pairwise((*ring, ring[0])):
                yield pair, ("rings", number)
        for number, (a, b) in enumerate(self.pairs):
            yield (a, b), ("pairs", number)
            yield (b, a), ("pairs", number)
        for number, (a, b) in enumerate(self.circuits):
            yield (a, b), ("circuits", number)

    def all_circuits(self) -> tuple[tuple[str, str], ...]:
        """Return all circuits, sorted."""
        return tuple(sorted(pair for pair, _ in self.placed()))


class PhaseFileModel(StrictModel):
    """A phase file, version 1."""

    version: Version
    job: Name = Field(description="Name of the job.")
    iterations: WholeNumber = Field(10, ge=1, le=1_000_000, description="Number of iterations.")
    phases: tuple[PhaseModel, ...] = Field(min_length=1, max_length=MAX_PHASES, description="Phases in order.")

    def checks(self) -> Iterator[Check]:
        """Yield inconsistencies between the parts of the file."""
        tags = Uses()
        for number, phase in enumerate(self.phases):
            where = ("phases", number)
            yield from tags.claim(phase.tag, (*where, "tag"), f"tag {phase.tag!r}")
            senders, receivers = Uses(), Uses()
            for (a, b), path in phase.placed():
                if a == b:
                    yield Check((*where, *path), f"expected two modules, found {a!r} connected to itself")
                yield from senders.claim(a, (*where, *path), f"transmitter of {a}")
                yield from receivers.claim(b, (*where, *path), f"receiver of {b}")
        if not any(phase.all_circuits() for phase in self.phases):
            yield Check(("phases",), "expected a phase with circuits, found none")
