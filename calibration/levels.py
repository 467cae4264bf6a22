"""Losses: many random pure states, each a known path, solved together for sources, PUCs, monitors and fibres.

In dB a path's power is a sum: source + PUC losses + monitor. Some combinations are invisible (calibration.md 1.3), so
priors hold them: PUC loss 0.50 ± 0.03 dB, monitors equal within 0.15 dB (more where they sit behind
the facets). Path losses between lit ports, which is what
routing needs, do not depend on the priors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.knowledge import Knowledge
from calibration.probe import Probe
from lumion_hw.mesh.topology import State

SETTINGS_PER_SOURCE = 48
MONITOR_SPREAD_DB = 0.15
"""How far photodiodes on one chip are from nominal."""
_PRIOR_PUC_DB = (0.50, 0.03)
_READING_SIGMA_DB = 0.25
_HUBER_DB = 0.6
_DARK_SIGMA = 30.0


@dataclass(frozen=True)
class Level:
    """A loss in dB and its standard error."""

    value_db: float
    sigma_db: float


@dataclass(frozen=True)
class Levels:
    """What the regression found.

    Attributes:
        puc_loss: One per PUC.
        input_loss: Fibre into mesh, by source port.
        output_loss: Mesh into fibre, by port with an external meter.
        monitor_ma_per_mw: Photocurrent per on-chip power, by monitor port.
        residual_db: Rms residual over all readings.
        n_readings: Readings used.
    """

    puc_loss: tuple[Level, ...]
    input_loss: dict[int, Level]
    output_loss: dict[int, Level]
    monitor_ma_per_mw: dict[int, float]
    residual_db: float
    n_readings: int


@dataclass(frozen=True)
class _Reading:
    """One path seen: where it began and ended, what it passed, how much came out."""

    source: int
    port: int
    pucs: tuple[int, ...]
    on_chip: bool
    loss_db: float


class LossSurvey:
    """Stage three of a calibration.

    Args:
        probe: Access to the mesh.
        knowledge: All PUCs known by now.
        sources: Live sources.
        floor_ma: Reading noise in the dark.
        nominal_ma_per_mw: Nominal responsivity of the monitors.
        rng: Random states.
        monitor_spread_db: How far monitors may be from nominal.
    """

    def __init__(
        self,
        probe: Probe,
        knowledge: Knowledge,
        sources: tuple[int, ...],
        floor_ma: float,
        nominal_ma_per_mw: float,
        rng: np.random.Generator,
        monitor_spread_db: float = MONITOR_SPREAD_DB,
    ) -> None:
        self._probe = probe
        self._known = knowledge
        self._sources = sources
        self._floor_ma = floor_ma
        self._nominal = nominal_ma_per_mw
        self._rng = rng
        self._monitor_spread_db = monitor_spread_db

    def run(self, done: Callable[[int], None]) -> Levels:
        """Measure and solve; ``done`` is called with each source finished."""
        readings: list[_Reading] = []
        for source in self._sources:
            self._probe.light(source)
            launched_dbm = self._probe.launched_dbm(source)
            for _ in range(SETTINGS_PER_SOURCE):
                readings += self._look(source, launched_dbm)
            done(source)
        return self._solve(readings)

    def _look(self, source: int, launched_dbm: float) -> list[_Reading]:
        """Set random states, follow the light, and read what comes out on the chip and in the fibre."""
        mesh = self._probe.mesh
        n_pucs = mesh.n_pucs
        bar = self._rng.random(n_pucs) < 0.5
        states: dict[int, State] = {puc: ("bar" if bar[puc] else "cross") for puc in range(n_pucs)}
        trace = mesh.trace(source, states)
        if set(trace.pucs) & set(self._known.stuck) or trace.port not in self._probe.monitors:
            return []
        current_ma = float(
            self._probe.measure(self._known.setting(states, self._rng))[self._probe.monitors.index(trace.port)]
        )
        if not current_ma > _DARK_SIGMA * self._floor_ma:
            return []
        on_chip_dbm = 10.0 * np.log10(current_ma / self._nominal)
        readings = [_Reading(source, trace.port, trace.pucs, True, launched_dbm - on_chip_dbm)]
        fibre_dbm = self._probe.fibre_dbm().get(trace.port)
        if fibre_dbm is not None:
            readings.append(_Reading(source, trace.port, trace.pucs, False, launched_dbm - fibre_dbm))
        return readings

    def _solve(self, readings: list[_Reading]) -> Levels:
        """Solve for all levels by robust least squares with priors."""
        n_pucs = self._probe.mesh.n_pucs
        monitors = sorted({r.port for r in readings if r.on_chip})
        outputs = sorted({r.port for r in readings if not r.on_chip})
        at_source = {port: n_pucs + i for i, port in enumerate(self._sources)}
        at_monitor = {port: n_pucs + len(at_source) + i for i, port in enumerate(monitors)}
        at_output = {port: n_pucs + len(at_source) + len(monitors) + i for i, port in enumerate(outputs)}
        n_unknown = n_pucs + len(at_source) + len(monitors) + len(outputs)
        design = np.zeros((len(readings), n_unknown))
        for row, reading in enumerate(readings):
            np.add.at(design[row], list(reading.pucs), 1.0)
            design[row, at_source[reading.source]] = 1.0
            design[row, (at_monitor if reading.on_chip else at_output)[reading.port]] = 1.0
        measured = np.array([reading.loss_db for reading in readings])
        prior = np.zeros(n_unknown)
        prior[:n_pucs] = _PRIOR_PUC_DB[0]
        weight = np.full(n_unknown, 1e-3)
        weight[:n_pucs] = 1.0 / _PRIOR_PUC_DB[1]
        weight[list(at_monitor.values())] = 1.0 / self._monitor_spread_db
        solution, sigma, residual_db = _robust(design, measured, prior, weight)

        def level(index: int) -> Level:
            return Level(float(solution[index]), float(sigma[index]))

        return Levels(
            puc_loss=tuple(level(puc) for puc in range(n_pucs)),
            input_loss={port: level(index) for port, index in at_source.items()},
            output_loss={port: level(index) for port, index in at_output.items()},
            monitor_ma_per_mw={
                port: float(self._nominal * 10.0 ** (-solution[index] / 10.0)) for port, index in at_monitor.items()
            },
            residual_db=residual_db,
            n_readings=len(readings),
        )


def _robust(
    design: NDArray[np.float64],
    measured: NDArray[np.float64],
    prior: NDArray[np.float64],
    prior_weight: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return (solution, standard errors, rms residual) of least squares with priors and Huber weights."""
    weights = np.ones(len(measured))
    solution = prior.copy()
    for _ in range(8):
        scaled = design * (np.sqrt(weights) / _READING_SIGMA_DB)[:, None]
        normal = scaled.T @ scaled + np.diag(prior_weight**2)
        pull = scaled.T @ (measured * np.sqrt(weights) / _READING_SIGMA_DB) + prior_weight**2 * prior
        solution = np.asarray(np.linalg.solve(normal, pull), dtype=np.float64)
        residual = np.abs(measured - design @ solution)
        weights = np.minimum(1.0, _HUBER_DB / np.maximum(residual, 1e-9))
    sigma: NDArray[np.float64] = np.sqrt(np.diag(np.linalg.inv(normal)))
    return solution, sigma, float(np.sqrt((residual**2).mean())) if len(residual) else 0.0
