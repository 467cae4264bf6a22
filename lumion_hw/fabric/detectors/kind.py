"""Interface of failure detectors, and creation of the detectors that a bench file names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import ConfigDict, ValidationError

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.file.fields import StrictModel
from lumion_hw.bench.file.model import FabricModel
from lumion_hw.bench.file.registered import registrations
from lumion_hw.circuits import PlannedCircuit
from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError
from lumion_hw.fabric.evidence import Evidence, Observation

GROUP = "lumion_hw.detectors"
"""Group of entry points under which detectors are registered."""


class DetectorOptions(StrictModel):
    """Options common to all failure detectors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    detector: str


@dataclass(frozen=True)
class WatchTargets:
    """Circuits, servers and accelerators that failure detectors watch.

    Attributes:
        circuits: Circuits in service, including those of spares.
        units: Servers and accelerators in service.
        budgeted_photocurrent_ma: Photocurrent that the link budget predicts, for each circuit with a photodiode at its
            output.
    """

    bench: Bench
    circuits: tuple[PlannedCircuit, ...]
    units: tuple[str, ...]
    budgeted_photocurrent_ma: Mapping[str, float] = field(default_factory=dict)


class Detector(Protocol):
    """A failure detector. Methods may raise device errors; call them from one thread at a time.

    Attributes:
        name: Name of the detector in its observations.
        period_s: Time between two polls, for detectors that do not block.
        is_blocking: Whether :meth:`poll` waits for an observation or the time-out.
    """

    name: str
    period_s: float
    is_blocking: bool

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> Detector:
        """Return the detector for an entry of a bench file. Raises pydantic's ``ValidationError``."""

    def start(self, watched: WatchTargets) -> None:
        """Watch the given circuits, servers and accelerators from now on instead of earlier ones."""

    def poll(self, timeout_s: float) -> Sequence[Evidence]:
        """Return new observations. A blocking detector waits for one until ``timeout_s`` is over."""

    def close(self) -> None:
        """Stop watching; idempotent."""


class PollingDetector:
    """Base class of detectors that do not block."""

    name = ""
    is_blocking = False
    period_s = 0.01
    _clock: Clock

    def start(self, watched: WatchTargets) -> None:
        """Watch the given circuits, servers and accelerators from now on."""
        self._clock = watched.bench.clock

    def close(self) -> None:
        """Stop watching; idempotent."""

    def _evidence(
        self, observation: Observation, subject: str, since_s: float | None = None, reason: str = ""
    ) -> Evidence:
        """Return an observation made now.

        ``since_s`` is the time of the last healthy check.
        """
        now_s = self._clock.now()
        return Evidence(self.name, observation, subject, now_s if since_s is None else since_s, now_s, now_s, reason)


def create_detectors(fabric: FabricModel) -> list[Detector]:
    """Create the failure detectors that a bench file names.

    Raises:
        ConfigError: A detector is not registered, cannot be loaded, or has wrong options.
    """
    kinds = registrations(GROUP)
    detectors: list[Detector] = []
    for number, entry in enumerate(fabric.detectors):
        where = f"fabric.detectors[{number}]"
        sources = kinds.get(entry.detector)
        if not sources:
            raise ConfigError(
                f"{where}: there is no detector {entry.detector!r}", hint=f"Detectors: {', '.join(kinds)}."
            )
        # Two packages use the same name, and choosing one of them would be a guess.
        if len(sources) > 1:
            listed = "; ".join(map(str, sources))
            raise ConfigError(f"{where}: {entry.detector!r} is registered {len(sources)} times: {listed}")
        try:
            detectors.append(sources[0].entry.load().from_options(entry.model_dump()))
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()
            )
            raise ConfigError(f"{where} ({entry.detector}): {problems}") from error
        except (ImportError, AttributeError) as error:  # third-party code
            raise ConfigError(f"{where}: {sources[0]} cannot be used: {error}") from error
    return detectors
