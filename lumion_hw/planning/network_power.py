"""Power of a network of packet switches and of circuit switches between the same accelerators.

Each rail connects one port of every server. A rail is a non-blocking folded Clos network: with T tiers each endpoint
needs 2T - 1 switch ports. Packet switches need a transceiver for each of these ports, circuit switches need none. The
transceiver of the accelerator itself exists in both networks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from lumion_hw.bench.file.checks import Check
from lumion_hw.bench.file.fields import StrictModel, Version, WholeNumber
from lumion_hw.planning.stated import StatedFactor, StatedNumber, Text

MAX_TIERS = 4


class SwitchModel(StrictModel):
    """A switch of one of the compared networks."""

    ports: WholeNumber = Field(ge=2, le=65_536, description="Duplex ports.")
    switch_w: StatedNumber = Field(description="Power of a switch without transceivers, in watts.")


class PublishedPowerModel(StrictModel):
    """A published ratio of the powers."""

    ratio: StatedFactor = Field(description="Power of the packet network over that of the circuit network.")


class PowerFileModel(StrictModel):
    """A power file, version 1."""

    version: Version
    title: Text = Field(description="What is compared.")
    accelerators: tuple[Annotated[WholeNumber, Field(ge=2, le=10_000_000)], ...] = Field(
        min_length=1, max_length=32, description="Sizes of the cluster for which the powers are computed."
    )
    rails: WholeNumber = Field(ge=1, le=64, description="Rails: ports of a server, each in a network of its own.")
    transceiver_w: StatedNumber = Field(description="Power of one transceiver, in watts.")
    packet: SwitchModel = Field(description="The packet switch.")
    circuit: SwitchModel = Field(description="The circuit switch.")
    published: PublishedPowerModel = Field(description="The published ratio.")

    def checks(self) -> Iterator[Check]:
        """Yield inconsistencies between the parts of the file."""
        for number, count in enumerate(self.accelerators):
            if count % self.rails:
                yield Check(("accelerators", number), f"expected a multiple of {self.rails} rails, found {count}")
                continue
            for kind, switch in (("packet", self.packet), ("circuit", self.circuit)):
                if tiers_needed(count // self.rails, switch.ports) is None:
                    message = f"{count} accelerators need more than {MAX_TIERS} tiers of switches with this many ports"
                    yield Check((kind, "ports"), message, ("accelerators", number))


@dataclass(frozen=True)
class PowerRow:
    """Power of both networks for one size of the cluster, in watts per accelerator port.

    Attributes:
        packet_w: Packet switches and their transceivers.
        circuit_w: Circuit switches.
        host_w: Transceiver of the accelerator, needed in both networks.
        ratio: Packet over circuit network, transceivers of the accelerators left out.
        ratio_with_hosts: The same, with the transceivers of the accelerators.
        free_switch_ratio: The same, with circuit switches that take no power: the largest possible ratio.
    """

    accelerators: int
    packet_tiers: int
    circuit_tiers: int
    packet_w: float
    circuit_w: float
    host_w: float
    ratio: float
    ratio_with_hosts: float
    free_switch_ratio: float


def load_power_file(path: str | os.PathLike[str]) -> PowerFileModel:
    """Read and check a power file; docs/planning.md describes its format.

    Raises:
        ConfigError: The file cannot be read or has mistakes; the message lists all with line and column.
    """
    from lumion_hw.bench.file.checked_yaml import load_yaml

    return load_yaml(path, "power file", PowerFileModel, "docs/planning.md has an example.", PowerFileModel.checks)


def tiers_needed(endpoints: int, ports: int) -> int | None:
    """Return the tiers of a non-blocking folded Clos network, or ``None`` if it needs more than MAX_TIERS.

    T tiers of switches with k ports connect 2 (k/2)^T endpoints; a single switch connects k.
    """
    return next((tiers for tiers in range(1, MAX_TIERS + 1) if endpoints <= 2 * (ports / 2) ** tiers), None)


def compare_power(model: PowerFileModel) -> tuple[PowerRow, ...]:
    """Return the powers for each size of the cluster in a power file that has passed its checks."""
    rows, host_w = [], model.transceiver_w.value
    for count in model.accelerators:
        packet_tiers, circuit_tiers = (
            tiers_needed(count // model.rails, switch.ports) or MAX_TIERS for switch in (model.packet, model.circuit)
        )
        packet_w = (2 * packet_tiers - 1) * (model.packet.switch_w.value / model.packet.ports + host_w)
        circuit_w = (2 * circuit_tiers - 1) * model.circuit.switch_w.value / model.circuit.ports
        ratios = (packet_w / circuit_w, (packet_w + host_w) / (circuit_w + host_w), (packet_w + host_w) / host_w)
        rows.append(PowerRow(count, packet_tiers, circuit_tiers, packet_w, circuit_w, host_w, *ratios))
    return tuple(rows)
