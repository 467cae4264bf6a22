"""Conditions of a calibration, and the ranges in which it is valid.

The ranges are for switching: bar and cross states of single PUCs. Loops are more sensitive: the phase of a loop of six
PUCs changes by 2π · 6 · 11.25 ps · Δf and by 3.6 rad/K.
"""

from __future__ import annotations

import contextlib
import math
from statistics import NormalDist

import numpy as np

from calibration.fit.drift import DriftModel
from calibration.measure.probe import Probe
from calibration.model.priors import PRIOR_SIGMA
from lumion_hw.bench.bench import Bench
from lumion_hw.bench.record_use import source_wavelengths_nm
from lumion_hw.errors import LumionError
from lumion_hw.interfaces.wiring import InputPath
from lumion_hw.mesh.record.calibration_record import Conditions
from lumion_hw.mesh.waves.cell import BASIC_UNIT_DELAY_S
from lumion_hw.quantities import SPEED_OF_LIGHT_M_PER_S, frequency_hz_from_wavelength_m

DAY_S = 86_400.0
LEAKAGE_DB = -30.0
"""Largest allowed leakage of a switch state, in dB: the PUC crosstalk of the chip is below -25 dB, its mean leakage -30
dB (Sánchez-Jácome 2025).
"""
PHASE_TOLERANCE_RAD: float = 2.0 * 10.0 ** (LEAKAGE_DB / 20.0)
"""Phase error with a leakage of ``LEAKAGE_DB``; an error x leaks sin²(x/2)."""
LOOP_TOLERANCE_RAD = 0.1
_LOOP_PUCS = 6
# Temperature coefficient of a heater's resistance (assumption: that of pure metals). At constant current the phase
# changes by the same share.
_RESISTANCE_PER_K = 3e-3
TEMPERATURE_REACH_K: float = PHASE_TOLERANCE_RAD / (2.0 * math.pi * _RESISTANCE_PER_K)
"""Temperature change at which a switch state with a heater at 2π leaks as much as allowed."""
LOOP_REACH_HZ: float = LOOP_TOLERANCE_RAD / (2.0 * math.pi * _LOOP_PUCS * BASIC_UNIT_DELAY_S)
"""Frequency change that changes the phase of a loop of six PUCs by 0.1 rad."""


def wavelength_reach_nm(reference_hz: float) -> float:
    """Return the distance in nm from the measured wavelengths up to which bar and cross states stay valid.

    Assumes a slope of the differential phase of 25 mrad/nm (docs/sources.md).
    """
    reach_hz = PHASE_TOLERANCE_RAD / PRIOR_SIGMA["differential_slope_rad_per_hz"]
    return SPEED_OF_LIGHT_M_PER_S / reference_hz**2 * reach_hz * 1e9


def valid_for_s(n_pucs: int, drift: DriftModel | None = None) -> float:
    """Return the age in s at which the worst switch state of a record is expected to leak more than allowed.

    Passive phases and resistances drift in a random walk; the worst of E PUCs deviates by the quantile 1 - 1/(2E).
    """
    drift = drift or DriftModel()
    # The phase of a heater at half a turn changes by π times the relative change of its resistance.
    per_root_day = math.hypot(drift.passive_phase_rad_per_root_day, math.pi * drift.resistance_per_root_day)
    # The worst PUC decides, because one leaking switch spoils a circuit.
    worst = NormalDist().inv_cdf(1.0 - 0.5 / max(n_pucs, 2))
    return DAY_S * (PHASE_TOLERANCE_RAD / (worst * per_root_day)) ** 2


class ConditionsWatch:
    """Records the conditions of a bench; call it at the beginning and at the end of a calibration."""

    def __init__(self, bench: Bench, probe: Probe) -> None:
        self._bench, self._probe = bench, probe
        self._temperatures_c: list[float] = []

    def __call__(self) -> Conditions:
        """Return the conditions so far and the ranges of validity."""
        bench = self._bench
        with contextlib.suppress(LumionError):  # a failed reading here must not stop a calibration
            temperature_c = bench.mesh.chip_temperature_c()
            if temperature_c is not None:
                self._temperatures_c.append(temperature_c)
        wavelengths = source_wavelengths_nm(bench)
        nominal_nm = float(np.median(wavelengths)) if wavelengths else 1550.0
        reference_hz = frequency_hz_from_wavelength_m(nominal_nm * 1e-9)
        reach_nm = wavelength_reach_nm(reference_hz)
        range_c = (min(self._temperatures_c), max(self._temperatures_c)) if self._temperatures_c else None
        return Conditions(
            reference_hz=reference_hz,
            wavelengths_nm=wavelengths,
            wavelength_range_nm=(min(wavelengths) - reach_nm, max(wavelengths) + reach_nm) if wavelengths else None,
            temperature_range_c=range_c,
            temperature_valid_c=(range_c[0] - TEMPERATURE_REACH_K, range_c[1] + TEMPERATURE_REACH_K)
            if range_c
            else None,
            laser_power_dbm=self._launched_dbm(),
            polarization={str(path.port): self._polarization(path) for path in bench.wiring.inputs},
            ambient=_loops_in_words(reference_hz),
            valid_for_s=valid_for_s(bench.mesh.topology.n_pucs),
            emulated_age_s=bench.emulated_age_s,
            heater_tau_s=bench.mesh.heater_tau_s,
        )

    def _launched_dbm(self) -> float | None:
        powers = []
        for path in self._bench.wiring.inputs:
            with contextlib.suppress(KeyError):  # the source was not used yet, or only together with another one
                powers.append(self._probe.launched_dbm(path.port) - path.gain_db + path.loss_db)
        return float(np.median(powers)) if powers else None

    def _polarization(self, path: InputPath) -> str:
        if path.tributary is not None:
            return f"tributary {path.tributary} of {path.source}, behind a splitter"
        if path.polarization is None:
            return f"not controlled after {path.source} and its fibre"
        dark = path.port not in self._probe.sources
        return f"{path.polarization} found no light" if dark else f"aligned to TE by {path.polarization}"


def _loops_in_words(reference_hz: float) -> str:
    pm = SPEED_OF_LIGHT_M_PER_S / reference_hz**2 * LOOP_REACH_HZ * 1e12
    kelvin = LOOP_TOLERANCE_RAD / (_LOOP_PUCS * DriftModel().common_phase_rad_per_k)
    return (
        f"the ranges hold for bar and cross states with a leakage of {LEAKAGE_DB:g} dB; a loop of six PUCs turns by "
        f"{LOOP_TOLERANCE_RAD:g} rad in {LOOP_REACH_HZ * 1e-9:.2f} GHz ({pm:.1f} pm) or {kelvin * 1e3:.0f} mK"
    )
