"""Measure a programmed matrix on the chip, and refine it in a closed loop.

Light enters one input at a time, so a power meter alone sees the squared amplitudes. Readings in settings around the
programmed one let light of all paths interfere on the chip. A fit of the mesh model to these readings, with the record
as prior, gives the phases too, and what the record does not know of the chip as it is now.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from calibration.fit.drift import prior_of
from calibration.fit.global_fit import FitResult, GlobalFit
from calibration.measure.bench_probe import BenchProbe
from calibration.measure.logbook import Logbook
from calibration.measure.probe import tune_to_record
from calibration.model.arrays import Real
from calibration.model.likelihood import Likelihood, SettingDrift
from calibration.model.observations import NoiseModel, select_monitors
from calibration.model.priors import Prior
from calibration.model.space import space_from_record
from calibration.model.symmetric import Sparse, inverse_of
from calibration.record.conversion import build_record, dark_by_port_ma, model_of_record, origin_from_record
from calibration.run.blas_threads import one_blas_thread
from calibration.run.bootstrap import Progress
from calibration.run.renewal import RecordPosterior
from lumion_hw.bench.bench import Bench
from lumion_hw.errors import ConfigError
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.heater_currents import HeaterLimits
from lumion_hw.mesh.programming.interferometer import passed_pucs
from lumion_hw.mesh.programming.matrix import (
    MatrixModel,
    MatrixPlace,
    MatrixSetting,
    amplitude_fidelity,
    fidelity_up_to_port_phases,
    port_phases,
    source_detunings_hz,
)
from lumion_hw.mesh.programming.prediction import sample_cells
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.scattering import Solver

Complex = NDArray[np.complex128]

READINGS = 200
"""Most readings of one measurement: one input lit in one setting, all outputs read."""
ROUNDS = 5
"""Most rounds of a refinement."""
_MIN_NEAR_SETTINGS, _MAX_NEAR_SETTINGS = 3, 24
# Phase by which heaters differ from the programmed setting: enough to turn phases into power, near enough that the
# same corrections hold.
_NEAR_RAD = 0.4
# Standard deviation of what a record does not know: drift since it was made, effects that no row of the model has. The
# smallest that explains the readings is used.
_UNKNOWN_RAD = (0.001, 0.005, 0.02, 0.08, 0.3)
_UNKNOWN_SOURCE_DB = 0.1
_EXPLAINED_CHI2 = 1.3
# A phase counts as measured if the readings alone give it this well.
_MEASURED_RAD = 0.2
_DRAWS = 64
_TURN_RAD = 1.8
"""Standard deviation of a phase of which nothing is known: uniform over a turn."""
# Noise of a reading, for records without this value (assumed). Range steps and ripple are no smaller than the minimum.
_RELATIVE, _MIN_RELATIVE, _MIN_FLOOR_MA = 0.005, 1e-3, 1e-9
_DRIFT = SettingDrift(power_db=0.02, common_phase_rad=3e-3)
# A correction that is predicted to gain less than this share of the missing fidelity is not made.
_MIN_GAIN = 0.1


@dataclass(frozen=True)
class Fidelity:
    """A fidelity and its standard error."""

    value: float
    sigma: float

    def __str__(self) -> str:
        """Return the value with its standard error."""
        return f"{self.value:.5f} ± {self.sigma:.5f}"


@dataclass(frozen=True, eq=False)
class MatrixMeasurement:
    """A matrix as measured on the chip.

    Attributes:
        setting: The setting that was measured.
        powers: Shape ``(outputs, inputs)``; share of the power of each input that leaves at each output, as read.
        powers_sigma: Standard errors of the powers.
        matrix: Shape ``(outputs, inputs)``; field from inputs to outputs that explains the readings, with phases at the
            ports that bring it as near to the wanted matrix as possible.
        phase_sigma_rad: Standard errors of its phases.
        phases_are_measured: Whether the readings alone give all phases; otherwise they rest on the record too.
        amplitude: Amplitude fidelity Σ|U||V| / √(Σ|U|² Σ|V|²), which ignores all phases.
        phase_true: Fidelity |tr U†V|² / (tr U†U · tr V†V), apart from phases at the ports.
        columns: For each input, the similarity (Σ √(pq))² of wanted and measured powers p and q, each with a sum of 1.
        readings: Number of readings.
    """

    setting: MatrixSetting
    powers: Real
    powers_sigma: Real
    matrix: Complex
    phase_sigma_rad: Real
    phases_are_measured: bool
    amplitude: Fidelity
    phase_true: Fidelity
    columns: tuple[Fidelity, ...]
    readings: int


def heater_limits(bench: Bench) -> HeaterLimits:
    """Return the limits of the mesh controller of a bench."""
    controller = bench.model.devices[bench.model.mesh_section.controller]
    total_mw = float(getattr(controller, "total_power_mw", math.inf))
    return HeaterLimits(total_mw, bench.mesh.controller.info.current_step_ma)


@one_blas_thread()
def measure_matrix(
    bench: Bench,
    record: CalibrationRecord,
    setting: MatrixSetting | None = None,
    *,
    readings: int = READINGS,
    seed: int = 0,
    on_step: Progress = lambda stage, done, total: None,
) -> MatrixMeasurement:
    """Measure the matrix of a mesh on an open bench; heaters and light are off afterwards.

    Sources are tuned as in the record, and polarizations aligned. Nothing is measured if an input has no source or an
    output no monitor.

    Args:
        bench: The open bench.
        record: Calibration record of its mesh.
        setting: The programmed matrix, from :func:`lumion_hw.mesh.program_matrix`; by default that of the present
            heater currents, which is compared with the prediction of the record.
        readings: Most readings: one input lit in one setting, all outputs read.
        seed: Seed of the settings around the programmed one.
        on_step: Called with the stage, the readings done and their number.

    Raises:
        ConfigError: An input has no source, or an output no monitor.
        CalibrationError: The record belongs to another bench, or has no covariance or no loop phases.
        LumionError: A device failed; heaters and light are off.
    """
    setting = setting or present_setting(bench, record)
    with contextlib.closing(_MatrixRun(bench, record, setting, seed, on_step)) as run:
        return run.measure(readings)


def present_setting(bench: Bench, record: CalibrationRecord) -> MatrixSetting:
    """Return the matrix that the record predicts for the present heater currents, between all sources and monitors.

    Raises:
        CalibrationError: The record belongs to another bench.
        ConfigError: No monitor is behind the sources.
    """
    bench.mesh.check_record(record)
    mesh = record.mesh
    inputs = tuple(sorted(space_from_record(record).sources))
    outputs = tuple(
        port
        for port in sorted(record.monitor_ports)
        if port not in inputs and any(mesh.reaches(source, port) for source in inputs)
    )
    if not outputs:
        raise ConfigError(
            "no monitor is behind the sources of this record, so no matrix can be measured",
            hint="Calibrate with monitors at the outputs.",
        )
    known = CalibratedMesh.from_record(record, bench.mesh.heater_max_ma)
    place = MatrixPlace(inputs, outputs, passed_pucs(mesh, inputs, outputs), ignores_port_phases=True)
    currents_ma = bench.mesh.confirmed_currents_ma()
    model = MatrixModel(known, np.ones((len(outputs), len(inputs)), np.complex128), place, source_detunings_hz(record))
    predicted = MatrixModel(known, model.matrix(currents_ma), place, source_detunings_hz(record))
    return predicted.setting(known.own_rad(currents_ma), heater_limits(bench))


@one_blas_thread()
def refine_matrix(
    bench: Bench,
    record: CalibrationRecord,
    setting: MatrixSetting,
    *,
    rounds: int = ROUNDS,
    readings: int = READINGS,
    seed: int = 0,
    on_step: Progress = lambda stage, done, total: None,
) -> list[MatrixMeasurement]:
    """Measure a programmed matrix and correct it until nothing is gained; heaters and light are off afterwards.

    There are at most ``rounds`` corrections, with at most ``readings`` readings before each. All other arguments, and
    the errors, are those of :func:`measure_matrix`.

    Returns:
        The measurement before each correction, and that of the last setting, which is its ``setting``.
    """
    history: list[MatrixMeasurement] = []
    with contextlib.closing(_MatrixRun(bench, record, setting, seed, on_step)) as run:
        for _ in range(rounds + 1):
            history.append(run.measure(readings))
            corrected, reached = run.corrected_setting(), history[-1].phase_true
            gain = corrected.fidelity - reached.value
            if len(history) > rounds or gain < max(_MIN_GAIN * (1.0 - reached.value), reached.sigma):
                break
            run.setting = corrected
    return history


class _MatrixRun:
    """Measurement and refinement of one matrix on one bench.

    Sources are tuned as in the record, and polarizations aligned. Arguments and errors are those of
    :func:`measure_matrix`.

    Attributes:
        setting: The setting that is measured next.
    """

    def __init__(
        self, bench: Bench, record: CalibrationRecord, setting: MatrixSetting, seed: int, on_step: Progress
    ) -> None:
        probe = BenchProbe(bench)
        probe.check_input_ports_match_record(record)
        self._posterior = RecordPosterior.of(record)
        self._record, self._limits, self._on_step = record, heater_limits(bench), on_step
        self._space = space_from_record(record)
        self._unknown = 0
        for ports, available, word in (
            (setting.inputs, set(probe.sources) & set(self._space.sources), "source"),
            (setting.outputs, set(probe.monitors) & set(self._space.monitors), "monitor"),
        ):
            if missing := [port for port in ports if port not in available]:
                raise ConfigError(
                    f"port {missing[0]} has no {word} in this record and bench, so the matrix cannot be measured",
                    hint="Give inputs with sources and outputs with monitors, or program without measuring.",
                )
        self._logbook = Logbook(probe)
        self._rng = np.random.default_rng(np.random.SeedSequence([seed, 0x3A7]))
        self._model = model_of_record(record)
        self._place = MatrixPlace(
            setting.inputs, setting.outputs, setting.pucs, (), ignores_port_phases=setting.ignores_port_phases
        )
        self._calibrated = CalibratedMesh.from_record(record)
        self._detunings_hz = source_detunings_hz(record)
        self._dark_ma = dark_by_port_ma(record)
        self._wanted, self.setting = setting.wanted, setting
        tune_to_record(probe, record)
        probe.align_all()

    def close(self) -> None:
        """Switch heaters and light off."""
        self._logbook.switch_everything_off()

    def corrected_setting(self) -> MatrixSetting:
        """Return the setting that comes nearest to the wanted matrix on the chip as measured."""
        model = MatrixModel(self._calibrated, self._wanted, self._place, self._detunings_hz)
        own = np.minimum(self._calibrated.own_rad(self.setting.currents_ma), self._calibrated.reach_rad)
        return model.setting(model.refined(own), self._limits)

    def measure(self, readings: int) -> MatrixMeasurement:
        """Measure the present setting with settings around it, with about so many readings."""
        inputs = self.setting.inputs
        n_near = int(np.clip(readings // len(inputs) - 1, _MIN_NEAR_SETTINGS, _MAX_NEAR_SETTINGS))
        plan = np.stack([self.setting.currents_ma, *(self._near_ma() for _ in range(n_near))])
        first = len(self._logbook)
        for number, port in enumerate(inputs):
            self._logbook.light_only_port(port)
            self._logbook.measure_batch(plan)
            self._on_step("matrix", (number + 1) * len(plan), len(inputs) * len(plan))
        fit = self._fit()
        covariance = self._covariance(fit, fit.prior_information)
        origin = origin_from_record(self._record)
        self._calibrated = CalibratedMesh.from_record(build_record(self._space, fit.parameters, origin, covariance))
        samples = self._samples(self._calibrated)
        flat = self._covariance(fit, self._prior(_TURN_RAD).information(fit.free))
        without_record = CalibratedMesh.from_record(build_record(self._space, fit.parameters, origin, flat))
        powers, drawn = self._powers(fit, covariance, first, len(plan))

        def fidelity(of: Callable[[Real], float]) -> Fidelity:
            return Fidelity(of(powers), float(np.std([of(draw) for draw in drawn])))

        fidelities = [fidelity_up_to_port_phases(self._wanted, sample) for sample in samples]
        matrix = self._solve(self._calibrated.cells(self.setting.currents_ma))
        return MatrixMeasurement(
            self.setting,
            powers,
            drawn.std(axis=0),
            self._turned(matrix),
            self._phase_sigma_rad(samples),
            bool(self._phase_error_rad(self._samples(without_record)) < _MEASURED_RAD),
            fidelity(
                lambda shares: amplitude_fidelity(self._wanted, np.sqrt(np.maximum(shares, 0.0)).astype(np.complex128))
            ),
            Fidelity(float(np.mean(fidelities)), float(np.std(fidelities))),
            tuple(fidelity(partial(_statistical_fidelity, self._wanted, column)) for column in range(len(inputs))),
            len(inputs) * len(plan),
        )

    def _near_ma(self) -> Real:
        """Return the currents of a setting around the programmed one."""
        own = self._calibrated.own_rad(self.setting.currents_ma)
        arms = [2 * puc + arm for puc in sorted(self.setting.pucs) for arm in (0, 1)]
        moved = own.copy()
        moved[arms] += _NEAR_RAD * self._rng.standard_normal(len(arms))
        live = self._calibrated.max_ma > 0.0
        # Reflected at both ends of the range: a clipped phase would often be the same.
        reach = self._calibrated.reach_rad
        moved = np.where(live, np.clip(reach - np.abs(reach - np.abs(moved)), 0.0, reach), 0.0)
        return self._calibrated.currents_ma(moved)

    def _fit(self) -> FitResult:
        observations = select_monitors(self._logbook.observations(unreached=True), self._space.monitors, self._dark_ma)
        likelihood = Likelihood(observations, self._noise(), drift=_DRIFT)
        start = self._posterior.parameters
        for unknown_rad in _UNKNOWN_RAD[self._unknown :]:
            fit = GlobalFit(self._model, likelihood, self._prior(unknown_rad), self._posterior.free).run(
                start, near=True
            )
            if fit.discrepancy == 0.0 and fit.chi2_per_reading < _EXPLAINED_CHI2:
                break
            self._unknown = min(self._unknown + 1, len(_UNKNOWN_RAD) - 1)
        return fit

    def _prior(self, unknown_rad: float) -> Prior:
        added = np.zeros(self._space.size)
        added[self._space.mask(("passive_phase_rad", "loops"))] = unknown_rad**2
        # A heater that has aged is off by this phase after a turn.
        rho2 = self._space.group("rho2")
        added[rho2] = (unknown_rad / (2.0 * math.pi) * self._posterior.vector[rho2]) ** 2
        added[self._space.mask(("source_db",))] = _UNKNOWN_SOURCE_DB**2
        return prior_of(self._posterior.vector, self._posterior.matrix + np.diag(added), self._posterior.free)

    def _covariance(self, fit: FitResult, prior_information: Sparse) -> Real:
        covariance = np.zeros((self._space.size, self._space.size))
        covariance[np.ix_(fit.free, fit.free)] = inverse_of(fit.information + prior_information)
        return covariance

    def _noise(self) -> NoiseModel:
        quality = self._record.quality
        floor_ma = max(quality.get("monitor_noise_floor_ma", 0.0), _MIN_FLOOR_MA)
        return NoiseModel(max(quality.get("monitor_noise_relative", _RELATIVE), _MIN_RELATIVE), floor_ma)

    def _powers(self, fit: FitResult, covariance: Real, first: int, settings: int) -> tuple[Real, Real]:
        """Return the measured power shares of the programmed setting, ``(outputs, inputs)``, and random samples."""
        ports, parameters, noise = self._space.monitors, fit.parameters, self._noise()
        observations = select_monitors(self._logbook.observations(first, unreached=True), ports, self._dark_ma)
        read = observations.reading_ma[::settings]
        columns = [ports.index(port) for port in self.setting.outputs]
        sources = [self._space.sources.index(port) for port in self.setting.inputs]
        entering_mw = 10.0 ** (0.1 * parameters.source_db[sources])
        scale = parameters.monitor_ma_per_mw[columns][:, None] * entering_mw
        reading_ma = read[:, columns].T
        relative = _DRIFT.power_db * math.log(10.0) / 10.0
        sigma_ma = np.hypot(noise.sigma_ma(np.maximum(reading_ma, 0.0)), relative * reading_ma)
        levels = [
            *(self._space.groups["monitor_db"].start + np.array(columns)),
            *(self._space.groups["source_db"].start + np.array(sources)),
        ]
        rng = np.random.default_rng(0)
        # Sources and monitors are known from the same fit, so their errors are correlated.
        drawn_db = rng.multivariate_normal(np.zeros(len(levels)), covariance[np.ix_(levels, levels)], _DRAWS)
        at_output_db, at_input_db = drawn_db[:, : len(columns), None], drawn_db[:, None, len(columns) :]
        noisy_ma = reading_ma + sigma_ma * rng.standard_normal((_DRAWS, *reading_ma.shape))
        drawn = noisy_ma / scale * 10.0 ** (-0.1 * (at_output_db + at_input_db))
        return np.maximum(reading_ma, 0.0) / scale, drawn

    def _solve(self, cells: UnitCells) -> Complex:
        solver, columns = Solver(self._space.mesh), []
        for port in self.setting.inputs:
            fields = solver.solve(cells, cells.reference_hz + self._detunings_hz.get(port, 0.0), [port])
            columns.append(fields[..., list(self.setting.outputs), :])
        return np.concatenate(columns, axis=-1)

    def _samples(self, calibrated: CalibratedMesh) -> Complex:
        return self._solve(sample_cells(calibrated, self.setting.currents_ma, _DRAWS))

    def _turned(self, matrix: Complex) -> Complex:
        at_output, at_input = port_phases(self._wanted, matrix)
        return at_output[:, None] * matrix * at_input

    def _phase_sigma_rad(self, samples: Complex) -> Real:
        turned = np.array([self._turned(sample) for sample in samples])
        mean = turned.mean(axis=0)
        deviation: Real = np.angle(turned * mean.conj()).std(axis=0)
        return deviation

    def _phase_error_rad(self, samples: Complex) -> float:
        """Return the rms phase error of all elements, weighted by their power."""
        weight = np.abs(samples).mean(axis=0) ** 2
        return float(np.sqrt((weight * self._phase_sigma_rad(samples) ** 2).sum() / weight.sum()))


def _statistical_fidelity(wanted: Complex, column: int, powers: Real) -> float:
    shares, measured = np.abs(wanted[:, column]) ** 2, np.maximum(powers[:, column], 0.0)
    return float(np.sqrt(shares * measured).sum() ** 2 / (shares.sum() * max(measured.sum(), 1e-300)))
