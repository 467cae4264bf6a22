"""Measurements of a calibration with fibres that are moved by hand.

After each connection, the first settings show whether the fibres are at the requested ports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from calibration.measure.design import IncrementalSettings, usually_changed
from calibration.measure.fibre_levels import SETTINGS_PER_SOURCE, FibreReadings
from calibration.measure.heater_fringe import NOT_SWEPT, HeaterFit, HeaterSweep
from calibration.measure.heater_sweeps import HeaterSweepPlan, HeaterSweeps
from calibration.measure.logbook import Logbook
from calibration.measure.plug_requests import Fibre
from calibration.measure.port_survey import (
    ReferenceChange,
    Survey,
    dark_level_ma,
    dark_noise_ma,
    reference_change,
    scatter,
)
from calibration.measure.visit_planning import Responses, Visit, is_same_pattern, plan_visits
from calibration.model.arrays import Real
from calibration.model.device_under_test import DeviceUnderTest
from calibration.model.ideal_mesh import MeanLight
from calibration.model.observations import NoiseModel
from calibration.run.verification import SETTINGS
from lumion_hw.errors import CalibrationError

READINGS_PER_PHASE = 50
"""Readings per phase for a standard error below 1 mrad."""
BY_HAND_FIELD_ERROR = 4e-4
"""Relative error of predicted fields in a tour: 10 to 63 heaters of 25 mW per π leave 1e-4 to 2e-4."""
MIN_READINGS = 2400
"""Smallest number of readings, for a standard error below 1 mrad on a small mesh."""
_REACH_RAD = 2.2 * np.pi
COMPARED_SETTINGS = 16
"""Number of settings that are repeated to compare the light; a single one may be dark at a single meter."""
_OFF_SHARE = 0.5
_REPEATED_READINGS = 16
_NOISE_BACKGROUNDS = 2
_DARK_SIGMA = 10.0
_MIN_RELATIVE = 1e-4
MIN_RANDOM = 40
"""Smallest number of random settings of a visit."""
_MIN_HELD_OUT = 3
_MAX_ATTEMPTS = 3
# Sweeps of a heater at the first visit that shows it, and at every later one.
_FIRST_VIEWS, _REPEAT_VIEWS = 4, 2


@dataclass
class HandMeasurement:
    """Readings with fibres moved by hand.

    Settings are numbered as in :meth:`calibration.measure.logbook.Logbook.observations`.

    Attributes:
        random: Random settings for the fit.
        held_out: Settings for the verification.
        fibres: Powers in the output fibres at some of the random settings.
        changes: Changes of the light in the reference setting while the fibres stayed in place.
    """

    survey: Survey
    random: list[int] = field(default_factory=list)
    held_out: list[int] = field(default_factory=list)
    fibres: list[FibreReadings] = field(default_factory=list)
    changes: list[ReferenceChange] = field(default_factory=list)


class HandMeasurements:
    """Measures with fibres that are moved by hand.

    Args:
        driven: Shape ``(2E,)``; heaters that may be used.
        heaters: Receives the law of every heater.
        progress: Called with the stage and the numbers of finished and of all steps.
        on_heater: Called after every sweep with the heater and its law.
    """

    def __init__(
        self,
        logbook: Logbook,
        light: MeanLight,
        device: DeviceUnderTest,
        driven: NDArray[np.bool_],
        heaters: dict[int, HeaterFit],
        sweeps: HeaterSweepPlan,
        rng: np.random.Generator,
        progress: Callable[[str, int, int], None],
        on_heater: Callable[[int, HeaterFit], None],
    ) -> None:
        self._logbook, self._light, self._expected, self._driven = logbook, light, device.heaters, driven
        self._by_hand: dict[Fibre, Sequence[int]] = {"laser": device.sources_by_hand, "meter": device.monitors_by_hand}
        self._plan, self._rng, self._progress, self._on_heater = sweeps, rng, progress, on_heater
        self._heaters = heaters
        probe = logbook.probe
        # Before its sweep, a heater counts as the most efficient one, so that no current exceeds the planned phase.
        nominal_ma = math.sqrt(_REACH_RAD / self._expected.rho2_range[1])
        self._nominal_ma = np.where(driven, min(nominal_ma, probe.heater_max_ma), 0.0)
        self.responses = Responses(
            probe.mesh, tuple(sorted(probe.sources)), probe.monitors, self._expected, driven, self._nominal_ma, rng
        )
        self.visits = plan_visits(self.responses, device.sources_by_hand, device.monitors_by_hand)
        self._swept: dict[int, list[HeaterSweep]] = {heater: [] for heater in np.flatnonzero(driven).tolist()}
        self._patterns: dict[tuple[int, int | None], Real] = {}

    def run(self, settings: int) -> HandMeasurement:
        """Measure in all positions of the fibres; ``settings`` is the total number of random settings.

        Raises:
            CalibrationError: No light arrives, a fibre stays in a wrong port, or no operator can be asked.
        """
        visits, logbook = self.visits, self._logbook
        shares = self.responses.shares(visits, self._by_hand["meter"])
        counts = np.maximum((settings * shares).astype(np.int64), MIN_RANDOM)
        measured: HandMeasurement | None = None
        for number, visit in enumerate(visits):
            self._progress("visits", number, len(visits))
            for fibre, port in visit.moves:
                logbook.plug(fibre, port)
            if measured is None:
                measured = HandMeasurement(self._survey(visit))
            noise = measured.survey.noise
            measured.random += self._arrive(visit, noise.floor_ma)
            logbook.launched_dbm(visit.source)
            self._sweep(visit, noise)
            self._measure_random(visit, measured, int(counts[number]))
            measured.changes.append(self._change(visit, noise))
        self._progress("visits", len(visits), len(visits))
        if measured is None:
            raise CalibrationError("no port gets light", hint="See 'wiring.inputs' in the bench file.")
        return measured

    def _monitors_at(self, visit: Visit) -> list[int]:
        columns = self.responses.columns(visit, self._by_hand["meter"])
        return [self.responses.monitors[column] for column in columns]

    def _change(self, visit: Visit, noise: NoiseModel) -> ReferenceChange:
        """Return how much the light has changed since the beginning of a visit."""
        after = self._logbook.measure_batch(self.responses.currents_ma[:COMPARED_SETTINGS])
        before = self._patterns[visit.source, visit.meter][:COMPARED_SETTINGS]
        return reference_change(visit.source, before.ravel(), after.ravel(), noise)

    def _survey(self, visit: Visit) -> Survey:
        logbook, probe = self._logbook, self._logbook.probe
        columns = self.responses.columns(visit, self._by_hand["meter"])
        off_ma = np.zeros(len(self._driven))
        logbook.light_only_port(None)
        dark = np.array([logbook.measure(off_ma) for _ in range(_REPEATED_READINGS)])[:, columns]
        floor_ma = float(np.hypot(dark_noise_ma(dark), probe.monitor_step_ma / np.sqrt(12.0)))
        level_ma = float(np.median(dark_level_ma(dark, floor_ma)))
        for attempt in range(_MAX_ATTEMPTS):
            logbook.light_only_port(visit.source)
            if np.nanmax(logbook.measure(off_ma)[columns]) - level_ma > _DARK_SIGMA * floor_ma:
                break
            self._is_dark(visit, attempt)
        relative: list[float] = []
        squares = self._nominal_ma**2 * self._rng.random((1 + _NOISE_BACKGROUNDS, len(off_ma)))
        squares[0] = 0.0
        for currents in np.sqrt(squares):
            relative += scatter(
                np.array([logbook.measure(currents) for _ in range(_REPEATED_READINGS)])[:, columns], floor_ma
            )
        share = float(np.sqrt(np.mean(np.square(relative or [0.0]))))
        # A meter that moves has one dark level for all ports.
        dark_ma = dict.fromkeys(probe.monitors, level_ma) if level_ma else {}
        noise = NoiseModel(max(share, _MIN_RELATIVE), floor_ma)
        return Survey(noise, tuple(sorted(probe.sources)), probe.monitors, (), dark_ma)

    def _arrive(self, visit: Visit, floor_ma: float) -> range:
        """Measure until the fibres are at the right ports; return the numbers of these settings.

        Raises:
            CalibrationError: The ports stay dark or wrong.
        """
        logbook, columns = self._logbook, self.responses.columns(visit, self._by_hand["meter"])
        for attempt in range(_MAX_ATTEMPTS):
            logbook.light_only_port(visit.source)
            logbook.measure(np.zeros(len(self._driven)))  # the reference setting
            first = len(logbook)
            readings = logbook.measure_batch(self.responses.currents_ma)
            numbers = range(first, len(logbook))
            if np.nanmax(readings[:, columns]) <= _DARK_SIGMA * floor_ma:
                self._is_dark(visit, attempt)
                continue
            wrong_port = self._wrong_port(visit, readings, floor_ma)
            if wrong_port is None:
                self._patterns[visit.source, visit.meter] = readings
                return numbers
            fibre, port = wrong_port
            requested = dict(visit.moves)[fibre]
            reason = f"The {fibre} seems to be in port {port}, not {requested}."
            if attempt == _MAX_ATTEMPTS - 1:
                break
            logbook.plug(fibre, requested, reason)
        raise CalibrationError(
            f"{reason} It was requested {_MAX_ATTEMPTS} times",
            hint="Check the port numbers of the bench file against the chip, then continue with --resume.",
        )

    def _wrong_port(self, visit: Visit, readings: Real, floor_ma: float) -> tuple[Fibre, int] | None:
        candidates: list[tuple[Fibre, int]] = []
        for fibre, requested in visit.moves:
            stays = visit.meter if fibre == "laser" else visit.source
            earlier_ports = set()
            # A fibre that was forgotten shows exactly the pattern of its former port.
            for (source, meter), before in self._patterns.items():
                port, other_port = (source, meter) if fibre == "laser" else (meter, source)
                if port is None or port == requested or other_port != stays:
                    continue
                if is_same_pattern(before, readings):
                    return fibre, port
                earlier_ports.add(port)
            candidates += [
                (fibre, port) for port in self._by_hand[fibre] if port != requested and port not in earlier_ports
            ]
        return self.responses.find_likely_port(readings, visit, candidates, floor_ma)

    def _is_dark(self, visit: Visit, attempt: int) -> None:
        """Have the fibres of a visit connected again, because no light arrives.

        Raises:
            CalibrationError: This was tried often enough, or no operator can be asked.
        """
        ports = ", ".join(map(str, self._monitors_at(visit)))
        dark = f"Light from the laser at port {visit.source} does not reach the meter at port {ports}."
        if attempt == _MAX_ATTEMPTS - 1:
            raise CalibrationError(
                dark.rstrip("."), hint="Check laser, meter, fibres and facets, then continue with --resume."
            )
        for fibre, port in visit.moves:
            self._logbook.plug(fibre, port, dark)

    def _sweep(self, visit: Visit, noise: NoiseModel) -> None:
        limit, is_visible = self._plan.turn_sigma_rad, self.responses.visible(visit.source, self._monitors_at(visit))
        pending = [
            heater
            for heater in self._swept
            if is_visible[heater] and not self._heaters.get(heater, NOT_SWEPT).turn_sigma_rad < limit
        ]
        if not pending:
            return
        views = _REPEAT_VIEWS if any(self._swept[heater] for heater in pending) else _FIRST_VIEWS
        sweeps = HeaterSweeps(
            self._logbook, self._light, (visit.source,), noise, self._expected, self._plan, self._rng, self._driven,
            earlier={heater: self._swept[heater] for heater in pending}, views=views,
        )  # fmt: skip
        sweeps.run(self._heaters, partial(self._progress, "sweeps"), self._on_heater)

    def _measure_random(self, visit: Visit, measured: HandMeasurement, count: int) -> None:
        logbook, probe = self._logbook, self._logbook.probe
        max_ma = self._nominal_ma.copy()
        for heater, fit in self._heaters.items():
            if fit.law is not None:
                max_ma[heater] = fit.law.current_ma(min(_REACH_RAD, fit.law.max_phase_rad))
        changed = usually_changed(probe.mesh)
        walk = IncrementalSettings(max_ma, (visit.source,), probe.monitors, changed=changed, off_share=_OFF_SHARE)
        currents = walk.random(count, self._rng).currents_ma
        first = len(logbook)
        logbook.light_only_port(visit.source)
        logbook.measure_batch(currents[:-SETTINGS_PER_SOURCE])
        for setting in currents[-SETTINGS_PER_SOURCE:]:
            logbook.measure(setting)
            measured.fibres.append(FibreReadings(len(logbook) - 1, logbook.fibre_dbm()))
        measured.random += range(first, len(logbook))
        held_out = max(-(-SETTINGS // len(self.visits)), _MIN_HELD_OUT)
        first = len(logbook)
        logbook.measure_batch(walk.random(held_out, self._rng).currents_ma)
        measured.held_out += range(first, len(logbook))
        self._progress("random settings", len(measured.random), len(measured.random))
