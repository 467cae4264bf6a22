"""Extension of a calibration from one wavelength to a range.

The group delay of a PUC, and the slopes of differential phases and coupler angles over frequency, are measured; other
parameters keep their values (docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibration.fit.frequencies import find_detunings
from calibration.fit.global_fit import GlobalFit
from calibration.measure.design import IncrementalSettings
from calibration.measure.logbook import Logbook
from calibration.measure.probe import TUNING_ERROR_HZ, tune_sources
from calibration.model.arrays import Real
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import Observations, select_monitors
from calibration.model.parameters import MeshParameters
from calibration.model.priors import PRIOR_SIGMA, Prior
from calibration.model.space import ParameterSpace
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.record.calibration_record import Conditions
from lumion_hw.quantities import frequency_hz_from_wavelength_m, wavelength_m_from_frequency_hz

SLOPES = ("delay_s", "differential_slope_rad_per_hz", "coupler_slope_rad_per_hz")
"""Parameter groups that describe the wavelength dependence."""
DELAY_SPREAD = 0.05
"""Relative prior spread of the group delay (assumption)."""
# Random settings at every requested wavelength, and at intermediate steps.
_SETTINGS, _STEP_SETTINGS = 48, 24
# Spread of the power relative to that at the reference: laser, polarization, facets.
_LEVEL_SPREAD_DB = 2.0
# Standard error of the common phase of a PUC that limits a step. All paths between two ports differ by an even number
# of PUCs (docs/mesh.md#routes), so a scan of three sigmas either way, below π/2, contains one branch only.
_REACH_RAD = 0.4
_SCAN_SIGMAS = 3.0
_MIN_GAIN = 1.3
_MIN_PER_SOURCE = 2
# χ² per degree of freedom above which a wavelength is reported as not explained. The limit is higher than for a renewal
# (docs/calibration.md, 6), because the fixed parameters are known to a milliradian only.
_UNEXPLAINED = 2.0


@dataclass(frozen=True, eq=False)
class AtWavelength:
    """Fit result at one wavelength.

    Attributes:
        tuning_error_hz: Frequency error of the source, by port.
        level_db: Power of the source relative to the reference wavelength, by port.
    """

    wavelength_nm: float
    chi2_per_dof: float
    converged: bool
    tuning_error_hz: Mapping[int, float]
    level_db: Mapping[int, float]


@dataclass(frozen=True, eq=False)
class Extended:
    """A calibration for a range of wavelengths.

    Attributes:
        parameters: The mesh with fitted delay and slopes.
        covariance: Shape ``(3, 3)``; covariance of the :data:`SLOPES`.
        wavelengths_nm: All calibrated wavelengths, in ascending order.
    """

    parameters: MeshParameters
    covariance: Real
    results: tuple[AtWavelength, ...]
    wavelengths_nm: tuple[float, ...]

    def within(self, covariance: Real, space: ParameterSpace) -> Real:
        """Return the covariance of all parameters, ``(size, size)``, with delay and slopes added."""
        result = covariance.copy()
        columns = [space.group(name).start for name in SLOPES]
        result[columns, :] = result[:, columns] = 0.0
        result[np.ix_(columns, columns)] = self.covariance
        return result

    @property
    def unseen_nm(self) -> float | None:
        """Middle of the widest gap between wavelengths; ``None`` for one wavelength."""
        if len(self.wavelengths_nm) < 2:
            return None
        widest = int(np.argmax(np.diff(self.wavelengths_nm)))
        return 0.5 * (self.wavelengths_nm[widest] + self.wavelengths_nm[widest + 1])

    def conditions(self, conditions: Conditions) -> Conditions:
        """Return the conditions of a record for the calibrated wavelengths."""
        low_nm, high_nm = conditions.wavelength_range_nm or (self.wavelengths_nm[0], self.wavelengths_nm[-1])
        ends_nm = min(low_nm, self.wavelengths_nm[0]), max(high_nm, self.wavelengths_nm[-1])
        return replace(conditions, wavelengths_nm=self.wavelengths_nm, wavelength_range_nm=ends_nm)

    def quality(self) -> dict[str, float]:
        """Return figures for ``quality`` of the record."""
        levels = [abs(level) for result in self.results for level in result.level_db.values()]
        return {
            "wavelengths": float(len(self.wavelengths_nm)),
            "wavelengths_chi2_per_dof": max((result.chi2_per_dof for result in self.results), default=0.0),
            "wavelengths_level_change_db": max(levels, default=0.0),
            "delay_sigma_fs": 1e15 * float(np.sqrt(self.covariance[0, 0])),
        }

    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each wavelength at which the fit does not explain the readings."""
        return tuple(
            f"at {result.wavelength_nm:.3f} nm the readings deviate from the calibration at the reference wavelength "
            f"(χ² per degree of freedom {result.chi2_per_dof:.2f})"
            for result in self.results
            if not result.converged or result.chi2_per_dof > _UNEXPLAINED
        )


class WavelengthExtension:
    """Measures and fits at further wavelengths.

    Args:
        parameters: The mesh as fitted at the reference.
        likelihood: Supplies noise and drift of readings.
        walk_ma: Shape ``(heaters,)``; largest current of every heater.
        reported_frequencies_hz: Reported frequency of every tunable source at the reference, by port.
        dark_ma: Monitor readings without light, by port; by default 0.
        on_step: Called after every setting with its number and the smallest total number.
    """

    def __init__(
        self,
        logbook: Logbook,
        model: MeshModel,
        parameters: MeshParameters,
        likelihood: Likelihood,
        walk_ma: Real,
        reported_frequencies_hz: Mapping[int, float],
        reference_nm: float,
        seed: int,
        dark_ma: Mapping[int, float],
        on_step: Callable[[int, int], None] = lambda step, total: None,
    ) -> None:
        self._logbook, self._model, self._likelihood = logbook, model, likelihood
        self._reference, self._reference_hz = parameters, frequency_hz_from_wavelength_m(reference_nm * 1e-9)
        self._reported_hz = {port: hz for port, hz in reported_frequencies_hz.items() if port in model.space.sources}
        self._dark_ma, self._on_step = dark_ma, on_step
        self._walk = IncrementalSettings(walk_ma, tuple(self._reported_hz), model.space.monitors)
        self._rng = np.random.default_rng(np.random.SeedSequence([seed, 0x3A3E]))
        # Mean, shape (3,), and covariance, shape (3, 3), of the slopes; at first those of the prior.
        self._mean = np.array([getattr(parameters, name) for name in SLOPES])
        sigma = np.array([DELAY_SPREAD * parameters.delay_s, PRIOR_SIGMA[SLOPES[1]], PRIOR_SIGMA[SLOPES[2]]])
        self._covariance: Real = np.diag(sigma**2)
        self._results: list[AtWavelength] = []
        self._used_nm = {reference_nm}
        self._measured_count = self._total = 0

    def run(self, wavelengths_nm: Sequence[float]) -> Extended:
        """Measure at the requested and at intermediate wavelengths; afterwards tune all sources back.

        After an error the sources are not tuned back.

        Raises:
            CalibrationError: No source is tunable, or the delay is too uncertain for the next wavelength.
            LimitError: A source cannot reach a wavelength.
        """
        if not self._reported_hz:
            raise CalibrationError("no tunable source feeds the mesh", hint="Check the faults in the record.")
        offsets = {frequency_hz_from_wavelength_m(nm * 1e-9) - self._reference_hz for nm in wavelengths_nm}
        offsets = {offset_hz for offset_hz in offsets if abs(offset_hz) > TUNING_ERROR_HZ}
        self._total = _SETTINGS * len(offsets)
        self._extend_in_steps(sorted(offsets, key=abs))
        tune_sources(self._logbook, self._reference_hz, self._reported_hz)
        return Extended(
            self._current_parameters(), self._covariance, tuple(self._results), tuple(sorted(self._used_nm))
        )

    @property
    def _delay_sigma_s(self) -> float:
        return float(np.sqrt(self._covariance[0, 0]))

    def _extend_in_steps(self, offsets_hz: list[float]) -> None:
        last_hz = 0.0  # length of the last step, if no requested wavelength followed
        while offsets_hz:
            # The step is limited by the error of the delay, so that every loop stays on its branch.
            reach_hz = _REACH_RAD / (2.0 * np.pi * self._delay_sigma_s)
            if abs(offsets_hz[0]) <= reach_hz:
                self._used_nm.add(self._extend_to(offsets_hz.pop(0), _SETTINGS))
                last_hz = 0.0
                continue
            # Steps must grow, or the light would never reach the wavelength.
            if reach_hz < _MIN_GAIN * last_hz:
                raise CalibrationError(
                    f"the group delay is known to {1e15 * self._delay_sigma_s:.2g} fs only, too uncertain to "
                    f"predict light {1e-9 * abs(offsets_hz[0]):.0f} GHz from the reference",
                    hint="Choose wavelengths that are closer together, or use sources with better frequency accuracy.",
                )
            self._total += _STEP_SETTINGS
            self._extend_to(float(np.sign(offsets_hz[0])) * reach_hz, _STEP_SETTINGS)
            last_hz = reach_hz

    def _extend_to(self, requested_hz: float, settings: int) -> float:
        observations = self._measure_at(requested_hz, settings)
        offset_hz = float(observations.detunings_hz.mean())
        wavelength_nm = round(wavelength_m_from_frequency_hz(self._reference_hz + offset_hz) * 1e9, 3)
        likelihood = replace(self._likelihood, observations=observations)
        start = self._scan_frequencies(likelihood, offset_hz)
        space = self._model.space
        sources = [space.sources.index(port) for port in self._reported_hz]
        free = space.mask(SLOPES)
        for name in ("source_detuning_hz", "source_db"):
            free[space.group(name).start + np.array(sources)] = True
        fit = GlobalFit(self._model, likelihood, self._prior(), free).run(start)
        columns = [space.group(name).start for name in SLOPES]
        # The fixed parameters are known to a milliradian only, so a misfit increases the errors of this result.
        spread = max(fit.chi2_per_dof, 1.0)
        self._mean = fit.vector[columns]
        self._covariance = fit.covariance()[np.ix_(columns, columns)] * spread
        parameters = self._current_parameters()
        numbers = dict(zip(self._reported_hz, sources, strict=True))
        off_hz = np.asarray(fit.parameters.source_detuning_hz) - np.asarray(parameters.source_detuning_hz)
        level_db = fit.parameters.source_db - parameters.source_db
        self._results.append(
            AtWavelength(
                wavelength_nm,
                fit.chi2_per_dof,
                fit.converged,
                {port: float(off_hz[number]) for port, number in numbers.items()},
                {port: float(level_db[number]) for port, number in numbers.items()},
            )
        )
        return wavelength_nm

    def _measure_at(self, offset_hz: float, settings: int) -> Observations:
        reached_hz = tune_sources(self._logbook, self._reference_hz + offset_hz, self._reported_hz)
        first = len(self._logbook)
        settings = max(settings, _MIN_PER_SOURCE * len(self._reported_hz))
        currents = self._walk.random(settings, self._rng).currents_ma
        for port, part in zip(self._reported_hz, np.array_split(currents, len(self._reported_hz)), strict=True):
            self._logbook.light_only_port(port)
            self._logbook.measure_batch(part)
            self._measured_count += len(part)
            self._on_step(self._measured_count, self._total)
        selected = select_monitors(self._logbook.observations(first), self._model.space.monitors, self._dark_ma)
        moved_hz = {port: hz - self._reported_hz[port] for port, hz in reached_hz.items()}
        return replace(selected, detuning_hz=np.array([moved_hz[int(port)] for port in selected.source]))

    def _current_parameters(self) -> MeshParameters:
        slopes = dict(zip(SLOPES, self._mean.tolist(), strict=True))
        # The phases at the reference stay fixed; with another delay the same phase is another frequency.
        shrunk = self._reference.delay_s / slopes[SLOPES[0]]
        own_hz = np.broadcast_to(np.asarray(self._reference.source_detuning_hz), len(self._model.space.sources))
        return replace(self._reference, source_detuning_hz=own_hz * shrunk, **slopes)

    def _scan_frequencies(self, likelihood: Likelihood, offset_hz: float) -> MeshParameters:
        parameters = self._current_parameters()
        spread_rad = 2.0 * np.pi * np.hypot(offset_hz * self._delay_sigma_s, parameters.delay_s * TUNING_ERROR_HZ)
        span_hz = _SCAN_SIGMAS * float(spread_rad) / (2.0 * np.pi * parameters.delay_s)
        fitted = find_detunings(self._model, parameters, likelihood, span_hz)
        source_indices = [self._model.space.sources.index(port) for port in self._reported_hz]
        before, after = np.asarray(parameters.source_detuning_hz), np.asarray(fitted.source_detuning_hz)
        # Frequency errors of lasers are independent, so a common part is the delay of the mesh.
        common_hz = float((after - before)[source_indices].mean())
        own_hz = after.copy()
        own_hz[source_indices] -= common_hz
        return replace(fitted, source_detuning_hz=own_hz, delay_s=parameters.delay_s * (1.0 + common_hz / offset_hz))

    def _prior(self) -> Prior:
        space = self._model.space
        mean = space.pack(self._current_parameters())
        spreads = {"source_detuning_hz": TUNING_ERROR_HZ, "source_db": _LEVEL_SPREAD_DB}
        sigma = space.vector(spreads, otherwise=np.inf)
        precision = np.diag(sigma**-2.0)
        columns = [space.group(name).start for name in SLOPES]
        # Scaled first, because the units differ by many decades.
        scale = np.sqrt(np.diag(self._covariance))
        unit = np.outer(scale, scale)
        precision[np.ix_(columns, columns)] = np.linalg.inv(self._covariance / unit) / unit
        return Prior(mean, sigma, precision)
