"""Measured data: heater settings, source ports, monitor readings, and their noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real, Single
from lumion_hw.mesh.layout.topology import MeshTopology

SLOW_TAUS_S = (6e-3, 20e-3, 60e-3, 0.2)
"""Time constants in s of slow heat; the last one only for crosstalk through the submount."""
OWN_TAUS = 3
"""Number of time constants with which a heater's own phase settles."""


def late_powers(currents_ma: Real, time_s: Real, wait_s: float) -> Single:
    """Return the slow heat left by earlier settings (``Observations.late``), shape ``(settings, heaters, T, 3)``.

    T is the number of time constants :data:`SLOW_TAUS_S`. ``currents_ma`` are the currents of all settings, starting
    from heaters that were off; ``time_s`` are the times of the readings. Heaters are set ``wait_s`` before the
    reading.
    """
    powers = (currents_ma**2)[:, :, None] ** np.arange(1, 4)
    before = followed = np.zeros((powers.shape[1], len(SLOW_TAUS_S), 3))
    # Single precision is enough for a correction of a per cent, and still half a gigabyte on a large mesh.
    late = np.zeros((len(powers), *followed.shape), np.float32)
    since_s = np.diff(time_s, prepend=time_s[:1])
    waited_s = np.minimum(since_s, wait_s)
    remaining, moved = (
        np.exp(-lasted_s[:, None] / np.array(SLOW_TAUS_S))[..., None] for lasted_s in (since_s - waited_s, waited_s)
    )
    for number, driven in enumerate(powers[:, :, None]):
        followed = before + (followed - before) * remaining[number]
        followed = driven + (followed - driven) * moved[number]
        late[number], before = followed - driven, driven
    return late


@dataclass(frozen=True, eq=False)
class Observations:
    """N settings and their readings.

    Saturated readings are lower bounds; missing ones contain no information.

    Attributes:
        currents_ma: Shape ``(N, heaters)``; heater currents as set, index 2·PUC + arm (upper arm first).
        source: Shape ``(N,)``; port of the light; for a source with two ports, the first.
        monitors: Ports of the M monitors.
        reading_ma: Shape ``(N, M)``; photocurrents, NaN for saturated and missing readings.
        saturated: Shape ``(N, M)``; which readings were saturated.
        detuning_hz: Shape ``(N,)`` or one number; stated frequency of the light minus the reference.
        late: Shape ``(N, heaters, T, 3)``; slow heat left by earlier settings; ``None`` for settings at rest. The
            values are the second, fourth and sixth powers of the currents in mA, averaged over the past with each time
            constant in :data:`SLOW_TAUS_S`, minus the present values.
    """

    currents_ma: Real
    source: NDArray[np.int64]
    monitors: tuple[int, ...]
    reading_ma: Real
    saturated: NDArray[np.bool_]
    detuning_hz: Real | float = 0.0
    late: Single | None = None

    @property
    def detunings_hz(self) -> Real:
        """Detuning of every setting, shape ``(settings,)``."""
        return np.broadcast_to(np.asarray(self.detuning_hz, dtype=np.float64), len(self))

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, chosen: slice | NDArray[np.int64] | NDArray[np.bool_]) -> Observations:
        return Observations(
            self.currents_ma[chosen],
            self.source[chosen],
            self.monitors,
            self.reading_ma[chosen],
            self.saturated[chosen],
            self.detunings_hz[chosen],
            None if self.late is None else self.late[chosen],
        )

    def __add__(self, other: Observations) -> Observations:
        # Different monitors would mix up columns silently.
        if self.monitors != other.monitors:
            raise ValueError(f"readings of different monitors, {self.monitors} and {other.monitors}, cannot be joined")
        return Observations(
            np.concatenate([self.currents_ma, other.currents_ma]),
            np.concatenate([self.source, other.source]),
            self.monitors,
            np.concatenate([self.reading_ma, other.reading_ma]),
            np.concatenate([self.saturated, other.saturated]),
            np.concatenate([self.detunings_hz, other.detunings_hz]),
            None if self.late is None or other.late is None else np.concatenate([self.late, other.late]),
        )


@dataclass(frozen=True)
class NoiseModel:
    """Noise of one monitor reading: σ² = (relative · value)² + floor².

    Attributes:
        relative: Relative standard deviation.
        floor_ma: Additive standard deviation, including the step of the converter.
    """

    relative: float
    floor_ma: float

    def sigma_ma(self, current_ma: Real) -> Real:
        """Return the standard deviation of readings of this size in mA."""
        sigma: Real = np.hypot(self.relative * current_ma, self.floor_ma)
        return sigma


def select_monitors(
    observations: Observations, monitors: tuple[int, ...], dark_ma: Mapping[int, float]
) -> Observations:
    """Return the settings with the readings of some monitors only, minus their dark level."""
    columns = [observations.monitors.index(port) for port in monitors]
    return replace(
        observations,
        monitors=monitors,
        reading_ma=observations.reading_ma[:, columns] - [dark_ma.get(port, 0.0) for port in monitors],
        saturated=observations.saturated[:, columns],
    )


def only_reached(observations: Observations, mesh: MeshTopology, second_ports: Mapping[int, int]) -> Observations:
    """Return the observations without readings of monitors that no light of the source can reach.

    In square and triangular meshes light from a port reaches half of the ports. The others read stray light only, of
    which a model of the mesh knows nothing.

    Args:
        observations: Settings and readings.
        mesh: The mesh.
        second_ports: Second port of each source with two ports, by its first port.
    """
    reached = np.ones((len(observations), len(observations.monitors)), dtype=np.bool_)
    for source in np.unique(observations.source[observations.source >= 0]).tolist():
        ports = (source, second_ports.get(source, source))
        reached[observations.source == source] = [
            any(mesh.reaches(port, monitor) for port in ports) for monitor in observations.monitors
        ]
    if reached.all():
        return observations
    reading_ma = np.where(reached, observations.reading_ma, np.nan)
    return replace(observations, reading_ma=reading_ma, saturated=observations.saturated & reached)


def positions_in_run(all_readings: Observations, part: Observations) -> NDArray[np.int64]:
    """Return the numbers of the last settings of a run with heaters on, as many as ``part`` has."""
    return np.flatnonzero(all_readings.currents_ma.any(axis=1))[-len(part) :]


def replace_end(all_readings: Observations, part: Observations) -> Observations:
    """Return the observations of a run with ``part`` in place of its last settings with heaters on."""
    positions = positions_in_run(all_readings, part)
    currents, reading = all_readings.currents_ma.copy(), all_readings.reading_ma.copy()
    currents[positions], reading[positions] = part.currents_ma, part.reading_ma
    return replace(all_readings, currents_ma=currents, reading_ma=reading)
