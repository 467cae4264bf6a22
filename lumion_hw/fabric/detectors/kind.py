"""What a detector is, and how those of a bench file are found."""

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
from lumion_hw.errors import ConfigError
from lumion_hw.fabric.evidence import Evidence

GROUP = "lumion_hw.detectors"
"""Group of the entry points: the name is that of the detector, the object its class."""


class DetectorOptions(StrictModel):
    """Options of a detector that has none; others add fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    detector: str


@dataclass(frozen=True)
class WatchTargets:
    """What is to be watched.

    Attributes:
        bench: The bench.
        circuits: Circuits in service, those of spares that stand by among them.
        units: Servers and accelerators in service.
        promised_ma: Photocurrent that the budget of a circuit promises at its exit, by circuit, where a photodiode is.
    """

    bench: Bench
    circuits: tuple[PlannedCircuit, ...]
    units: tuple[str, ...]
    budgeted_photocurrent_ma: Mapping[str, float] = field(default_factory=dict)


class Detector(Protocol):
    """Notices failures. All methods are called from one thread at a time; errors of devices may come out of each.

    Attributes:
        name: Its name, as evidence bears it.
        period_s: Time between two looks, where it does not wait by itself.
        waits: :meth:`poll` waits for news and returns at once when there are some.
    """

    name: str
    period_s: float
    is_blocking: bool

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> Detector:
        """Return the detector of a bench file's entry. Raises ``ValidationError`` of pydantic."""

    def start(self, watched: WatchTargets) -> None:
        """Watch this from now on, in the place of what was watched before; all of it counts as well."""

    def poll(self, timeout_s: float) -> Sequence[Evidence]:
        """Return what is new; detectors that wait return nothing only after ``timeout_s``."""

    def close(self) -> None:
        """End it; idempotent."""


def create_detectors(fabric: FabricModel) -> list[Detector]:
    """Return the detectors of a bench file.

    Raises:
        ConfigError: One is not registered, cannot be loaded, or its options are wrong.
    """
    known = registrations(GROUP)
    found: list[Detector] = []
    for number, entry in enumerate(fabric.detectors):
        where = f"fabric.detectors[{number}]"
        sources = known.get(entry.detector)
        if not sources:
            raise ConfigError(
                f"{where}: there is no detector {entry.detector!r}", hint=f"There are {', '.join(known)}."
            )
        if len(sources) > 1:
            listed = "; ".join(map(str, sources))
            raise ConfigError(f"{where}: {entry.detector!r} is registered {len(sources)} times: {listed}")
        try:
            found.append(sources[0].entry.load().from_options(entry.model_dump()))
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
            raise ConfigError(f"{where} ({entry.detector}): {problems}") from error
        except (ImportError, AttributeError) as error:  # code of others
            raise ConfigError(f"{where}: {sources[0]} cannot be used: {error}") from error
    return found
