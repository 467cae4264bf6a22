"""What a calibration needs of a bench: one source lit at a time, heater currents, monitor readings."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.topology import MeshTopology


class Probe(Protocol):
    """Access to the mesh under calibration."""

    @property
    def mesh(self) -> MeshTopology:
        """The mesh."""

    @property
    def sources(self) -> tuple[int, ...]:
        """Ports where light can be injected; of two that are always lit together, the first."""

    @property
    def monitors(self) -> tuple[int, ...]:
        """Port of every monitor, in the order of :meth:`measure`."""

    @property
    def heater_max_ma(self) -> float:
        """Largest heater current allowed."""

    @property
    def current_step_ma(self) -> float:
        """Smallest step of a heater current; 0 if there is none or it is not known."""

    @property
    def monitor_step_ma(self) -> float:
        """Smallest photocurrent step."""

    def light(self, port: int | None) -> None:
        """Light one source and no other, or none."""

    def tunable_hz(self, port: int) -> tuple[float, float] | None:
        """Return the lowest and highest frequency to which a source can be tuned; ``None`` if it cannot."""

    def tune(self, port: int, frequency_hz: float) -> float:
        """Tune a source to the nearest frequency it can make, and return the frequency it then says it has.

        Raises:
            LimitError: Out of its range; nothing was changed.
            ConfigError: It cannot be tuned.
        """

    def launched_dbm(self, port: int) -> float:
        """Return the power at the fibre end before the mesh that a source is said to launch."""

    def measure(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        """Drive the heaters, wait until they have settled, and read all monitors.

        Args:
            currents_ma: Shape ``(2 n_pucs,)``; heater 2·PUC is the upper arm.

        Returns:
            Photocurrents in mA, shape ``(n_monitors,)``; NaN where a monitor is saturated.
        """

    def measure_many(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        """Measure settings one after the other with the light where it is: what :meth:`measure` says of each.

        Args:
            currents_ma: Shape ``(n, 2 n_pucs)``.

        Returns:
            Shape ``(n, n_monitors)``. The last setting stays driven.
        """

    def fibre_dbm(self) -> dict[int, float]:
        """Return the power that leaves each port into its fibre as the external meters see it, at the present setting.

        Ports without a meter, and those too dark to read, are missing.
        """

    def elapsed_s(self) -> float:
        """Return the bench time since the probe was opened."""

    def safe(self) -> None:
        """Switch heaters off and sources dark."""
