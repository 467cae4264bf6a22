"""Interface of a mesh that accepts bar and cross states but does not expose heater currents or calibration."""

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
    """Record of a configuration that was sent, which does not prove that anything changed.

    Attributes:
        line: Text that was sent.
        greeting: Text that the mesh sent first.
        progress: Text that the mesh sent afterwards, up to 64 KiB; other characters than printable ASCII are escaped.
        progress_dropped: Number of further bytes, which were discarded.
        sent_s: Host clock when the configuration had been written.
        closed_s: Host clock when the mesh closed the connection.
    """

    line: str
    greeting: str
    progress: str
    progress_dropped: int
    sent_s: float
    closed_s: float


class MeshStates(Protocol):
    """A mesh whose unit cells are set by state. Thread-safe: one configuration at a time.

    This is not a :class:`~lumion_hw.interfaces.MeshController`: without access to heater currents nothing can be
    calibrated and no phase can be set.
    """

    @property
    def info(self) -> MeshStatesInfo:
        """Capabilities of the mesh."""

    def program_states(self, states: Mapping[int, PucState]) -> Submission:
        """Send one complete configuration; unit cells not named in it become inactive.

        Returns when the mesh has closed the connection. This only means that the configuration was *sent*: check the
        light with a power meter or a transponder. A configuration is never repeated automatically.

        Raises:
            LimitError: A unit cell does not exist; nothing was sent.
            ConfigError: An index or a state is not valid; nothing was sent.
            LinkError: The link failed; the message says whether the configuration may have been applied.
        """

    def close(self) -> None:
        """Release the link; idempotent. The cells keep their states."""
