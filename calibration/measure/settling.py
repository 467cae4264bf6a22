"""Measurement of the settling time of the heaters with light.

All heaters are stepped at once, and the monitors are read after different waits. Each reading is a power series in
exp(-wait/tau) with the same time constant tau for every monitor.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from calibration.model.arrays import Real
from lumion_hw.errors import CalibrationError

_STEP_RAD = 0.3
"""Largest phase step of a heater, in rad; larger steps give errors by loops, smaller ones by noise."""
_SEARCH_GAIN = 3.0
"""Heat of the step that finds the wait, relative to the other steps."""
_FIRST_S = 1e-3
_LONGER = 4.0
_LONGEST_S = 16.0
"""Longest wait that is tried, in s."""
_READINGS = 6
_PATTERNS = 4
"""Number of heater steps."""
_MIN_STEP_SIGMA = 6.0
_MAX_REMAINING_CHANGE = 1.0 / 200.0
"""Largest remaining fraction of the change at which the light counts as settled: five time constants."""
_LADDER = (0.0, 1.0 / 64.0, 1.0 / 32.0, 1.0 / 16.0, 1.0 / 8.0, 1.0 / 4.0, 1.0 / 2.0, 1.0)
_REMAINING_NOISE_SIGMA = 3.0
"""Rest time before each step, as a multiple of the wait."""
_GRIDS = 4
"""Grids of the time constant, each 30 times finer than the one before."""
_TERMS = (2, 3)
_AS_GOOD = 1.5
"""A shorter power series is used if its mean squared residual is at most this multiple."""
_CHECK_GAIN = 15.0
"""Heat of the steps that check the settling, relative to the others: up to 4.5 rad, which shows single slow heaters."""
_CHECK_TAUS = 5.0
"""Time constants after which large steps must have settled."""
_MIXED = 0.01
"""Unexplained fraction of the variance above which the heaters may have different time constants; with one time
constant, half of this stays unexplained at most."""
_MAX_DECREASE = 0.04
"""Largest change after ``_CHECK_TAUS`` relative to that after half of it, if all heaters are alike; usual is 0.01."""
_SLOW_SIGMA = 6.0
"""Change of a reading that shows a slow heater: one in a billion by noise."""
_MIN_CHECKED_LEVEL = 0.1
"""Smallest level of a checked monitor, relative to the brightest; the noise of others is unknown."""
_ROUNDING = 2e-4
"""Smallest relative noise, for meters that round to 0.001 dB."""
_EXPLAINED = 0.25
"""Largest unexplained fraction of the variance; above it, the light did not change."""


class StepResponse(Protocol):
    """Reads the light of a mesh at a chosen time after a change of the heaters."""

    def read(self, currents_ma: Real, wait_s: float) -> Real:
        """Set the heaters and, after a wait, read all monitors, shape ``(n_monitors,)``; NaN if saturated."""

    def repeat_read(self, wait_s: float) -> Real:
        """Wait and read all monitors again."""


def step_currents_ma(n_heaters: int, p_pi_mw: float, heater_ohm: float, heater_max_ma: float) -> Real:
    """Return the currents of four heater steps in mA, shape ``(4, n_heaters)``, always the same."""
    phase_rad = np.random.default_rng(0x5E77).uniform(0.0, _STEP_RAD, (_PATTERNS, n_heaters))
    currents: Real = np.sqrt(phase_rad / np.pi * p_pi_mw / (heater_ohm * 1e-3))
    return np.minimum(currents, heater_max_ma / math.sqrt(_SEARCH_GAIN))


def heater_time_constant_s(mesh: StepResponse, steps_ma: Real) -> float | None:
    """Measure the thermal time constant of the heaters, which are off before and afterwards.

    Args:
        mesh: The mesh, with light.
        steps_ma: Heater currents, shape ``(steps, 2 n_pucs)``; see :func:`step_currents_ma`.

    Returns:
        The time constant of the slowest heaters in s; ``None`` if the light was settled at every reading or never
        changed.

    Raises:
        CalibrationError: The light never becomes constant.
    """
    off_ma = np.zeros_like(steps_ma[0])
    wait_s = _settling_wait_s(mesh, off_ma, steps_ma[0] * math.sqrt(_SEARCH_GAIN))
    if wait_s is None:
        return None
    waits_s = [share * wait_s for share in _LADDER] + [_LONGER * wait_s]
    readings = []
    # Every reading starts from rest; remaining heat of the previous step would look like slow heaters.
    for after_s in waits_s:
        row = []
        for step_ma in steps_ma:
            mesh.read(off_ma, _REMAINING_NOISE_SIGMA * wait_s)
            row.append(mesh.read(step_ma, after_s))
        readings.append(np.concatenate(row))
    tau_s, is_mixed = _fit_time_constant_s(np.array(waits_s), np.array(readings))
    checked_s = _FIRST_S / _CHECK_TAUS if tau_s is None else tau_s
    # A few slow heaters among many fast ones hardly change the light of small steps.
    while is_mixed and checked_s <= _LONGEST_S and _is_changing(mesh, steps_ma * math.sqrt(_CHECK_GAIN), checked_s):
        tau_s = checked_s = 2.0 * checked_s
    mesh.read(off_ma, _REMAINING_NOISE_SIGMA * wait_s)
    return tau_s


def _is_changing(mesh: StepResponse, steps_ma: Real, tau_s: float) -> bool:
    """Return whether slower heaters change the light five time constants after large steps of all heaters."""
    readings = []
    for step_ma in steps_ma:
        early = mesh.read(step_ma, 0.5 * _CHECK_TAUS * tau_s)
        checked = mesh.repeat_read(0.5 * _CHECK_TAUS * tau_s)
        readings.append((early, checked, mesh.repeat_read(3.0 * _CHECK_TAUS * tau_s), mesh.repeat_read(0.0)))
    early, checked, late, again = np.array(readings).transpose(1, 0, 2)
    final = 0.5 * (late + again)
    level = np.where(np.isfinite(early + checked + final), np.abs(final), 0.0)
    bright = level > _MIN_CHECKED_LEVEL * level.max(initial=0.0)
    if not bright.any():
        return False
    repeated, before, change = (
        values[bright] / level[bright] for values in (again - late, early - final, checked - final)
    )
    noise = max(float(np.std(repeated)) / math.sqrt(2.0), _ROUNDING)
    is_change = np.abs(change).max() > _SLOW_SIGMA * math.sqrt(1.5) * noise
    return bool(is_change and np.linalg.norm(change) > _MAX_DECREASE * np.linalg.norm(before))


def _settling_wait_s(mesh: StepResponse, off_ma: Real, step_ma: Real) -> float | None:
    steady_ma = np.array([mesh.read(off_ma, _FIRST_S), *(mesh.repeat_read(0.0) for _ in range(_READINGS - 1))])
    is_usable = np.isfinite(steady_ma).all(axis=0)
    noise_ma = _MIN_STEP_SIGMA * float(np.sqrt(steady_ma[:, is_usable].var(axis=0, ddof=1).sum()))

    def apart_ma(first_ma: Real, second_ma: Real) -> float:
        return float(np.linalg.norm((first_ma - second_ma)[is_usable & np.isfinite(first_ma - second_ma)]))

    wait_s, before = _FIRST_S, mesh.read(step_ma, _FIRST_S)
    while wait_s <= _LONGEST_S:
        after = mesh.repeat_read((_LONGER - 1.0) * wait_s)
        shifted_currents_ma = apart_ma(before, steady_ma.mean(axis=0))
        settled_ma = max(noise_ma, _MAX_REMAINING_CHANGE * shifted_currents_ma)
        # Constant light has either settled or not yet moved; in the second case it equals the light before the step.
        if shifted_currents_ma > noise_ma and apart_ma(before, after) <= settled_ma:
            return wait_s
        wait_s, before = _LONGER * wait_s, after
    mesh.read(off_ma, 0.0)
    if apart_ma(before, steady_ma.mean(axis=0)) > noise_ma:
        raise CalibrationError(
            f"the light of the mesh still changes {wait_s:.0f} s after a step of the heaters",
            hint="Check light and polarization. Heaters with time constants above one second cannot be calibrated.",
        )
    return None


def _fit_time_constant_s(waits_s: Real, readings_ma: Real) -> tuple[float | None, bool]:
    """Return the time constant, and whether the heaters have different ones."""
    complete_ma = readings_ma[:, np.isfinite(readings_ma).all(axis=0)]
    level = np.abs(complete_ma).mean(axis=0)
    # Noise is relative, except on dark monitors.
    scaled = complete_ma / np.hypot(level, 0.01 * level.max(initial=1e-30))
    # The last wait stands for "settled", so the time constant cannot exceed the wait before it.
    longest_s = waits_s[-2]
    grid = np.log(np.geomspace(longest_s / 128.0, longest_s, 64))
    one_term, two_term = (_best_fit(waits_s, scaled, grid, n_terms) for n_terms in _TERMS)
    # If light is linear in heat, the second power contains only noise, and exp(-t/2τ) explains the readings as well.
    misfit, log_tau = one_term if one_term[0] <= _AS_GOOD * two_term[0] else two_term
    mean_square = float(((scaled - scaled.mean(axis=0)) ** 2).sum()) / ((len(waits_s) - 1) * scaled.shape[1])
    is_mixed = misfit > _MIXED * mean_square
    # The minimum is at the short end of the grid: the heaters are faster than the shortest wait.
    if log_tau <= grid[0] or misfit > _EXPLAINED * mean_square:
        return None, is_mixed
    return math.exp(log_tau), is_mixed


def _best_fit(waits_s: Real, readings: Real, grid: Real, n_terms: int) -> tuple[float, float]:
    """Fit a power series with ``n_terms`` terms; return the mean squared residual and log(tau)."""

    def mean_square_residual(log_tau: float) -> float:
        # Phases follow exp(-t/τ), and powers are nonlinear in phases: a power series whose term 0 is the final level.
        series = np.exp(-waits_s / math.exp(log_tau))[:, None] ** np.arange(n_terms)
        residual = readings - series @ np.linalg.lstsq(series, readings, rcond=None)[0]
        return float((residual**2).sum() / ((len(waits_s) - n_terms) * readings.shape[1]))

    # Finer and finer grids: importing an optimizer would take longer than the whole fit.
    for _ in range(_GRIDS):
        values = [mean_square_residual(point) for point in grid]
        best = int(np.argmin(values))
        fit = values[best], float(grid[best])
        if best == 0:
            break
        grid = np.linspace(grid[best - 1], grid[min(best + 1, len(grid) - 1)], len(grid))
    return fit
