"""The search for a polarization as steps without I/O: the next settings out, the power read there in.

By the model first. For squeezers an ensemble of all light that explains the readings
(:mod:`lumion_hw.polarization.state_fit`) says where a reading tells most, and when enough is known; for plates that
turn, which take half a second for a reading anyway, one explanation is fitted
(:mod:`lumion_hw.polarization.plate_fit`). Where the readings are not those of such actuators (hysteresis, a wrong
period), round by round: each in turn is led to the extreme of the sinusoid fitted to three readings, five for a plate
(:mod:`lumion_hw.polarization.sinusoids`).
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
from lumion_hw.polarization.strategy import ENOUGH_LEAK, ModelStrategy

Method = Literal["model", "three-point", "feedback"]
Reading = Generator[NDArray[np.float64], float, float]
"""Yields settings, is sent the power read there, returns a power."""

_MISFIT = 0.05
"""Readings that miss the best explanation by more than this part are not those of squeezers (decision 0005)."""
_MOST_MODEL_READS = 40
_FIRST_PLATE_READS, _MOST_PLATE_READS = 12, 30
"""Three plates have twelve unknowns."""
_MOST_PLATE_MISSES = 5
_PLATES_GOOD_ENOUGH = 10.0 ** (0.01 / 10.0)
_ASIDE_DEG = 5.0  # far enough that a wrong explanation misses the reading, near enough that light is left to read
_LEARNING_POINTS = 13
_MOST_ROUNDS = 6
_MOST_DESCENTS = 6  # until two agree: one in ten ends where no single plate helps (decision 0005)
_SAME_BRIGHT, _SAME_DARK = 10.0 ** (0.1 / 10.0), 10.0 ** (1.0 / 10.0)
"""Two searches end at the same extreme if no more than 0.1 dB, or in the dark 1 dB, is between them."""
_GOOD_ENOUGH = 10.0 ** (0.02 / 10.0)
_LIT = 3.0  # standard deviations are not known yet: what noise puts below 0 tells how large it is
_MUCH_DARKER = 0.8
_ON_THE_FLOOR = 1e-6  # of all light: below it a reading is the meter's, not the light's


@dataclass(frozen=True)
class PolarizationSearchResult:
    """Where a search ended.

    Attributes:
        settings: In the controller's units.
        power: Confirming reading there.
        remaining_loss_db: Light that may still be missing at the wanted port.
        floor_power: Least power that any setting reaches, if the model fits.
        method: How it was found.
        light: The explanation of the readings, if the model fits.
    """

    settings: NDArray[np.float64]
    power: float
    remaining_loss_db: float
    floor_power: float | None
    method: Method
    light: LightEstimate | None


Steps = Generator[NDArray[np.float64], float, PolarizationSearchResult]
"""Yields settings, is sent the power read there, returns what was found."""


class PolarizationSearch:
    """One search on one controller.

    Args:
        actuators: The actuators.
        periods: Periods by actuator, in its units; what is learnt is added.
        start: Settings in force.
        sign: 1 for the brightest, −1 for the darkest.
        rng: Draws of the ensemble.
        noise_db: Noise of a reading as expected.
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
            known = PLATE_PERIOD_DEG if actuator.kind == "angle" else actuator.period
            if known is not None:
                periods.setdefault(channel, known)
        self._sign = sign
        self._rng = rng
        self._relative_noise = noise_db * np.log(10.0) / 10.0
        self._settings = start.copy()
        self._read_at: list[NDArray[np.float64]] = []
        self._powers: list[float] = []

    @property
    def powers(self) -> tuple[float, ...]:
        """All readings so far, in their order."""
        return tuple(self._powers)

    @property
    def has_light(self) -> bool:
        """Whether there is light: a reading well above 0, and above what the noise of a meter puts below 0."""
        return max(self._powers) > _LIT * max(-min(self._powers), 0.0) and max(self._powers) > 0.0

    def steps(self) -> Steps:
        """Search; in the dark it ends with the powers found there."""
        yield from self._at(self._settings)
        # A model without the true period explains nothing: periods come first, and are remembered for the next search.
        yield from self._learn()
        found = None
        if self.has_light and self._model_applies():
            found = yield from self._by_model()
        elif self.has_light and all(actuator.kind == "angle" for actuator in self._actuators):
            found = yield from self._by_plates()
        if found is None:
            found = yield from self._by_rounds()
        return found

    def _at(self, settings: NDArray[np.float64]) -> Reading:
        """Read at settings, which stay."""
        self._settings = settings.copy()
        power = yield settings.copy()
        self._read_at.append(settings.copy())
        self._powers.append(power)
        return power

    def _with(self, channel: int, value: float) -> NDArray[np.float64]:
        """Return the present settings with another one for a channel."""
        settings = self._settings.copy()
        settings[channel] = value
        return settings

    # Periods ----------------------------------------------------------------------------------------------------------

    def _learn(self) -> Generator[NDArray[np.float64], float, None]:
        """Sweep each squeezer of unknown period over its range, and leave it at its best; again if it hardly acts."""
        for attempt in range(2):
            for channel in range(len(self._actuators)):
                if channel not in self._periods:
                    if attempt:
                        self._settings = self._off_the_axis(channel)
                    yield from self._sweep(channel)

    def _off_the_axis(self, channel: int) -> NDArray[np.float64]:
        """Return settings where a squeezer that hardly acted will act: its neighbours are a quarter turn on.

        Light on the axis of a squeezer shows nothing in its sweep, nor does it if what is taken behind lies there.
        """
        settings = self._settings.copy()
        for neighbour in (channel - 1, channel + 1):
            if neighbour in self._periods:
                coordinate = Coordinate.of(self._actuators[neighbour], self._periods[neighbour])
                start = float(settings[neighbour])
                settings[neighbour] = coordinate.inside(start + 0.25 * coordinate.period, start)
        return settings

    def _sweep(self, channel: int) -> Reading:
        """Sweep one squeezer, learn its period if it shows, and put it to its best; return the power promised there."""
        actuator, start = self._actuators[channel], float(self._settings[channel])
        drives = np.linspace(actuator.minimum, actuator.maximum, _LEARNING_POINTS)
        readings = np.empty(len(drives))
        for index, drive in enumerate(drives):
            readings[index] = yield from self._at(self._with(channel, float(drive)))
        period = fit_period(drives, readings)
        if period is None:
            index = int(np.argmax(self._sign * readings))
            self._settings = self._with(channel, float(drives[index]) if changes_power(readings) else start)
            return float(readings[index])
        self._periods[channel] = period
        best, promised = Coordinate.of(actuator, period).best(drives, readings, start, self._sign)
        self._settings = self._with(channel, best)
        return promised

    # By the model -----------------------------------------------------------------------------------------------------

    def _model_applies(self) -> bool:
        """Whether there are squeezers enough of known period, and nothing else."""
        return len(self._periods) >= 2 and all(actuator.kind != "angle" for actuator in self._actuators)

    def _by_model(self) -> Generator[NDArray[np.float64], float, PolarizationSearchResult | None]:
        """Search by the ensemble; ``None`` when the readings are not those of squeezers."""
        drives = SqueezerDrives(self._actuators, self._periods, self._settings)
        chain = RetarderChain(len(self._actuators))
        ensemble = LightEnsemble(chain, self._rng, relative_noise=self._relative_noise)
        ensemble.add(drives.phases(np.array(self._read_at)), np.array(self._powers))
        strategy = ModelStrategy(ensemble, *drives.phase_limits, self._sign, self._rng)
        misses, wanted = 0, None
        for left in reversed(range(_MOST_MODEL_READS)):
            if wanted is None or not left:
                wanted = strategy.next(drives.phases(self._settings), last=not left)
            settings, wanted = drives.settings(wanted), None
            power = yield from self._at(settings)
            phases = drives.phases(settings)
            ensemble.add(phases[None], np.array([power]))
            if ensemble.n_readings <= ensemble.n_unknowns:
                continue  # any readings have an explanation
            if ensemble.misfit() > _MISFIT:
                # All members may sit in one wrong minimum: that must not count as a misfit of the squeezers.
                ensemble.redraw_half()
            misses = misses + 1 if ensemble.misfit() > _MISFIT else 0
            if misses > 2:  # one bad reading passes; three in a row are hysteresis, a wrong period or a turning fibre
                return None
            # Enough only if it stays enough when half of the ensemble has looked for another explanation.
            if not misses and strategy.judge(phases).is_sufficient:
                ensemble.redraw_half()
                if strategy.judge(phases).is_sufficient:
                    # Tracking, which needs one explanation everywhere, follows the brightest only.
                    if self._sign < 0.0 or strategy.is_determined():
                        break
                    wanted = strategy.most_informative_phases()
        judgement = strategy.judge(phases)
        return PolarizationSearchResult(
            settings, power, judgement.remaining_loss_db, judgement.floor_power, "model", ensemble.best()
        )

    # By plates --------------------------------------------------------------------------------------------------------

    def _by_plates(self) -> Generator[NDArray[np.float64], float, PolarizationSearchResult | None]:
        """Search by one explanation of all readings; ``None`` when they are not those of plates of fixed retardance."""
        light, sure, misses = None, False, 0
        for _ in range(_FIRST_PLATE_READS - len(self._powers)):
            yield from self._at(self._random_settings())
        while self.has_light and len(self._powers) < _MOST_PLATE_READS:
            light = self._fitted(light)
            # Twelve unknowns, twelve readings: first fits may sit in a wrong minimum, so more misses are allowed.
            misses = misses + 1 if light.misfit > _MISFIT else 0
            if misses > _MOST_PLATE_MISSES:
                break
            best = self._extreme_of(light)
            promised, power = float(light.powers(best)), self._powers[-1]
            enough = light.misfit < _MISFIT and not self._worth_moving(power, promised, light.p0)
            if enough and sure:
                return self._found_by_plates(light, power, promised)
            if enough:  # once more beside it, where a wrong explanation would show
                sure = True
                yield from self._at(self._on_steps(best + _ASIDE_DEG * self._rng.standard_normal(len(best))))
            yield from self._at(best)
        return None

    def _fitted(self, former: PlateLight | None) -> PlateLight:
        return fit_plates(
            np.array(self._read_at),
            np.array(self._powers),
            self._rng,
            relative_noise=self._relative_noise,
            former=former,
            starts=10 if former is None else 4,
        )

    def _extreme_of(self, light: PlateLight) -> NDArray[np.float64]:
        low = np.array([actuator.minimum for actuator in self._actuators])
        high = np.array([actuator.maximum for actuator in self._actuators])
        return self._on_steps(light.extreme(low, high, np.array(self._read_at), self._rng, sign=self._sign))

    def _worth_moving(self, power: float, promised: float, p0: float) -> bool:
        if self._sign > 0.0:
            return promised > power * _PLATES_GOOD_ENOUGH
        return promised < power * _MUCH_DARKER and power > ENOUGH_LEAK * p0

    def _found_by_plates(self, light: PlateLight, power: float, promised: float) -> PolarizationSearchResult:
        if self._sign > 0.0:
            missing = max(promised / power, 1.0) * (1.0 + light.misfit) - 1.0
            loss_db, floor = 10.0 * np.log10(1.0 + missing), light.p0 * light.crosstalk
        else:
            leak = min(max(power - light.p0 * light.crosstalk, 0.0) / light.p0, 0.999)
            loss_db, floor = -10.0 * np.log10(1.0 - leak), promised
        return PolarizationSearchResult(self._settings.copy(), power, float(loss_db), floor, "model", None)

    def _on_steps(self, settings: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the nearest settings that the actuators have."""
        stepped = [
            min(max(round(value / each.step) * each.step, each.minimum), each.maximum)
            for value, each in zip(settings.tolist(), self._actuators, strict=True)
        ]
        return np.array(stepped)

    # By rounds --------------------------------------------------------------------------------------------------------

    def _by_rounds(self) -> Steps:
        """Go round the actuators; plates a second time from elsewhere, for their power has extremes that lead nowhere.

        The settings of plates curve the sphere so much that one round in ten ends where no single plate helps though
        all together would. Two searches that agree are believed.
        """
        best = yield from self._rounds()
        if not self._has_plates or not self.has_light:
            return best
        for _ in range(_MOST_DESCENTS - 1):
            self._settings = self._random_settings()
            other = yield from self._rounds()
            best, worse = (other, best) if self._sign * (other.power - best.power) > 0.0 else (best, other)
            if self._same_extreme(best.power, worse.power):
                break
        power = yield from self._at(best.settings)
        return replace(best, power=power)

    def _rounds(self) -> Steps:
        """Go round the actuators until a confirming reading stops improving."""
        power = self._powers[-1]
        if not np.array_equal(self._settings, self._read_at[-1]):
            power = yield from self._at(self._settings)
        for turn in range(_MOST_ROUNDS):
            promised = power
            for channel in range(len(self._actuators)):
                if channel in self._periods:
                    promised = yield from self._to_its_extreme(channel)
                else:
                    promised = yield from self._sweep(channel)
            former, power = power, (yield from self._at(self._settings))
            learnt = len(self._periods) == len(self._settings)
            # While a period is unknown a round may gain nothing and still be needed: it moves the light off the axis.
            if not self._improved(former, power) and (learnt or turn > 1):
                break
        return PolarizationSearchResult(
            self._settings.copy(), power, self._loss_db(former, power, promised), None, "three-point", None
        )

    @property
    def _has_plates(self) -> bool:
        return any(actuator.kind == "angle" for actuator in self._actuators)

    def _random_settings(self) -> NDArray[np.float64]:
        """Return settings drawn from the ranges of the plates; whatever else there is stays."""
        settings = self._settings.copy()
        for channel, actuator in enumerate(self._actuators):
            if actuator.kind == "angle":
                settings[channel] = self._rng.uniform(actuator.minimum, actuator.maximum)
        return self._on_steps(settings)

    def _same_extreme(self, power: float, other: float) -> bool:
        """Return whether two searches ended at what may be the same extreme."""
        ratio = max(power, other) / max(min(power, other), _ON_THE_FLOOR * max(self._powers))
        return bool(ratio < (_SAME_BRIGHT if self._sign > 0.0 else _SAME_DARK))

    def _to_its_extreme(self, channel: int) -> Reading:
        """Put one actuator at its extreme; return the power promised there."""
        coordinate = Coordinate.of(self._actuators[channel], self._periods[channel])
        start = float(self._settings[channel])
        drives = np.array([start, *coordinate.other_settings(start)])
        readings = np.empty(len(drives))
        for index, drive in enumerate(drives):
            readings[index] = yield from self._at(self._with(channel, float(drive)))
        best, promised = coordinate.best(drives, readings, start, self._sign)
        self._settings = self._with(channel, best)
        return promised

    def _improved(self, former: float, power: float) -> bool:
        """Return whether another round is worth its readings (docs/polarization.md, "Three readings")."""
        if self._sign > 0.0:
            return power > former * _GOOD_ENOUGH
        return power < former * _MUCH_DARKER and power > _ON_THE_FLOOR * max(self._powers)

    def _loss_db(self, former: float, power: float, promised: float) -> float:
        """Estimate the light still missing: what the last round gained or promised, or what still leaks."""
        brightest = max(self._powers)
        if not power > 0.0 or not brightest > 0.0:
            return 0.0
        if self._sign > 0.0:
            return float(max(10.0 * np.log10(max(promised, brightest, power) / power), 0.0))
        return float(-10.0 * np.log10(1.0 - min(power / brightest, 0.999)))
