"""Interface of a mesh that accepts bar and cross states instead of heater currents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

PucState = Literal["bar", "cross"]
"""State of a unit cell."""


@dataclass(frozen=True)
class MeshStatesInfo:
    """Capabilities of a mesh that is set by states.

    Attributes:
        n_pucs: Number of unit cells, numbered from 0.
        atomic: Whether all cells change at the same instant.
        readback: Whether the present states can be read back.
        watchdog: Whether the mesh switches off when the host is silent for too long.
    """

    n_pucs: int
    atomic: bool = False
    readback: bool = False
    watchdog: bool = False


@dataclass(frozen=True)
class Submission:
    """Record of a configuration that was sent, whether or not the mesh has changed.

    Attributes:
        line: Text that was sent.
        greeting: Text that the mesh sent first.
        progress: Text that the mesh sent afterwards, up to 64 KiB, with unprintable characters escaped.
        progress_dropped: Number of further bytes, which were discarded.
        sent_s: Host clock when the configuration had been sent.
        closed_s: Host clock when the mesh closed the connection.
    """

    line: str
    greeting: str
    progress: str
    progress_dropped: int
    sent_s: float
    closed_s: float


class MeshStates(Protocol):
    """A mesh whose unit cells are set to bar or cross. Thread-safe.

    Phases cannot be set, and such a mesh cannot be calibrated.
    """

    @property
    def info(self) -> MeshStatesInfo:
        """Capabilities of the mesh."""

    def program_states(self, states: Mapping[int, PucState]) -> Submission:
        """Send one complete configuration. Unit cells that it does not contain become inactive.

        The mesh does not confirm that it has changed: check the light with a power meter or a transponder.

        Raises:
            LimitError: A unit cell does not exist; nothing was sent.
            ConfigError: An index or a state is not valid; nothing was sent.
            LinkError: The link failed; the message says whether the configuration may have been applied.
        """

    def close(self) -> None:
        """Release the link; idempotent. The unit cells keep their states."""
