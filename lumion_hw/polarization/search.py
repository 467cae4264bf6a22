"""Polarization search as steps without I/O: the search yields settings and receives the measured power.

Squeezers and rotating plates are searched with a fitted model of the light (:mod:`lumion_hw.polarization.state_fit`,
:mod:`lumion_hw.polarization.plate_fit`). If the readings do not match the model, one actuator after the other is moved
to the extreme of a fitted sinusoid (:mod:`lumion_hw.polarization.sinusoids`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.interfaces import ActuatorInfo
from lumion_hw.polarization.plate_fit import PlateLight, fit_plates
from lumion_hw.polarization.retarders import RetarderChain
from lumion_hw.polarization.sinusoids import PLATE_PERIOD_DEG, Coordinate, changes_power, fit_period
from lumion_hw.polarization.squeezer_drives import SqueezerDrives
from lumion_hw.polarization.state_fit import LightEnsemble, LightEstimate
from lumion_hw.polarization.strategy import ACCEPTED_LEAK, ModelStrategy

Method = Literal["model", "three-point", "feedback"]
Reading = Generator[NDArray[np.float64], float, float]
"""Yields settings, receives the power measured there, and returns a power."""

_MISFIT = 0.05
"""Largest relative residual with which the model of squeezers counts as valid (docs/decisions/0005)."""
_MAX_MODEL_READS = 40
_FIRST_PLATE_READS, _MAX_PLATE_READS = 12, 30
"""Number of readings before the first fit of plates, and largest number; three plates have twelve unknowns."""
_MAX_PLATE_MISSES = 5
_PLATES_GOOD_ENOUGH = 10.0 ** (0.01 / 10.0)
_PROBE_STEP_DEG = 5.0  # far enough to expose a wrong explanation, near enough that light remains
# Twelve steps over the range: even the shortest period searched, 0.22 of the range, has more than two readings.
_LEARNING_POINTS = 13
_MAX_ROUNDS = 6
_MAX_DESCENTS = 6  # until two agree: one in ten ends where no single plate helps (decision 0005)
_SAME_BRIGHT, _SAME_DARK = 10.0 ** (0.1 / 10.0), 10.0 ** (1.0 / 10.0)
"""Largest difference in dB of two search results that count as equal, for the brightest and for the darkest."""
_GOOD_ENOUGH = 10.0 ** (0.02 / 10.0)
_MIN_LIGHT_RATIO = 3.0  # times the noise, which negative readings show before any standard deviation is known
_MAX_DARKER_RATIO = 0.8
_ON_THE_FLOOR = 1e-6  # of the total power: smaller readings are noise of the meter


@dataclass(frozen=True)
class PolarizationSearchResult:
    """Result of a polarization search.

    Attributes:
        settings: Settings in the controller's units.
        power: Confirming reading at these settings.
        remaining_loss_db: Light that may still be missing at the wanted port.
        floor_power: Lowest power that any setting reaches; ``None`` if the model does not fit.
        light: The fitted model of the light; ``None`` if it does not fit.
    """

    settings: NDArray[np.float64]
    power: float
    remaining_loss_db: float
    floor_power: float | None
    method: Method
    light: LightEstimate | None


Steps = Generator[NDArray[np.float64], float, PolarizationSearchResult]
"""Yields settings, receives the power measured there, and returns the result."""


class PolarizationSearch:
    """One polarization search on one controller.

    Args:
        periods: Change of each actuator's drive for a phase of 2π, in the actuator's units; measured periods are added.
        start: Present settings.
        sign: 1 for the brightest, −1 for the darkest.
        rng: Random numbers for the fits.
        noise_db: Expected noise of a reading.
    """

    def __init__(
        self,
        actuators: Sequence[ActuatorInfo],
        periods: dict[int, float],
        start: NDArray[np.float64],
        *,
        sign: float,
        rng: np.random.Generator,
        noise_db: float,
    ) -> None:
        self._actuators = actuators
        self._periods = periods
        for channel, actuator in enumerate(actuators):
            period = PLATE_PERIOD_DEG if actuator.kind == "angle" else actuator.period
            if period is not None:
                periods.setdefault(channel, period)
        self._sign = sign
        self._rng = rng
        self._relative_noise = noise_db * np.log(10.0) / 10.0
        self._settings = start.copy()
        self._settings_read: list[NDArray[np.float64]] = []
        self._powers: list[float] = []

    @property
    def powers(self) -> tuple[float, ...]:
        """All power readings of the search so far, in order."""
        return tuple(self._powers)

    @property
    def has_light(self) -> bool:
        """Whether there is light: a reading well above 0 and above the noise."""
        return max(self._powers) > _MIN_LIGHT_RATIO * max(-min(self._powers), 0.0) and max(self._powers) > 0.0

    def steps(self) -> Steps:
        """Yield the settings of a search, and return its result."""
        yield from self._read_at_settings(self._settings)
        # A model needs the true periods, so they are learnt first, and remembered for the next search.
        yield from self._learn_periods()
        result = None
        if self.has_light and self._model_applies():
            result = yield from self._search_by_model()
        elif self.has_light and all(actuator.kind == "angle" for actuator in self._actuators):
            result = yield from self._search_plates()
        if result is None:
            result = yield from self._search_by_rounds()
        return result

    def _read_at_settings(self, settings: NDArray[np.float64]) -> Reading:
        self._settings = settings.copy()
        power = yield settings.copy()
        self._settings_read.append(settings.copy())
        self._powers.append(power)
        return power

    def _with_channel(self, channel: int, value: float) -> NDArray[np.float64]:
        settings = self._settings.copy()
        settings[channel] = value
        return settings

    # Periods ----------------------------------------------------------------------------------------------------------

    def _learn_periods(self) -> Generator[NDArray[np.float64], float, None]:
        """Sweep each squeezer of unknown period (drive change for a phase of 2π) and measure its period."""
        for attempt in range(2):
            for channel in range(len(self._actuators)):
                if channel not in self._periods:
                    if attempt:
                        self._settings = self._settings_off_axis(channel)
                    yield from self._sweep(channel)

    def _settings_off_axis(self, channel: int) -> NDArray[np.float64]:
        settings = self._settings.copy()
        for neighbour in (channel - 1, channel + 1):
            if neighbour in self._periods:
                coordinate = Coordinate.from_actuator(self._actuators[neighbour], self._periods[neighbour])
                start = float(settings[neighbour])
                settings[neighbour] = coordinate.wrap_into_range(start + 0.25 * coordinate.period, start)
        return settings

    def _sweep(self, channel: int) -> Reading:
        """Sweep one squeezer to fit its period, set its best value, and return the expected power there."""
        actuator, start = self._actuators[channel], float(self._settings[channel])
        drives = np.linspace(actuator.minimum, actuator.maximum, _LEARNING_POINTS)
        readings = np.empty(len(drives))
        for index, drive in enumerate(drives):
            readings[index] = yield from self._read_at_settings(self._with_channel(channel, float(drive)))
        period = fit_period(drives, readings)
        if period is None:
            # No sinusoid fits, so keep the best of the settings that were read, if they differ by more than noise.
            index = int(np.argmax(self._sign * readings))
            self._settings = self._with_channel(channel, float(drives[index]) if changes_power(readings) else start)
            return float(readings[index])
        self._periods[channel] = period
        best, predicted = Coordinate.from_actuator(actuator, period).best(drives, readings, start, self._sign)
        self._settings = self._with_channel(channel, best)
        return predicted

    # By the model -----------------------------------------------------------------------------------------------------

    def _model_applies(self) -> bool:
        return len(self._periods) >= 2 and all(actuator.kind != "angle" for actuator in self._actuators)

    def _search_by_model(self) -> Generator[NDArray[np.float64], float, PolarizationSearchResult | None]:
        drives = SqueezerDrives(self._actuators, self._periods, self._settings)
        chain = RetarderChain(len(self._actuators))
        ensemble = LightEnsemble(chain, self._rng, relative_noise=self._relative_noise)
        ensemble.add(drives.phases(np.array(self._settings_read)), np.array(self._powers))
        strategy = ModelStrategy(ensemble, *drives.phase_limits, self._sign, self._rng)
        misses, next_phases = 0, None
        for remaining in reversed(range(_MAX_MODEL_READS)):
            if next_phases is None or not remaining:
                next_phases = strategy.next(drives.phases(self._settings), last=not remaining)
            settings, next_phases = drives.settings(next_phases), None
            power = yield from self._read_at_settings(settings)
            phases = drives.phases(settings)
            ensemble.add(phases[None], np.array([power]))
            if ensemble.n_readings <= ensemble.n_unknowns:
                continue  # any set of so few readings has an explanation
            if ensemble.misfit() > _MISFIT:
                # All members may be in one wrong minimum, which must not count as a misfit of the squeezers.
                ensemble.redraw_half()
            misses = misses + 1 if ensemble.misfit() > _MISFIT else 0
            if misses > 2:  # three misfits in a row: hysteresis, a wrong period or a turning fibre
                return None
            # Sufficient only if it remains so after half of the ensemble has searched for another explanation.
            if not misses and strategy.assess(phases).is_sufficient:
                ensemble.redraw_half()
                if strategy.assess(phases).is_sufficient:
                    # Only a search for the brightest is followed by tracking, which needs a unique explanation.
                    if self._sign < 0.0 or strategy.is_determined():
                        break
                    next_phases = strategy.best_measurement_phases()
        judgement = strategy.assess(phases)
        return PolarizationSearchResult(
            settings, power, judgement.remaining_loss_db, judgement.floor_power, "model", ensemble.best()
        )

    # By plates --------------------------------------------------------------------------------------------------------

    def _search_plates(self) -> Generator[NDArray[np.float64], float, PolarizationSearchResult | None]:
        light, is_confirmed, misses = None, False, 0
        for _ in range(_FIRST_PLATE_READS - len(self._powers)):
            yield from self._read_at_settings(self._random_settings())
        while self.has_light and len(self._powers) < _MAX_PLATE_READS:
            light = self._fitted(light)
            # With twelve readings for twelve unknowns, first fits may be in a wrong minimum; allow more misses.
            misses = misses + 1 if light.misfit > _MISFIT else 0
            if misses > _MAX_PLATE_MISSES:
                break
            best = self._extreme_settings(light)
            predicted, power = float(light.powers(best)), self._powers[-1]
            is_sufficient = light.misfit < _MISFIT and not self._pays_to_move(power, predicted, light.p0)
            if is_sufficient and is_confirmed:
                return self._plate_result(light, power, predicted)
            if is_sufficient:  # once more next to it, where a wrong explanation would show
                is_confirmed = True
                yield from self._read_at_settings(
                    self._rounded_to_steps(best + _PROBE_STEP_DEG * self._rng.standard_normal(len(best)))
                )
            yield from self._read_at_settings(best)
        return None

    def _fitted(self, former: PlateLight | None) -> PlateLight:
        return fit_plates(
            np.array(self._settings_read),
            np.array(self._powers),
            self._rng,
            relative_noise=self._relative_noise,
            former=former,
            starts=10 if former is None else 4,
        )

    def _extreme_settings(self, light: PlateLight) -> NDArray[np.float64]:
        low = np.array([actuator.minimum for actuator in self._actuators])
        high = np.array([actuator.maximum for actuator in self._actuators])
        return self._rounded_to_steps(
            light.extreme(low, high, np.array(self._settings_read), self._rng, sign=self._sign)
        )

    def _pays_to_move(self, power: float, predicted: float, p0: float) -> bool:
        if self._sign > 0.0:
            return predicted > power * _PLATES_GOOD_ENOUGH
        return predicted < power * _MAX_DARKER_RATIO and power > ACCEPTED_LEAK * p0

    def _plate_result(self, light: PlateLight, power: float, predicted: float) -> PolarizationSearchResult:
        if self._sign > 0.0:
            # The prediction itself is uncertain by the misfit.
            missing = max(predicted / power, 1.0) * (1.0 + light.misfit) - 1.0
            loss_db, floor = 10.0 * np.log10(1.0 + missing), light.p0 * light.crosstalk
        else:
            leak = min(max(power - light.p0 * light.crosstalk, 0.0) / light.p0, 0.999)
            loss_db, floor = -10.0 * np.log10(1.0 - leak), predicted
        return PolarizationSearchResult(self._settings.copy(), power, float(loss_db), floor, "model", None)

    def _rounded_to_steps(self, settings: NDArray[np.float64]) -> NDArray[np.float64]:
        stepped = [
            min(max(round(value / actuator.step) * actuator.step, actuator.minimum), actuator.maximum)
            for value, actuator in zip(settings.tolist(), self._actuators, strict=True)
        ]
        return np.array(stepped)

    # By rounds --------------------------------------------------------------------------------------------------------

    def _search_by_rounds(self) -> Steps:
        best = yield from self._rounds()
        if not self._has_plates or not self.has_light:
            return best
        for _ in range(_MAX_DESCENTS - 1):
            self._settings = self._random_settings()
            other = yield from self._rounds()
            best, worse = (other, best) if self._sign * (other.power - best.power) > 0.0 else (best, other)
            if self._is_same_extreme(best.power, worse.power):
                break
        power = yield from self._read_at_settings(best.settings)
        return replace(best, power=power)

    def _rounds(self) -> Steps:
        power = self._powers[-1]
        if not np.array_equal(self._settings, self._settings_read[-1]):
            power = yield from self._read_at_settings(self._settings)
        for turn in range(_MAX_ROUNDS):
            predicted = power
            for channel in range(len(self._actuators)):
                if channel in self._periods:
                    predicted = yield from self._move_to_extreme(channel)
                else:
                    predicted = yield from self._sweep(channel)
            former, power = power, (yield from self._read_at_settings(self._settings))
            learnt = len(self._periods) == len(self._settings)
            # While a period is unknown, a round without gain may still be needed: it moves the light off an axis.
            if not self._is_improved(former, power) and (learnt or turn > 1):
                break
        return PolarizationSearchResult(
            self._settings.copy(), power, self._loss_db(former, power, predicted), None, "three-point", None
        )

    @property
    def _has_plates(self) -> bool:
        return any(actuator.kind == "angle" for actuator in self._actuators)

    def _random_settings(self) -> NDArray[np.float64]:
        settings = self._settings.copy()
        for channel, actuator in enumerate(self._actuators):
            if actuator.kind == "angle":
                settings[channel] = self._rng.uniform(actuator.minimum, actuator.maximum)
        return self._rounded_to_steps(settings)

    def _is_same_extreme(self, power: float, other: float) -> bool:
        ratio = max(power, other) / max(min(power, other), _ON_THE_FLOOR * max(self._powers))
        return bool(ratio < (_SAME_BRIGHT if self._sign > 0.0 else _SAME_DARK))

    def _move_to_extreme(self, channel: int) -> Reading:
        coordinate = Coordinate.from_actuator(self._actuators[channel], self._periods[channel])
        start = float(self._settings[channel])
        drives = np.array([start, *coordinate.other_settings(start)])
        readings = np.empty(len(drives))
        for index, drive in enumerate(drives):
            readings[index] = yield from self._read_at_settings(self._with_channel(channel, float(drive)))
        best, predicted = coordinate.best(drives, readings, start, self._sign)
        self._settings = self._with_channel(channel, best)
        return predicted

    def _is_improved(self, former: float, power: float) -> bool:
        if self._sign > 0.0:
            return power > former * _GOOD_ENOUGH
        return power < former * _MAX_DARKER_RATIO and power > _ON_THE_FLOOR * max(self._powers)

    def _loss_db(self, former: float, power: float, predicted: float) -> float:
        brightest = max(self._powers)
        if not power > 0.0 or not brightest > 0.0:
            return 0.0
        if self._sign > 0.0:
            return float(max(10.0 * np.log10(max(predicted, brightest, power) / power), 0.0))
        return float(-10.0 * np.log10(1.0 - min(power / brightest, 0.999)))
