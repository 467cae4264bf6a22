"""Before anything is heated on purpose: how noisy the monitors are, and which sources and monitors are alive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibration.measure.logbook import Logbook
from calibration.model.noise import NoiseModel
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.record import Defect

_READINGS = 16
_LEAST_BACKGROUNDS = 3
_LEAST_LOOKS = 24
"""Settings in which every monitor is looked at: one may be dark by interference."""
_FURTHER_BACKGROUNDS = 6
"""For what is dark on all of these: of 28 monitors one is so by interference on every thirtieth chip."""
_LIVE_SIGMA = 10.0
LEAST_CONTRAST = 300.0
"""Contrast below which a sound monitor, with 15 dB less light than the usual one, is not told from a dead one."""
_BRIGHT_SIGMA = 1000.0
_LEAST_RELATIVE = 1e-4
_CUT_SHARE = 0.25
_DARK_SIGMA = 5.0
_DEAD_SOURCE = (
    "source at port {port}: no light reaches any monitor; not used. Check its module, its polarization, the fibre and "
    "the facet; PUCs next to it are measured from other ports"
)
_DEAD_MONITOR = (
    "monitor at port {port}: dark for every source; not used. Light may still leave there: check the diode and its "
    "amplifier, and prove circuits to this port by another meter"
)


@dataclass(frozen=True)
class Survey:
    """What is there to work with.

    Attributes:
        noise: Noise of a reading.
        sources: Ports whose light reaches a monitor, in ascending order.
        monitors: Ports whose monitors see light.
        defects: The others.
        dark_ma: What monitors read without light, by port; those of which readings tell that it is not nothing.
        contrast: Brightest reading of a usual monitor over the noise.
    """

    noise: NoiseModel
    sources: tuple[int, ...]
    monitors: tuple[int, ...]
    defects: tuple[Defect, ...]
    dark_ma: Mapping[int, float] = field(default_factory=dict)
    contrast: float = np.inf

    @property
    def is_dim(self) -> bool:
        """Whether there is so little light that what is dark need not be broken."""
        return self.contrast < LEAST_CONTRAST


def take_survey(logbook: Logbook, rng: np.random.Generator) -> Survey:
    """Look at the dark, then at every source on a few backgrounds; heaters move once per background.

    The first is the reference setting, all heaters off (:mod:`calibration.measure.reference`), the others are random.
    Only what is dark on some more of them as well is dead.

    Raises:
        CalibrationError: No source or no monitor is alive.
    """
    probe = logbook.probe
    heaters, ports = 2 * probe.mesh.n_pucs, sorted(probe.sources)
    logbook.light(None)
    dark = np.array([logbook.measure(np.zeros(heaters)) for _ in range(_READINGS)])
    floor_ma = float(np.hypot(dark_noise_ma(dark), probe.monitor_step_ma / np.sqrt(12.0)))
    level_ma = _dark_level_ma(dark, floor_ma)
    seen = np.zeros((len(ports), len(probe.monitors)))
    # Where light never turns back, no source reaches the monitors of its own side: dark there is no fault.
    within = np.array([any(probe.mesh.reaches(source, port) for source in ports) for port in probe.monitors])

    def look(currents_ma: NDArray[np.float64]) -> None:
        for index, source in enumerate(ports):
            logbook.light(source)
            seen[index] = np.maximum(seen[index], np.nan_to_num(logbook.measure(currents_ma) - level_ma, nan=np.inf))

    relative: list[float] = []
    backgrounds = max(_LEAST_BACKGROUNDS, -(-_LEAST_LOOKS // max(len(ports), 1)))
    squares = rng.uniform(0.0, 0.65 * probe.heater_max_ma**2, (backgrounds, heaters))
    squares[0] = 0.0
    for background, currents in enumerate(np.sqrt(squares)):
        look(currents)
        if background < _LEAST_BACKGROUNDS:
            if ports and seen[-1].max(initial=0.0) <= _LIVE_SIGMA * floor_ma:  # nothing scatters in the dark
                logbook.light(ports[int(np.argmax(seen.max(axis=1, initial=0.0)))])
                logbook.measure(currents)
            relative += scatter(np.array([logbook.measure(currents) for _ in range(_READINGS)]), floor_ma)
    least_ma = _LIVE_SIGMA * floor_ma
    for _ in range(_FURTHER_BACKGROUNDS):
        if min(seen[:, within].max(axis=axis, initial=0.0).min(initial=np.inf) for axis in (0, 1)) > least_ma:
            break
        look(np.sqrt(rng.uniform(0.0, 0.65 * probe.heater_max_ma**2, heaters)))
    sources = tuple(
        port for port, most_ma in zip(ports, seen.max(axis=1, initial=0.0), strict=True) if most_ma > least_ma
    )
    monitors = tuple(
        port for port, most_ma in zip(probe.monitors, seen.max(axis=0, initial=0.0), strict=True) if most_ma > least_ma
    )
    if not sources or not monitors:
        raise CalibrationError(
            f"{len(sources)} of {len(probe.sources)} sources and {len(monitors)} of {len(probe.monitors)} monitors "
            "show light",
            hint="Check that modules are enabled, fibres are plugged and polarization is aligned.",
        )
    defects = (
        *_dead("source", ports, sources, _DEAD_SOURCE),
        *_dead("monitor", list(compress(probe.monitors, within)), monitors, _DEAD_MONITOR),
    )
    noise = NoiseModel(max(float(np.sqrt(np.mean(np.square(relative or [0.0])))), _LEAST_RELATIVE), floor_ma)
    dark_ma = {port: level for port, level in zip(probe.monitors, level_ma.tolist(), strict=True) if level}
    contrast = float(np.median(seen[:, within].max(axis=0, initial=0.0)) / floor_ma) if floor_ma else np.inf
    return Survey(noise, sources, monitors, defects, dark_ma, contrast)


def _dead(
    element: Literal["source", "monitor"], ports: Sequence[int], alive: Sequence[int], text: str
) -> tuple[Defect, ...]:
    """Name the sources or monitors that are not alive."""
    return tuple(
        Defect(f"dead {element}", element, port, text.format(port=port)) for port in ports if port not in alive
    )


def _dark_level_ma(dark: NDArray[np.float64], floor_ma: float) -> NDArray[np.float64]:
    """Return what dark monitors read, shape ``(M,)``; 0 where that may be noise, or is cut off at zero."""
    mean = np.nan_to_num(np.nanmean(np.where(np.isfinite(dark).any(axis=0), dark, 0.0), axis=0))
    cut = (dark == 0.0).mean(axis=0) > _CUT_SHARE
    certain = np.abs(mean) > _DARK_SIGMA * floor_ma / np.sqrt(len(dark))
    level: NDArray[np.float64] = np.where(certain & ~cut, mean, 0.0)
    return level


def dark_noise_ma(dark: NDArray[np.float64]) -> float:
    """Return the noise of dark monitors, shape of the readings ``(n, M)``.

    Converters that cannot go below zero cut half of the noise off: then the mean square is half the variance.
    """
    if (dark == 0.0).mean() > _CUT_SHARE:
        return float(np.sqrt(2.0 * np.nanmedian((dark**2).mean(axis=0))))
    return float(np.nanmedian(dark.std(axis=0, ddof=1)))


def scatter(readings: NDArray[np.float64], floor_ma: float) -> list[float]:
    """Return the relative scatter of every monitor that is bright, read again and again."""
    mean, spread = readings.mean(axis=0), readings.std(axis=0, ddof=1)
    bright = mean > _BRIGHT_SIGMA * floor_ma
    relative: list[float] = (spread[bright] / mean[bright]).tolist()
    return relative
