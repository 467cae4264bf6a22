"""Before the sweeps: how noisy the monitors are, and which sources and monitors are alive. And what drifts meanwhile.

The survey comes first. Its reference setting, all heaters off, is measured again and again during a run. Light that
becomes weaker at all monitors together is the laser or the polarization in its fibre; light that is shared otherwise is
the mesh: its temperature, or heaters that age (docs/calibration.md, step 1, and 11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibration.measure.logbook import DARK, Logbook, LogbookEntry
from calibration.measure.probe import Probe
from calibration.model.observations import NoiseModel
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.record.calibration_record import Defect

_READINGS = 16
_LEAST_BACKGROUNDS = 3
# Settings in which every monitor is looked at: one may be dark by interference.
_LEAST_LOOKS = 24
# For what is dark on all of these: of 28 monitors one is so by interference on every thirtieth chip.
_FURTHER_BACKGROUNDS = 6
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
    """Sources and monitors that are alive, and the noise of a reading.

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

    The first is the reference setting, all heaters off (:mod:`calibration.measure.survey`), the others are random.
    Only what is dark on some more of them as well is dead.

    Raises:
        CalibrationError: No source or no monitor is alive.
    """
    probe = logbook.probe
    heaters, ports = 2 * probe.mesh.n_pucs, sorted(probe.sources)
    # Dark first, before a heater has moved: offsets of the amplifiers, and the noise without light.
    logbook.light_only_port(None)
    dark = np.array([logbook.measure(np.zeros(heaters)) for _ in range(_READINGS)])
    floor_ma = float(np.hypot(dark_noise_ma(dark), probe.monitor_step_ma / np.sqrt(12.0)))
    level_ma = _dark_level_ma(dark, floor_ma)
    seen = np.zeros((len(ports), len(probe.monitors)))
    # Where light never turns back, no source reaches the monitors of its own side: dark there is no fault.
    within = np.array([any(probe.mesh.reaches(source, port) for source in ports) for port in probe.monitors])

    def look(currents_ma: NDArray[np.float64]) -> None:
        for index, source in enumerate(ports):
            logbook.light_only_port(source)
            seen[index] = np.maximum(seen[index], np.nan_to_num(logbook.measure(currents_ma) - level_ma, nan=np.inf))

    relative: list[float] = []
    backgrounds = max(_LEAST_BACKGROUNDS, -(-_LEAST_LOOKS // max(len(ports), 1)))
    # Uniform in I², which is uniform in phase.
    squares = rng.uniform(0.0, 0.65 * probe.heater_max_ma**2, (backgrounds, heaters))
    # The first background is the reference setting.
    squares[0] = 0.0
    for background, currents in enumerate(np.sqrt(squares)):
        look(currents)
        if background < _LEAST_BACKGROUNDS:
            if ports and seen[-1].max(initial=0.0) <= _LIVE_SIGMA * floor_ma:  # nothing scatters in the dark
                logbook.light_only_port(ports[int(np.argmax(seen.max(axis=1, initial=0.0)))])
                logbook.measure(currents)
            relative += scatter(np.array([logbook.measure(currents) for _ in range(_READINGS)]), floor_ma)
    least_ma = _LIVE_SIGMA * floor_ma
    # Before it is called dead: of 50 chips one had a sound monitor that was dark on three settings by interference.
    for _ in range(_FURTHER_BACKGROUNDS):
        if min(seen[:, within].max(axis=axis, initial=0.0).min(initial=np.inf) for axis in (0, 1)) > least_ma:
            break
        look(np.sqrt(rng.uniform(0.0, 0.65 * probe.heater_max_ma**2, heaters)))
    noise = NoiseModel(max(float(np.sqrt(np.mean(np.square(relative or [0.0])))), _LEAST_RELATIVE), floor_ma)
    return _judged(probe, seen, within, noise, level_ma)


def _judged(
    probe: Probe,
    seen: NDArray[np.float64],
    within: NDArray[np.bool_],
    noise: NoiseModel,
    level_ma: NDArray[np.float64],
) -> Survey:
    """Return what is alive and what is dead by the most light seen from every source at every monitor.

    Args:
        probe: The mesh.
        seen: Most of all looks above the dark level, in mA; shape (sources in ascending order, monitors).
        within: Which monitors any source can reach.
        noise: Of the readings.
        level_ma: What dark monitors read.

    Raises:
        CalibrationError: No source or no monitor is alive.
    """
    ports, floor_ma = sorted(probe.sources), noise.floor_ma
    least_ma = _LIVE_SIGMA * floor_ma
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
    dark_ma = {port: level for port, level in zip(probe.monitors, level_ma.tolist(), strict=True) if level}
    # The usual monitor decides: one bright port says nothing about the rest.
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
    # An offset that could be noise is not taken off: that would add noise to every reading.
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


Real = NDArray[np.float64]

MOST_POWER_DB = 0.1
"""Change of a source's light that a run bears (assumption): five times what is taken for normal."""
MOST_SHAPE_SIGMA = 3.0
"""Change of its distribution over the monitors, rms in standard errors: some 10 mrad of every phase."""
# Readings are not compared more sharply than this, however quiet the meters are.
_LEAST_COMPARED = 0.003
_LEAST_REPEATED = 8


@dataclass(frozen=True)
class ReferenceChange:
    """How a reading differs from an earlier one at the same setting.

    Attributes:
        source: Port lit.
        power_db: Change of all monitors together.
        shape_sigma: Rms of what remains, in standard errors of the readings.
    """

    source: int
    power_db: float
    shape_sigma: float

    def words(self, most_power_db: float = MOST_POWER_DB) -> tuple[str, ...]:
        """Return what is out of bounds, a sentence each."""
        said = []
        if abs(self.power_db) > most_power_db:
            said.append(
                f"source at port {self.source}: {self.power_db:+.2f} dB at all monitors together: laser or "
                "polarization drift; align the polarization again, and look at the laser"
            )
        if self.shape_sigma > MOST_SHAPE_SIGMA:
            said.append(
                f"source at port {self.source}: the mesh shares its light otherwise, by {self.shape_sigma:.0f} "
                "standard errors: the temperature of the chip has moved, or heaters have"
            )
        return tuple(said)


def reference_change(source: int, before_ma: Real, now_ma: Real, noise: NoiseModel) -> ReferenceChange:
    """Return how a reading, shape ``(M,)``, differs from an earlier one."""
    # However quiet a meter is, what light and temperature usually do is no fault.
    noise = replace(noise, relative=max(noise.relative, _LEAST_COMPARED))
    seen = np.isfinite(before_ma) & np.isfinite(now_ma)
    before, now = before_ma[seen], now_ma[seen]
    if not before.sum() > 0.0:
        return ReferenceChange(source, 0.0, 0.0)
    weight = noise.sigma_ma(before) ** -2.0  # noise is relative: every bright monitor counts the same
    # One factor for all monitors is laser or polarization; what is left after it is the mesh.
    factor = max(float((weight * before * now).sum() / (weight * before**2).sum()), 1e-9)
    sigma = np.hypot(noise.sigma_ma(now), factor * noise.sigma_ma(before))
    shape = np.sqrt((((now - factor * before) / sigma) ** 2).sum() / max(len(now) - 1, 1))
    return ReferenceChange(source, 10.0 * float(np.log10(factor)), float(shape))


def reference_readings(entries: Sequence[LogbookEntry]) -> dict[tuple[int, float], list[Real]]:
    """Return all readings of the reference setting in the order taken, by source and the frequency it was tuned to.

    The frequency of a source that was not tuned is 0. The one tuned to last comes last.
    """
    readings: dict[tuple[int, float], list[Real]] = {}
    tuned_hz: dict[int, float] = {}
    for entry in entries:
        if entry.kind == "tuned":
            tuned_hz[entry.source] = entry.asked_hz
        single = entry.kind == "settings" and entry.source != DARK and len(entry.currents_ma) == 1
        if single and not entry.currents_ma.any():
            key = entry.source, tuned_hz.get(entry.source, 0.0)
            earlier = readings.pop(key, [])
            # Taken out and put in again: the frequency tuned to last comes last.
            readings[key] = [*earlier, entry.answer[0]]
    return readings


def reference_changes(
    entries: Sequence[LogbookEntry], sources: Sequence[int], noise: NoiseModel, but: Sequence[int] = ()
) -> list[ReferenceChange]:
    """Return the largest changes of the reference setting since its first reading, by source and frequency.

    Args:
        entries: What was asked of the mesh.
        sources: Ports of the sources to compare.
        noise: Noise of a reading.
        but: Columns of the readings to leave out: monitors known to be dead.
    """
    changes = []
    for (source, _), (first, *later) in sorted(reference_readings(entries).items()):
        begun = np.delete(first, but)
        found = [reference_change(source, begun, np.delete(reading, but), noise) for reading in later]
        if found and source in sources:
            power = max(found, key=lambda each: abs(each.power_db))
            changes.append(ReferenceChange(source, power.power_db, max(each.shape_sigma for each in found)))
    return changes


def noise_of(entries: Sequence[LogbookEntry], step_ma: float) -> NoiseModel | None:
    """Return the noise of the readings by settings read again and again; ``None`` if there are none yet."""
    dark: list[Real] = []
    relative: list[float] = []
    for group in _repeated(entries):
        readings = np.concatenate([entry.answer for entry in group])
        if group[0].source == DARK:
            dark.append(readings)
        elif dark:
            relative += scatter(readings, dark_noise_ma(dark[0]))
    if not dark or not relative:
        return None
    floor_ma = float(np.hypot(dark_noise_ma(dark[0]), step_ma / np.sqrt(12.0)))
    return NoiseModel(float(np.sqrt(np.mean(np.square(relative)))), floor_ma)


def _repeated(entries: Sequence[LogbookEntry]) -> list[list[LogbookEntry]]:
    """Return runs of single settings that are all the same."""
    groups: list[list[LogbookEntry]] = []
    for entry in entries:
        if entry.kind == "settings" and len(entry.currents_ma) == 1:
            if groups and groups[-1][-1].asks_as(entry):
                groups[-1].append(entry)
            else:
                groups.append([entry])
    return [group for group in groups if len(group) >= _LEAST_REPEATED]
