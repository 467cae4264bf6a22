"""How a record compares with the hidden truth of the emulated bench it was made on, as figures of a report."""

from __future__ import annotations

import numpy as np

from calibration.model.observations import Observations
from calibration.model.space import space_of
from calibration.report.against_truth import compare
from calibration.report.goals import extinctions, phase_bounds_mrad, phase_errors, settings_bound
from calibration.report.numbers import Metric
from calibration.report.true_parameters import true_parameters
from lumion_hw.bench.bench import Bench
from lumion_hw.mesh.record import CalibrationRecord

_NORMALISED = {
    "passive_phase_rad": "passive phases",
    "loops": "loop phases",
    "loss_db": "losses",
    "coupler_common_rad": "couplers, mean angle",
    "coupler_difference_rad": "couplers, difference of angles",
    "law_turn": "heater laws at one turn",
}


def truth_metrics(bench: Bench, record: CalibrationRecord, fitted: Observations | None = None) -> list[Metric]:
    """Return errors against the truth, programming all PUCs to bar and to cross.

    Args:
        bench: The emulated bench.
        record: The record.
        fitted: Settings that were fitted, if their bound is wanted as well.

    Raises:
        ConfigError: The bench is not emulated.
        CalibrationError: The record holds no covariance, or crosstalk of another kind than the global fit's.
    """
    truth = true_parameters(bench, record)
    normalised, phases = phase_errors(bench, record, truth)
    bounds: dict[str, float] = {}
    if fitted is not None:
        least = settings_bound(bench, record, truth, fitted).covariance()
        bounds = phase_bounds_mrad(space_of(record), least)
    short = extinctions(bench, record)
    loss_db = float(np.sqrt(np.mean(compare(bench, record).loss_error_db ** 2)))
    gauge = "gauge-fixed: modulo a turn, a phase common to all PUCs taken out of the loops"
    return [
        Metric("passive phases, error, rms", phases["passive_mrad"], "mrad", 3.0, note=gauge),
        Metric("passive phases, error, worst", phases["passive_worst_mrad"], "mrad"),
        Metric("loop phases, error, rms per loop", phases["loops_mrad"], "mrad", 3.0, note=gauge),
        *(
            Metric(
                f"{words}: error over the Cramér-Rao bound",
                phases[f"{name}_mrad"] / bounds[f"{name}_bound_mrad"],
                "",
                3.0,
                note=f"bound of the settings taken: {bounds[f'{name}_bound_mrad']:.3g} mrad",
            )
            for name, words in (("passive", "passive phases"), ("loops", "loop phases"))
            if bounds
        ),
        Metric("losses, error, rms", loss_db, "dB"),
        Metric(
            "programmed extinction below what the couplers allow, up to 44 dB, worst",
            short["extinction_short_db"],
            "dB",
            1.0,
        ),
        *(
            Metric(f"{words}: error over standard error, rms", float(np.sqrt(np.mean(values**2))), note=_TRUE)
            for name, words in _NORMALISED.items()
            if len(values := normalised.get(name, np.zeros(0)))
        ),
    ]


_TRUE = "1 if the stated standard errors are true; over many seeds 0.8 … 1.3"
