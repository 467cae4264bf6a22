"""Survey before the sweeps: noise of the monitors, and working sources and monitors.

A reference setting with all heaters off is measured, and repeated during the run to find changes (docs/calibration.md,
11).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibration.measure.logbook import DARK, Logbook, LogbookEntry
from calibration.measure.probe import Probe
from calibration.model.arrays import Real
from calibration.model.observations import NoiseModel
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.record.calibration_record import Defect

_READINGS = 16
_MIN_BACKGROUNDS = 3
# Settings in which every monitor is read, because a monitor may be dark by interference in one of them.
_MIN_REPEATED_READINGS = 24
# Extra settings for elements that are dark in all of these: on one chip of thirty, one of 28 monitors by interference.
_FURTHER_BACKGROUNDS = 6
_LIVE_SIGMA = 10.0
MIN_CONTRAST = 300.0
"""Smallest contrast (brightest reading over noise) at which a dim monitor can be told from a dead one."""
_BRIGHT_SIGMA = 1000.0
_MIN_RELATIVE = 1e-4
_CUT_SHARE = 0.25
# Readings of two inputs that differ by less, relative to all readings, are of the same light; usual is 0.5 to 1.4.
_SAME_LIGHT = 0.02
# Where light of two inputs leaves through one waveguide, only the power ratio of both changes with the setting; for the
# same light it stays within this share.
_SAME_RATIO = 0.1
_DARK_SIGMA = 5.0
_DEAD_SOURCE = (
    "source at port {port}: its light reaches no monitor, so it is not used. PUCs next to it are measured from "
    "other ports. Check its module, its polarization, the fibre and the facet"
)
_DEAD_MONITOR = (
    "monitor at port {port}: dark with every source, so it is not used. Light may still leave this port. Check "
    "the photodiode and its amplifier, and prove circuits to this port with another meter"
)


@dataclass(frozen=True)
class Survey:
    """Result of the survey: working sources and monitors, and the noise of a reading.

    Attributes:
        sources: Ports whose light reaches a monitor, in ascending order.
        monitors: Ports whose monitors receive light.
        defects: Sources and monitors that do not work.
        dark_ma: Significant monitor readings without light, by port.
        contrast: Brightest reading of a typical monitor over the noise.
    """

    noise: NoiseModel
    sources: tuple[int, ...]
    monitors: tuple[int, ...]
    defects: tuple[Defect, ...]
    dark_ma: Mapping[int, float] = field(default_factory=dict)
    contrast: float = np.inf


def take_survey(logbook: Logbook, rng: np.random.Generator, driven: NDArray[np.bool_] | None = None) -> Survey:
    """Measure without light, then every source with a few sets of heater currents (backgrounds).

    The first background has all heaters off, the others are random. ``driven`` are the heaters that may be used; by
    default all.

    Raises:
        CalibrationError: No source or no monitor works.
    """
    probe = logbook.probe
    heaters, ports = 2 * probe.mesh.n_pucs, sorted(probe.sources)
    # First without light, before any heater changes: this gives amplifier offsets and noise.
    logbook.light_only_port(None)
    dark = np.array([logbook.measure(np.zeros(heaters)) for _ in range(_READINGS)])
    floor_ma = float(np.hypot(dark_noise_ma(dark), probe.monitor_step_ma / np.sqrt(12.0)))
    level_ma, min_reading_ma = dark_level_ma(dark, floor_ma), _LIVE_SIGMA * floor_ma
    strongest = np.zeros((len(ports), len(probe.monitors)))
    # In a mesh without reflections no source reaches the monitors of its own side; darkness there is not a fault.
    is_reachable = np.array([any(probe.mesh.reaches(source, port) for source in ports) for port in probe.monitors])

    def read_monitors(currents_ma: Real) -> None:
        for index, source in enumerate(ports):
            logbook.light_only_port(source)
            light_ma = logbook.measure(currents_ma) - level_ma
            strongest[index] = np.maximum(strongest[index], np.nan_to_num(light_ma, nan=np.inf))
            readings[index].append(light_ma)

    relative: list[float] = []
    readings: list[list[Real]] = [[] for _ in ports]
    backgrounds = max(_MIN_BACKGROUNDS, -(-_MIN_REPEATED_READINGS // max(len(ports), 1)))
    usable = 1.0 if driven is None else driven
    # Uniform in I², which is uniform in phase.
    squares = rng.uniform(0.0, 0.65 * probe.heater_max_ma**2, (backgrounds, heaters)) * usable
    # The first background is the reference setting.
    squares[0] = 0.0
    for background, currents in enumerate(np.sqrt(squares)):
        read_monitors(currents)
        if background < _MIN_BACKGROUNDS:
            # Readings without light have no relative scatter.
            if ports and strongest[-1].max(initial=0.0) <= min_reading_ma:
                logbook.light_only_port(ports[int(np.argmax(strongest.max(axis=1, initial=0.0)))])
                logbook.measure(currents)
            relative += scatter(np.array([logbook.measure(currents) for _ in range(_READINGS)]), floor_ma)
    # Extra check: of 50 chips one had a good monitor that interference made dark in three settings.
    for _ in range(_FURTHER_BACKGROUNDS):
        reachable_ma = strongest[:, is_reachable]
        if min(reachable_ma.max(axis=axis, initial=0.0).min(initial=np.inf) for axis in (0, 1)) > min_reading_ma:
            break
        read_monitors(np.sqrt(rng.uniform(0.0, 0.65 * probe.heater_max_ma**2, heaters) * usable))
    _check_switch_changes_light(ports, np.array(readings), floor_ma)
    noise = NoiseModel(max(float(np.sqrt(np.mean(np.square(relative or [0.0])))), _MIN_RELATIVE), floor_ma)
    return _select_readings(probe, strongest, is_reachable, noise, level_ma)


def _check_switch_changes_light(ports: Sequence[int], readings: Real, floor_ma: float) -> None:
    """Check that no two inputs give the same light in all settings.

    ``readings`` has the shape ``(ports, settings, monitors)``.

    Raises:
        CalibrationError: Two inputs give the same light.
    """
    if len(ports) < 2:
        return
    light = np.nan_to_num(readings.reshape(len(ports), math.prod(readings.shape[1:])))
    size, by_setting = np.linalg.norm(light, axis=1), np.linalg.norm(np.nan_to_num(readings), axis=2)
    sources_with_light = np.flatnonzero(size > _BRIGHT_SIGMA * floor_ma)
    for first, second in itertools.combinations(sources_with_light.tolist(), 2):
        difference = light[first] / size[first] - light[second] / size[second]
        is_bright = by_setting[[first, second]].min(axis=0) > _LIVE_SIGMA / _SAME_RATIO * floor_ma
        ratio = by_setting[first, is_bright] / by_setting[second, is_bright] * size[second] / size[first]
        if np.linalg.norm(difference) < _SAME_LIGHT and np.ptp(ratio) < _SAME_RATIO:
            raise CalibrationError(
                f"the inputs at ports {ports[first]} and {ports[second]} give the same light at all monitors in "
                f"{readings.shape[1]} settings of the heaters: a switch does not move, or both lead to the same port",
                hint="Check the position of the switch, the fibres to these ports, and 'through' of these inputs in "
                "the bench file.",
            )


def _select_readings(
    probe: Probe, strongest: Real, is_reachable: NDArray[np.bool_], noise: NoiseModel, level_ma: Real
) -> Survey:
    """Decide which sources and monitors work.

    ``strongest`` is the largest reading above the dark level in mA, one row per source (ascending) and one column per
    monitor. ``is_reachable`` are the monitors that the light of a source can reach.

    Raises:
        CalibrationError: No source or no monitor works.
    """
    ports, floor_ma = sorted(probe.sources), noise.floor_ma
    sources, monitors = (
        tuple(compress(elements, strongest.max(axis=axis, initial=0.0) > _LIVE_SIGMA * floor_ma))
        for elements, axis in ((ports, 1), (probe.monitors, 0))
    )
    if not sources or not monitors:
        raise CalibrationError(
            f"only {len(sources)} of {len(probe.sources)} sources and {len(monitors)} of {len(probe.monitors)} "
            "monitors show light",
            hint="Check that modules are enabled, fibres are connected and polarization is aligned.",
        )
    defects = (
        *_dead_elements("source", ports, sources, _DEAD_SOURCE),
        *_dead_elements("monitor", list(compress(probe.monitors, is_reachable)), monitors, _DEAD_MONITOR),
    )
    dark_ma = {port: level for port, level in zip(probe.monitors, level_ma.tolist(), strict=True) if level}
    # The typical monitor decides; one bright port says nothing about the rest.
    contrast = float(np.median(strongest[:, is_reachable].max(axis=0, initial=0.0)) / floor_ma) if floor_ma else np.inf
    return Survey(noise, sources, monitors, defects, dark_ma, contrast)


def _dead_elements(
    element: Literal["source", "monitor"], ports: Sequence[int], live_ports: Sequence[int], text: str
) -> tuple[Defect, ...]:
    return tuple(
        Defect(f"dead {element}", element, port, text.format(port=port)) for port in ports if port not in live_ports
    )


def dark_level_ma(dark: Real, floor_ma: float) -> Real:
    """Return the mean dark reading of every monitor, ``(monitors,)``; 0 if insignificant or clipped."""
    mean = np.nan_to_num(np.nanmean(np.where(np.isfinite(dark).any(axis=0), dark, 0.0), axis=0))
    cut = (dark == 0.0).mean(axis=0) > _CUT_SHARE
    # An offset that may be noise is not subtracted, because that would add noise to every reading.
    certain = np.abs(mean) > _DARK_SIGMA * floor_ma / np.sqrt(len(dark))
    return np.where(certain & ~cut, mean, 0.0)


def dark_noise_ma(dark: Real) -> float:
    """Return the noise of dark monitors from readings of shape ``(readings, monitors)``.

    A converter without negative codes clips half of the noise; this is corrected.
    """
    if (dark == 0.0).mean() > _CUT_SHARE:
        return float(np.sqrt(2.0 * np.nanmedian((dark**2).mean(axis=0))))
    return float(np.nanmedian(dark.std(axis=0, ddof=1)))


def scatter(readings: Real, floor_ma: float) -> list[float]:
    """Return the relative scatter of repeated readings for every bright monitor."""
    mean, spread = readings.mean(axis=0), readings.std(axis=0, ddof=1)
    bright = mean > _BRIGHT_SIGMA * floor_ma
    relative: list[float] = (spread[bright] / mean[bright]).tolist()
    return relative


MAX_POWER_DB = 0.1
"""Largest allowed power change of a source during a run (assumption)."""
MAX_SHAPE_SIGMA = 3.0
"""Largest allowed change of the distribution of light, in rms standard errors."""
# Smallest relative error in a comparison, even for meters with less noise.
_MIN_COMPARED = 0.003
_MIN_REPEATED = 8


@dataclass(frozen=True)
class ReferenceChange:
    """Change of the light at the reference setting (all heaters off) during a run.

    Attributes:
        power_db: Change common to all monitors, in dB.
        shape_sigma: Rms of the remaining change, in standard errors.
    """

    source: int
    power_db: float
    shape_sigma: float

    def descriptions(self, max_power_db: float = MAX_POWER_DB) -> tuple[str, ...]:
        """Return one message for each limit that the change exceeds."""
        descriptions = []
        if abs(self.power_db) > max_power_db:
            descriptions.append(
                f"source at port {self.source}: its light changed by {self.power_db:+.2f} dB at all monitors, because "
                "laser or polarization drifted. Align the polarization again, and check the laser"
            )
        if self.shape_sigma > MAX_SHAPE_SIGMA:
            descriptions.append(
                f"source at port {self.source}: the distribution of its light over the monitors changed by "
                f"{self.shape_sigma:.0f} standard errors, because the chip temperature or heaters drifted. Check the "
                "temperature lock"
            )
        return tuple(descriptions)


def reference_change(source: int, before_ma: Real, after_ma: Real, noise: NoiseModel) -> ReferenceChange:
    """Return the change between two readings of the same setting, ``(monitors,)``."""
    # The usual changes of light and temperature are not a fault, even if a meter has less noise.
    noise = replace(noise, relative=max(noise.relative, _MIN_COMPARED))
    is_valid = np.isfinite(before_ma) & np.isfinite(after_ma)
    before, after = before_ma[is_valid], after_ma[is_valid]
    if not before.sum() > 0.0:
        return ReferenceChange(source, 0.0, 0.0)
    weight = noise.sigma_ma(before) ** -2.0  # noise is relative, so every bright monitor counts the same
    factor = max(float((weight * before * after).sum() / (weight * before**2).sum()), 1e-9)
    sigma = np.hypot(noise.sigma_ma(after), factor * noise.sigma_ma(before))
    shape = np.sqrt((((after - factor * before) / sigma) ** 2).sum() / max(len(after) - 1, 1))
    return ReferenceChange(source, 10.0 * float(np.log10(factor)), float(shape))


def reference_readings(entries: Sequence[LogbookEntry]) -> dict[tuple[int, float], list[Real]]:
    """Return all readings of the reference setting in order of time, by source and tuned frequency.

    The frequency is 0 for a source that was not tuned. Readings before a fibre of the source was moved by hand are
    omitted.
    """
    readings: dict[tuple[int, float], list[Real]] = {}
    tuned_hz: dict[int, float] = {}
    for entry in entries:
        if entry.kind == "tuned":
            tuned_hz[entry.source] = entry.requested_hz
        if entry.kind in ("laser", "meter"):
            readings.clear()
        single = entry.kind == "settings" and entry.source != DARK and len(entry.currents_ma) == 1
        if single and not entry.currents_ma.any():
            key = entry.source, tuned_hz.get(entry.source, 0.0)
            earlier = readings.pop(key, [])
            # Removed and inserted again, so that the frequency tuned last comes last.
            readings[key] = [*earlier, entry.answer[0]]
    return readings


def reference_changes(
    entries: Sequence[LogbookEntry], sources: Sequence[int], noise: NoiseModel, ignored_columns: Sequence[int] = ()
) -> list[ReferenceChange]:
    """Return, for each source and frequency, the largest change of the reference setting since its first reading.

    ``ignored_columns`` are the columns of dead monitors.
    """
    changes = []
    for (source, _), (first, *later) in sorted(reference_readings(entries).items()):
        before, *readings = (np.delete(reading, ignored_columns) for reading in (first, *later))
        source_changes = [reference_change(source, before, reading, noise) for reading in readings]
        if source_changes and source in sources:
            power = max(source_changes, key=lambda change: abs(change.power_db))
            shape_sigma = max(change.shape_sigma for change in source_changes)
            changes.append(replace(power, shape_sigma=shape_sigma))
    return changes


def noise_of(entries: Sequence[LogbookEntry], step_ma: float) -> NoiseModel | None:
    """Estimate the noise of the readings from repeated settings; ``None`` without repeated settings."""
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
    groups: list[list[LogbookEntry]] = []
    for entry in entries:
        if entry.kind == "settings" and len(entry.currents_ma) == 1:
            if groups and groups[-1][-1].has_same_request(entry):
                groups[-1].append(entry)
            else:
                groups.append([entry])
    return [group for group in groups if len(group) >= _MIN_REPEATED]
