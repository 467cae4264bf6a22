"""Model of a bandwidth file: a job, its accelerators, the fabrics to compare and the published factors."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from lumion_hw.bench.file.checks import Check
from lumion_hw.bench.file.fields import StrictModel, Version, WholeNumber
from lumion_hw.errors import ConfigError
from lumion_hw.planning.detour import TorusJob
from lumion_hw.planning.stated import StatedFactor, StatedNumber, StatedRate, StatedShare, StatedTime, Text

MAX_ACCELERATORS = 1024
MIN_SHARE = 0.001
_Lengths = Annotated[tuple[Annotated[WholeNumber, Field(ge=0, le=64)], ...], Field(min_length=1, max_length=3)]


class TrainingJobModel(StrictModel):
    """The job and one of its training steps."""

    accelerators: WholeNumber = Field(ge=2, le=MAX_ACCELERATORS, description="Accelerators of the job.")
    gradient_gb: StatedNumber = Field(description="Bytes that each accelerator reduces per step, in 10^9 bytes.")
    compute_s: StatedTime = Field(description="Time of a step without communication, in seconds.")
    overlap: StatedShare = Field(
        StatedShare(value=0.0),
        description="Fraction of compute_s during which communication can run, 0 to 1.",
    )


class AcceleratorPortsModel(StrictModel):
    """Ports of every accelerator."""

    ports: WholeNumber = Field(ge=1, le=64, description="Duplex ports.")
    port_gbps: StatedRate = Field(description="Data rate of a port in one direction, in 10^9 bits per second.")
    ports_gain: StatedFactor | None = Field(
        None, description="Rate of all ports together over the rate of one; by default the number of ports."
    )
    round_s: StatedTime = Field(StatedTime(value=3e-6), description="Fixed time of a round, in seconds.")


class TorusModel(StrictModel):
    """Fixed links: the rack is a torus, divided into boxes of equal size."""

    shape: _Lengths = Field(description="Lengths of the torus, one to three numbers.")
    box: _Lengths = Field(description="Lengths of the job's box.")
    layout: Literal["ring", "mesh"] = Field("ring", description="One ring, or rings along all axes at once.")
    failed: _Lengths = Field(description="Place of the accelerator that fails; the job has the box around it.")
    spare: _Lengths = Field(description="Place of the spare, in a box that no job uses.")
    other_jobs: bool = Field(True, description="Whether jobs use all other boxes.")

    def job(self) -> TorusJob:
        """Return the job on the torus."""
        return TorusJob(self.shape, self.box, self.layout, self.failed, self.spare, self.other_jobs)


class PacketSwitchModel(StrictModel):
    """A packet switch between all accelerators."""

    spare_share: StatedShare = Field(
        StatedShare(value=1.0),
        description="Fraction of its rate with which the spare is reached, 0.001 to 1.",
    )


class CircuitModel(StrictModel):
    """A fabric of circuits."""

    schedule: Literal["ring", "halving-doubling"] = Field("ring", description="Schedule of the all-reduce.")
    switching_s: StatedTime = Field(StatedTime(value=0.0), description="Dark time per change of circuits, in seconds.")


class GainModel(StatedFactor):
    """A published gain of the circuit fabric and its source."""

    of: Literal["step", "all-reduce"] = Field(description="Whether step times or all-reduce times are compared.")


class PublishedModel(StrictModel):
    """Published gains of the circuit fabric over another fabric."""

    against: Literal["torus", "packet_switch"] = Field(description="Fabric of the comparison.")
    gains: tuple[GainModel, ...] = Field((), max_length=16, description="The published gains.")


class BandwidthFileModel(StrictModel):
    """A bandwidth file, version 1."""

    version: Version
    title: Text = Field(description="What is compared.")
    accelerator: AcceleratorPortsModel = Field(description="Ports of every accelerator.")
    job: TrainingJobModel = Field(description="The job.")
    torus: TorusModel | None = Field(None, description="A torus with fixed links.")
    packet_switch: PacketSwitchModel | None = Field(None, description="A packet switch.")
    circuit: CircuitModel = Field(CircuitModel(), description="The circuit fabric.")
    published: PublishedModel = Field(description="Published gains of the circuit fabric.")

    def checks(self) -> Iterator[Check]:
        """Yield inconsistencies between the parts of the file."""
        count = self.job.accelerators
        if getattr(self, self.published.against) is None:
            message = f"expected a fabric of this file, found {self.published.against!r}, which the file does not have"
            yield Check(("published", "against"), message)
        if self.packet_switch is not None and (share := self.packet_switch.spare_share.value) < MIN_SHARE:
            yield Check(("packet_switch", "spare_share"), f"expected at least {MIN_SHARE:g}, found {share:g}")
        gain, ports = self.accelerator.ports_gain, self.accelerator.ports
        if gain is not None and gain.value > ports:
            yield Check(("accelerator", "ports_gain"), f"expected at most {ports}, the number of ports")
        if self.circuit.schedule == "halving-doubling" and count & (count - 1):
            yield Check(("job", "accelerators"), f"expected a power of two for halving-doubling, found {count}")
        if self.torus is not None:
            yield from self._torus_checks(self.torus)

    def _torus_checks(self, torus: TorusModel) -> Iterator[Check]:
        if min(torus.shape) < 2:
            yield Check(("torus", "shape"), "expected lengths of at least 2; leave axes of length 1 out")
            return
        try:
            torus.job()
        except ConfigError as error:
            yield Check(("torus",), " ".join(part for part in (f"{error.message}.", error.hint) if part))
            return
        if math.prod(torus.box) != self.job.accelerators:
            message = f"expected a box of {self.job.accelerators} accelerators, found {math.prod(torus.box)}"
            yield Check(("torus", "box"), message, ("job", "accelerators"))
        if self.accelerator.ports != 2 * len(torus.shape):
            message = f"expected 2 ports for each of {len(torus.shape)} axes, found {self.accelerator.ports}"
            yield Check(("accelerator", "ports"), message, ("torus", "shape"))


def load_bandwidth_file(path: str | os.PathLike[str]) -> BandwidthFileModel:
    """Read and check a bandwidth file; docs/planning.md describes its format.

    Raises:
        ConfigError: The file cannot be read or has mistakes; the message lists all with line and column.
    """
    from lumion_hw.bench.file.checked_yaml import load_yaml

    hint = "docs/planning.md has an example."
    return load_yaml(path, "bandwidth file", BandwidthFileModel, hint, BandwidthFileModel.checks)
