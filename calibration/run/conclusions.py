"""Conclusions of a calibration: faulty elements, warnings, and unknown phases."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from calibration.diagnose.element_faults import (
    LEFT_OUT,
    UNCERTAIN_LAW,
    defects_from_fit,
    mark_unseen_pucs,
    without_duplicates,
)
from calibration.fit.diagnosed_fit import DiagnosedFit
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.nominal_heaters import NominalHeaters
from calibration.model.normal_equations import mean_squared_residual
from calibration.model.parameters import MeshParameters
from calibration.model.space import ParameterSpace
from calibration.run.bootstrap import Start
from lumion_hw.bench.file.heater_checks import ROUNDING
from lumion_hw.mesh.record.calibration_record import NOT_CERTIFIED, Defect

NOT_REACHED = "not reached before the run ended"
"""Reason for an unknown PUC in the record of an interrupted run."""
_STUCK = "no heater has any effect on the light, and its split ratio is unknown"
UNSEEN = "no light passes it on the way to a monitor"
"""Reason for an unknown PUC that no light reaches."""
# Relative information below which no reading depends on a parameter; rounding errors are smaller.
_UNOBSERVABLE = 1e-12
_MAX_USABLE_SIGMA_RAD = 0.2
_MAX_NAMED, _MIN_MISFIT = 5, 2.0


def collect_defects(
    start: Start, diagnosed: DiagnosedFit, space: ParameterSpace, channels: Sequence[int], heater_max_ma: float
) -> tuple[Defect, ...]:
    """Return the defects of the bench, without uncertain heater laws if the fit explains all readings."""
    listed, defects = start.defects, [*diagnosed.defects] if diagnosed.fit.certified else []
    # Conclusions about couplers and laws require a fit that explains all readings.
    if diagnosed.certified:
        if diagnosed.trajectories is not None:
            defects += diagnosed.trajectories.defects(diagnosed.fit.parameters.delay_s)
        passive = space.group("passive_phase_rad")
        defects += defects_from_fit(
            diagnosed.parameters, diagnosed.fit.covariance(), passive, channels, heater_max_ma, space.mesh
        )
        listed = tuple(defect for defect in listed if defect.kind != UNCERTAIN_LAW)
    if diagnosed.miswiring:  # what their sweeps seemed to show
        heaters = diagnosed.miswiring.heaters
        miswired = {"heater": heaters, "puc": [heater // 2 for heater in heaters]}
        listed = tuple(defect for defect in listed if defect.number not in miswired.get(defect.element, ()))
    unseen = unseen_pucs(diagnosed, space)
    marked = mark_unseen_pucs((*defects, *listed), unseen, channels, space.mesh, space.sources, space.monitors)
    return without_duplicates(marked)


def short_reach(heaters: NominalHeaters, max_ma: float) -> str | None:
    """Return a warning if the largest current turns no phase by π, otherwise ``None``.

    A sweep then shows less than half a fringe, which fits several heater laws.
    """
    max_mw = max_ma**2 * heaters.ohm * 1e-3
    if max_mw * ROUNDING >= heaters.p_pi_min_mw:
        return None
    needed_ma = math.ceil(100.0 * math.sqrt(2e3 * heaters.p_pi_max_mw / heaters.ohm)) / 100.0
    return (
        f"the largest current of {max_ma:g} mA gives {max_mw:.3g} mW in {heaters.ohm:g} Ω, but a phase of π needs "
        f"{heaters.p_pi_min_mw:g} to {heaters.p_pi_max_mw:g} mW, so no sweep shows half a fringe. Set heater_max_ma to "
        f"{needed_ma:g} if chip and driver allow it, or correct p_pi_min_mw and p_pi_max_mw in mesh.typical"
    )


def collect_warnings(
    start: Start, diagnosed: DiagnosedFit, model: MeshModel, likelihood: Likelihood
) -> tuple[str, ...]:
    """Return warnings about readings that a fit does not explain."""
    doubts = tuple(f"{NOT_CERTIFIED}{doubt}" for doubt in diagnosed.doubts)
    if diagnosed.fit.certified:
        return doubts
    worst = find_worst_misfits(model, diagnosed.fit.parameters, likelihood)[:_MAX_NAMED]
    named = f"; worst: {'; '.join(worst)}" if worst else ""
    suspected = [defect.evidence for defect in diagnosed.defects]
    named += f"; suspected: {'; '.join(suspected)}" if suspected else ""
    return (*start.warnings, f"the global fit does not explain all readings{named}", *doubts)


def find_worst_misfits(model: MeshModel, parameters: MeshParameters, likelihood: Likelihood) -> tuple[str, ...]:
    """Return the PUCs, heaters, sources and monitors with the largest misfit, as text, the worst first.

    Only those with a mean squared residual of more than twice the median.
    """
    space = model.space
    misfit = mean_squared_residual(model, parameters, likelihood)
    named = space.mask(("passive_phase_rad", "rho2", "source_db", "monitor_db"))
    usual = float(np.median(misfit[named]))
    worst = [index for index in np.argsort(-misfit) if named[index] and misfit[index] > _MIN_MISFIT * max(usual, 1.0)]
    return tuple(f"{space.describe(int(index))}: χ² per reading {misfit[index]:.3g}" for index in worst)


def unknown_pucs(diagnosed: DiagnosedFit, space: ParameterSpace, left_out: Collection[int] = ()) -> dict[int, str]:
    """Return the PUCs whose passive phase is unknown, with reasons."""
    variance = np.diag(diagnosed.fit.covariance())[space.group("passive_phase_rad")]
    pucs = np.flatnonzero(space.mesh.interferes).tolist()
    stuck = [puc for puc in pucs if {2 * puc, 2 * puc + 1} <= diagnosed.dead]
    unknown = {puc: _STUCK for puc in stuck if not 0.0 < variance[puc] < _MAX_USABLE_SIGMA_RAD**2}
    unknown |= dict.fromkeys(unseen_pucs(diagnosed, space), UNSEEN)
    return unknown | dict.fromkeys(left_out, LEFT_OUT)


def unseen_pucs(diagnosed: DiagnosedFit, space: ParameterSpace) -> tuple[int, ...]:
    """Return the PUCs from which no light reaches a monitor."""
    # The loss of a PUC affects every path through it at any phase, so it is the most reliable sign of light.
    max_loss = np.full(space.size, np.inf)
    max_loss[diagnosed.fit.free] = np.diag(diagnosed.fit.information)
    losses = max_loss[space.group("loss_db")]
    measured = losses[space.illuminated.pucs & np.isfinite(losses)]
    is_dark = ~space.illuminated.pucs | (losses <= _UNOBSERVABLE * (np.median(measured) if len(measured) else 0.0))
    return tuple(np.flatnonzero(is_dark).tolist())


def stuck_at(defect: Defect) -> str:
    """Return the note about a stuck PUC for the record."""
    at = "" if defect.coupling is None else f"; it is stuck at a coupling of {defect.coupling:.4f}"
    return f"no heater has any effect on the light{at}"
