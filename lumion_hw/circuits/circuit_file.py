"""Files that list the circuits that are wanted on a bench (``lumion apply``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from lumion_hw.bench.file.checked_yaml import load_yaml
from lumion_hw.bench.file.checks import Check, Uses, did_you_mean
from lumion_hw.bench.file.fields import ModuleName, Number, StrictModel, Version, WholeNumber
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.circuits.plan.difference import OnRefusal
from lumion_hw.circuits.plan.request import CircuitRequest, Polarizations
from lumion_hw.files import AnyPath

MAX_CIRCUITS = 1024


def _pair(value: object) -> object:
    """Return a text such as ``sfp-a:sfp-b`` as a mapping; leave all other values as they are."""
    if not isinstance(value, str):
        return value
    source, colon, target = value.partition(":")
    if not (source and colon and target):
        raise ValueError(f"expected two modules such as sfp-a:sfp-b, found {value[:60]!r}")
    return {"source": source, "target": target}


class _CircuitModel(StrictModel):
    """One circuit, with the keys of a request."""

    source: ModuleName = Field(description="Device name of the transmitting module.")
    target: ModuleName = Field(description="Device name of the receiving module.")
    both: bool = Field(False, description="Whether to connect the opposite direction, too.")
    polarization: Polarizations = Field("auto", description="Number of polarizations of the signal.")
    min_margin_db: Number = Field(0.0, ge=0.0, lt=1e3, description="Smallest margin at the receiver, in dB.")
    max_loss_db: Number | None = Field(None, ge=0.0, description="Largest predicted loss of the mesh, in dB.")
    max_hops: WholeNumber | None = Field(None, ge=1, description="Largest number of PUCs on the path.")
    priority: WholeNumber = Field(0, ge=-1000, le=1000, description="Circuits of higher priority are routed first.")
    exclusive: bool = Field(False, description="Whether no other circuit may use a PUC of this one.")
    lease_s: Number | None = Field(None, gt=0.0, description="Duration of the circuit, in seconds.")

    def requests(self) -> tuple[CircuitRequest, ...]:
        """Return the circuit, and that of the opposite direction if it is wanted."""
        request = CircuitRequest(**self.model_dump(exclude={"both"}))
        return (request, request.reverse()) if self.both else (request,)


class CircuitFileModel(StrictModel):
    """A circuit file, version 1."""

    version: Version
    on_refusal: OnRefusal = Field("refuse_all", description="What to do if a circuit cannot be set up.")
    circuits: tuple[Annotated[_CircuitModel, BeforeValidator(_pair)], ...] = Field(
        max_length=MAX_CIRCUITS, description="All circuits that are wanted; others are disconnected."
    )

    def checks(self, devices: Mapping[str, Any]) -> Iterator[Check]:
        """Yield names that the bench does not have, and modules that are used twice."""
        senders, receivers = Uses(), Uses()
        for number, circuit in enumerate(self.circuits):
            path = ("circuits", number)
            for key, name in (("source", circuit.source), ("target", circuit.target)):
                if name not in devices:
                    found = f"found {name!r}{did_you_mean(name, list(devices))}"
                    yield Check((*path, key), f"expected the name of a module of the bench, {found}")
            for request in circuit.requests():
                yield from senders.claim(request.source, path, f"transmitter of {request.source}")
                yield from receivers.claim(request.target, path, f"receiver of {request.target}")


@dataclass(frozen=True)
class WantedCircuits:
    """The circuits that are wanted on a bench, and what happens if one cannot be set up."""

    requests: tuple[CircuitRequest, ...]
    on_refusal: OnRefusal = "refuse_all"


def load_circuits(path: AnyPath, bench: BenchModel) -> WantedCircuits:
    """Read and check a circuit file; docs/circuits.md describes its format.

    Raises:
        ConfigError: The file cannot be read or has mistakes; the message lists all with line and column.
    """
    hint = "docs/circuits.md has an example."
    model = load_yaml(path, "circuit file", CircuitFileModel, hint, lambda model: model.checks(bench.devices))
    requests = tuple(request for circuit in model.circuits for request in circuit.requests())
    return WantedCircuits(requests, model.on_refusal)
