"""The optical matrix switch: any of its inputs to any of its outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class SwitchPorts:
    """The ports of a switch, by the numbers on its panel.

    Attributes:
        inputs: Ports at which light enters. Most switches pass it in both directions all the same.
        outputs: Ports at which it leaves.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class OpticalSwitch(Protocol):
    """A switch that joins inputs with outputs, each with one at most. Thread-safe; every set is read back.

    A set returns once the light has followed. Opening and closing leave all connections as they are.
    """

    @property
    def ports(self) -> SwitchPorts:
        """The ports there are."""

    @property
    def model(self) -> str:
        """Model as the instrument says it."""

    @property
    def serial(self) -> str:
        """Serial number as the instrument says it."""

    def connections(self) -> Mapping[int, int]:
        """Ask for the connections in force: output by input."""

    def connect(self, connections: Mapping[int, int]) -> None:
        """Join inputs with outputs; what is joined otherwise stays.

        Args:
            connections: Output by input.

        Raises:
            ConfigError: There is no such port, or an output is named twice; nothing was changed.
            BusyError: A port is part of another connection; nothing was changed. Disconnect it first.
            DeviceError: The switch refuses.
            VerifyError: Other connections are in force.
        """

    def disconnect(self, inputs: Collection[int]) -> None:
        """Part these inputs from their outputs; those that are not connected stay so. Raises as :meth:`connect`."""

    def set_connections(self, connections: Mapping[int, int]) -> None:
        """Make these connections and part all others. Raises as :meth:`connect`, but for ``BusyError``."""

    def close(self) -> None:
        """Release the link; idempotent. The connections stay."""
