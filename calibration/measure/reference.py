"""The reference setting: all heaters off. It is measured again and again, and tells what drifts besides the fringes.

Light that becomes weaker at all monitors together is the laser or the polarization in its fibre; light that is shared
otherwise is the mesh: its temperature, or heaters that age (calibration.md 5, step 0, and 12).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.measure.entry import DARK, LogbookEntry
from calibration.measure.survey import dark_noise_ma, scatter
from calibration.model.noise import NoiseModel

Real = NDArray[np.float64]

MOST_POWER_DB = 0.1
"""Change of a source's light that a run bears (assumption): five times what is taken for normal."""
MOST_SHAPE_SIGMA = 3.0
"""Change of its distribution over the monitors, rms in standard errors: some 10 mrad of every phase."""
_LEAST_RELATIVE = 0.003
"""Readings are not compared more sharply than this, however quiet the meters are."""
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


def change(source: int, before_ma: Real, now_ma: Real, noise: NoiseModel) -> ReferenceChange:
    """Return how a reading, shape ``(M,)``, differs from an earlier one."""
    noise = replace(noise, relative=max(noise.relative, _LEAST_RELATIVE))
    seen = np.isfinite(before_ma) & np.isfinite(now_ma)
    before, now = before_ma[seen], now_ma[seen]
    if not before.sum() > 0.0:
        return ReferenceChange(source, 0.0, 0.0)
    weight = noise.sigma_ma(before) ** -2.0  # noise is relative: every bright monitor counts the same
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
        found = [change(source, begun, np.delete(reading, but), noise) for reading in later]
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
