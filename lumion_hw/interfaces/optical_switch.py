"""Interface of an optical matrix switch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class SwitchPorts:
    """Ports of a switch, as numbered on its panel."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class OpticalSwitch(Protocol):
    """A switch that connects each input to at most one output. Thread-safe; every setting is read back.

    Calls return when the light has switched. Opening and closing do not change any connection.
    """

    @property
    def ports(self) -> SwitchPorts:
        """Ports of the switch."""

    @property
    def model(self) -> str:
        """Model name that the instrument reports."""

    @property
    def serial(self) -> str:
        """Serial number that the instrument reports."""

    def connections(self) -> Mapping[int, int]:
        """Return the present connections as a mapping from input port to output port."""

    def connect(self, connections: Mapping[int, int]) -> None:
        """Connect input ports (keys) to output ports (values). All other connections stay.

        Raises:
            ConfigError: A port does not exist, or an output is named twice; nothing was changed.
            BusyError: A port belongs to another connection; nothing was changed. Disconnect it first.
            DeviceError: The switch refuses the command.
            VerifyError: The connections read back differ.
        """

    def disconnect(self, inputs: Collection[int]) -> None:
        """Disconnect these inputs; inputs that are not connected are ignored. Raises the errors of :meth:`connect`."""

    def set_connections(self, connections: Mapping[int, int]) -> None:
        """Make these connections and remove all others. Raises the errors of :meth:`connect` except ``BusyError``."""

    def close(self) -> None:
        """Release the link; idempotent. The connections stay."""
