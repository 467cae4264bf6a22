"""The hidden truth of an emulated bench in the terms of a fit. For tests and benchmarks only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibration.model.parameters import MeshParameters
from calibration.model.space import space_of
from calibration.record.conversion import parameters_of
from calibration.report.against_truth import reference_offset_hz
from lumion_hw.bench.bench import Bench
from lumion_hw.mesh.record import CalibrationRecord

Real = NDArray[np.float64]

_PER_PM = 2.0 * np.pi / 119.0 / 6.0 / (2.0 * 1.34)
"""Phase of a PUC per heat of a heater that shifts a ring by 1 pm per π of two heaters of 1.34 mW (mesh.md b.7)."""
_POINTS = 60
_LAW_POWERS = np.array([1, 2, 3])


def true_parameters(bench: Bench, record: CalibrationRecord) -> MeshParameters:
    """Return what a perfect calibration would have put into a record of the same sources and monitors.

    Laws are the three terms nearest to the implicit truth over the range that the record holds for. Frequencies and
    phases are those at the record's reference. The power that enters is that of the record: emulated fibres drift.

    Raises:
        ConfigError: The bench is not emulated.
    """
    world = bench.emulated.world
    truth, cells, found, space = world.truth, world.cells(), parameters_of(record), space_of(record)
    offset_hz = reference_offset_hz(bench, record)
    slope, eta_slope = (float(np.mean(one)) for one in (cells.differential_slope_per_hz, cells.eta_slope_per_hz))
    first, second = np.arcsin(np.sqrt(truth.eta_in)), np.arcsin(np.sqrt(truth.eta_out))
    of_port = {path.port: chain.frequency_hz for path, chain in zip(world.wiring.inputs, world.chains, strict=True)}
    stated = np.asarray(found.source_detuning_hz)
    off = np.array([of_port[port] - cells.reference_hz - offset_hz for port in space.sources])
    return MeshParameters(
        passive_phase_rad=truth.passive_phase + slope * offset_hz,
        heater_law=true_laws(bench, heater_reach_ma(record)),
        loss_db=truth.loss_db,
        coupler_common_rad=0.5 * (first + second) - np.pi / 4.0,
        coupler_difference_rad=first - second,
        joint_phase_rad=truth.joint_phase + 2.0 * np.pi * found.delay_s * offset_hz,
        source_db=found.source_db,
        second_db=found.second_db,
        monitor_ma_per_mw=bench.mesh.responsivity_a_per_w * truth.monitor_scale[list(space.monitors)],
        crosstalk_rad_per_mw=np.array([_PER_PM * 0.906, 1.18, _PER_PM * 0.12]),
        heat_factor=truth.heater_ohm / record.heater_ohm,
        source_detuning_hz=np.where(stated != 0.0, off, 0.0),
        delay_s=found.delay_s,
        differential_slope_rad_per_hz=slope,
        coupler_slope_rad_per_hz=eta_slope,  # η = sin²a, so that dη = da near a half
    )


def heater_reach_ma(record: CalibrationRecord) -> Real:
    """Return the current up to which every law holds, shape ``(2E,)``; 0 for a heater without effect."""
    laws = [heater.law for entry in record.pucs for heater in (entry.upper, entry.lower)]
    return np.array([law.max_ma if law else 0.0 for law in laws])


def own_phase_rad(bench: Bench, currents_ma: Real) -> Real:
    """Return the true phase of every heater on its own arm, shape as ``currents_ma``, ``(2E,)``."""
    truth = bench.emulated.world.truth
    phase: Real = np.pi * truth.heater_power_mw(currents_ma) / truth.p_pi_mw
    return phase


def true_laws(bench: Bench, most_ma: Real) -> Real:
    """Return the three terms nearest to the true law of every heater up to a current, shape ``(2E, 3)``."""
    share = np.linspace(0.0, 1.0, _POINTS)[1:]
    phases = np.array([own_phase_rad(bench, np.sqrt(part) * most_ma) for part in share])
    terms = np.linalg.lstsq(share[:, None] ** _LAW_POWERS, phases, rcond=None)[0].T
    scale = np.where(most_ma > 0.0, most_ma, np.inf)[:, None] ** (2.0 * _LAW_POWERS)
    laws: Real = terms / scale
    return laws
