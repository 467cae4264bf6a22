"""A mesh that takes states of its unit cells and keeps currents and calibration to itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

PucState = Literal["bar", "cross"]
"""State of a unit cell."""


@dataclass(frozen=True)
class MeshStatesInfo:
    """What such a mesh can and cannot do.

    Attributes:
        n_pucs: Unit cells, numbered from 0.
        atomic: All cells change at one edge.
        readback: What is set can be read back.
        watchdog: It switches off by itself when the host is silent.
    """

    n_pucs: int
    atomic: bool = False
    readback: bool = False
    watchdog: bool = False


@dataclass(frozen=True)
class Submission:
    """A configuration that was sent. It is no proof that anything changed.

    Attributes:
        line: What was sent, as text.
        greeting: What the mesh said first.
        progress: What it said afterwards, up to 64 KiB, with everything but printable ASCII escaped.
        progress_dropped: Bytes it said beyond that.
        sent_s: Host clock when the configuration had been written.
        closed_s: Host clock when the mesh ended the exchange.
    """

    line: str
    greeting: str
    progress: str
    progress_dropped: int
    sent_s: float
    closed_s: float


class MeshStates(Protocol):
    """A mesh whose unit cells are set by state. Thread-safe: one configuration at a time.

    It is no :class:`~lumion_hw.interfaces.MeshController`: without heater currents there is nothing to calibrate and
    no phase to set.
    """

    @property
    def info(self) -> MeshStatesInfo:
        """What it can and cannot do."""

    def program_states(self, states: Mapping[int, PucState]) -> Submission:
        """Send one whole configuration; unit cells that are not named become inactive.

        Returns when the mesh has ended the exchange, which means *sent*: whether the light follows is for a power
        meter or a transponder to say. Nothing is ever sent twice by itself.

        Raises:
            LimitError: There is no such unit cell; nothing was sent.
            ConfigError: An index or a state is none; nothing was sent.
            LinkError: The message says whether the configuration may have been taken.
        """

    def close(self) -> None:
        """Release the link and leave the cells as they are; idempotent."""
