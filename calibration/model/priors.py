"""Prior knowledge of a mesh: published means and spreads, one line per parameter group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real
from calibration.model.device_under_test import PUC_LOSS_DB, DeviceUnderTest
from calibration.model.nominal_heaters import PUBLISHED_HEATERS, NominalHeaters
from calibration.model.parameters import MeshParameters
from calibration.model.space import LAW_TERMS, ParameterSpace
from calibration.model.symmetric import Sparse, diagonal
from lumion_hw.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Prior:
    """Independent normal distributions of all parameters, or a joint distribution of some of them.

    Attributes:
        mean: Shape ``(size,)``.
        sigma: Shape ``(size,)``; infinite if nothing is known.
        precision: Shape ``(size, size)``; inverse covariance that replaces ``sigma``, if given. Sparse or dense.
    """

    mean: Real
    sigma: Real
    precision: Sparse | Real | None = None

    def information(self, free: NDArray[np.bool_]) -> Sparse:
        """Return the inverse covariance of the free parameters, with the others fixed; sparse unless given dense."""
        places = np.flatnonzero(free)
        if self.precision is not None:
            return self.precision[np.ix_(places, places)]
        return diagonal(self.sigma[places] ** -2.0)

    def moved(self, groups: dict[str, float], space: ParameterSpace) -> Prior:
        """Return the prior with other standard deviations for some groups."""
        sigma = self.sigma.copy()
        for name, value in groups.items():
            sigma[space.group(name)] = value
        return Prior(self.mean, sigma, self.precision)

    def with_physics(self, space: ParameterSpace) -> Prior:
        """Return the prior for a parameter space with additional effects of mean zero."""
        from scipy.sparse import block_diag

        plain = slice(0, space.plain)  # additional physics comes last in the vector
        mean, sigma = np.zeros(space.size), space.vector(dict(space.physics.widths))
        mean[plain], sigma[plain] = self.mean[plain], self.sigma[plain]
        if self.precision is None:
            return Prior(mean, sigma)
        added = diagonal(sigma[space.plain :] ** -2.0)
        return Prior(mean, sigma, block_diag([self.precision[plain, plain], added], format="csr"))

    def anchored(self, name: str, space: ParameterSpace, sigma: float) -> Prior:
        """Return the prior with standard error ``sigma`` for the mean of a group; the spread around the mean stays.

        Used for the mean source frequency, which cannot be observed.
        """
        from scipy.sparse import csr_array

        precision = diagonal(self.sigma**-2.0) if self.precision is None else self.precision
        # A rank-one term for the common value leaves the differences unchanged.
        mean = csr_array(space.mask((name,))[:, None] / (np.count_nonzero(space.mask((name,))) * sigma))
        return Prior(self.mean, self.sigma, precision + mean @ mean.T)


PRIOR_SIGMA: dict[str, float] = {
    "passive_phase_rad": np.inf,  # random fabrication state: uniform, and only known modulo 2π (Sánchez-Jácome 2025)
    "loops": np.inf,  # the same
    "loss_db": 0.03,  # 0.46 … 0.55 dB over chips (Sánchez-Jácome 2025); fixes the loss gauge (docs/calibration.md, 1.3)
    "coupler_common_rad": 0.03,  # 33 dB through extinction is 0.011 (Sánchez-Jácome 2025); three times that
    "coupler_difference_rad": 0.02,  # 44 dB cross extinction is 0.0063; three times that
    "rho2": 0.7,  # of the published heaters: Pπ 1.2 … 2.0 mW at 1 kΩ is 1.6 … 2.6 rad/mA² (Sánchez-Jácome 2025)
    "rho4": 0.1,  # a resistance that rises by up to 5 % per mW
    "rho6": 0.01,  # the square of that, and more
    "monitor_db": 0.5,  # responsivity within 12 % (assumption)
    "source_db": 2.0,  # access loss ± 1 dB (assumed), and the meter in the module
    "second_db": 1.5,  # access losses ± 1 dB of either tributary, equal at the module (both assumed)
    "heat_factor": 0.05,  # cold resistance ± 3 % (assumption)
    "source_detuning_hz": 12e9,  # ± 0.1 nm
    "delay_s": 0.1e-12,
    "differential_slope_rad_per_hz": 2e-13,  # 15 (5 … 27) mrad/nm (docs/sources.md#figures-of-the-mesh)
    "coupler_slope_rad_per_hz": 1e-14,  # 7e-4 per nm of the splitting
}
CROSSTALK_SIGMA = (1e-3, 0.4, 2e-4)
"""Standard deviations of crosstalk amplitude (rad/mW), decay length (mm) and floor (rad/mW), for published heaters."""
MEASURED = ("passive_phase_rad", "rho2", "rho4", "rho6", "loss_db", "coupler_common_rad", "coupler_difference_rad")
FREE_GROUPS = (*MEASURED, "loops", "source_db", "second_db", "monitor_db", "crosstalk", "heat_factor")
"""Parameter groups that a calibration with one laser determines."""
COUPLER_GROUPS = ("coupler_common_rad", "coupler_difference_rad")
"""Parameter groups of the two couplers of every PUC."""
PHASE_GROUPS = ("passive_phase_rad", "loops")
"""Phase groups; every phase is known modulo 2π."""
FREE_WITH_MODULES = (*FREE_GROUPS, "source_detuning_hz", "differential_slope_rad_per_hz")
"""Parameter groups that a calibration with separate lasers determines."""


# A monitor so far from the median, and by so many of its spreads, is no sample of the nominal distribution.
_MIN_OUTLIER_DB, _MIN_OUTLIER_SIGMA = 1.5, 4.0
_ANY_DB = 30.0
# A coupler angle is measured if its error is below this share of its prior width. So many give the spread of a chip.
_MEASURED_SHARE, _MIN_MEASURED = 0.5, 4
# How well the phases of a calibration with several modules are tied to the mean of their frequencies.
_REFERENCE_HZ = 1e5


def modulo_a_turn(information: Sparse, phases: NDArray[np.bool_]) -> Sparse:
    """Add to the information of a prior, ``(P, P)``, that every phase lies within a turn (standard error π)."""
    return information + diagonal(np.where(phases, 1.0 / np.pi**2, 0.0))


def default_prior(
    space: ParameterSpace,
    centre: MeshParameters,
    heaters: NominalHeaters = PUBLISHED_HEATERS,
    puc_loss_db: float = PUC_LOSS_DB,
) -> Prior:
    """Return the prior with published spreads around a centre.

    Args:
        space: The parameters.
        centre: Mean of all parameters, for example the start of a fit; except that PUC losses have the mean
            ``puc_loss_db`` and couplers are balanced.
        heaters: Expected heaters of the chip.
        puc_loss_db: Expected loss of a PUC with two heated arms.

    Raises:
        ConfigError: The centre contains NaN for monitors or sources.
    """
    mean = space.pack(centre)
    if not np.isfinite(mean).all():
        where = space.describe(int(np.flatnonzero(~np.isfinite(mean))[0]))
        raise ConfigError(f"the start point has no value for {where}", hint="Remove dead monitors first.")
    # These keep the expected means: a prior around the start, which has no better values, would constrain nothing.
    mean[space.group("loss_db")] = puc_loss_db * space.mesh.loss_share
    mean[space.group("coupler_common_rad")] = mean[space.group("coupler_difference_rad")] = 0.0
    mean[space.group("heat_factor")] = 1.0
    mean[space.group("crosstalk")] = heaters.kernel
    sigma = space.vector(PRIOR_SIGMA)
    for power, name in enumerate(LAW_TERMS, start=1):
        sigma[space.group(name)] *= heaters.per_ma2**power
    sigma[space.group("loss_db")] *= space.mesh.loss_share
    sigma[space.group("crosstalk")] = CROSSTALK_SIGMA * heaters.kernel_units
    return Prior(mean, sigma)


def coupler_spreads(space: ParameterSpace, prior: Prior, vector: Real, sigma: Real) -> dict[str, float]:
    """Return the prior width of each group of coupler angles that a fit shows, if it is above that of the prior.

    Couplers that light does not show alone are as uneven as those that it shows. With a prior for good couplers, a fit
    would explain their light by unequal losses of the arms.

    Args:
        space: The parameters.
        prior: Prior of the fit.
        vector: Shape ``(size,)``; fitted parameters.
        sigma: Shape ``(size,)``; their standard errors, infinite for fixed ones.
    """
    spreads: dict[str, float] = {}
    for name in COUPLER_GROUPS:
        group = space.group(name)
        usual = float(prior.sigma[group].max())
        measured = vector[group][sigma[group] < _MEASURED_SHARE * usual]
        spread = float(np.sqrt(np.mean(measured**2))) if len(measured) >= _MIN_MEASURED else 0.0
        if spread > usual:
            spreads[name] = spread
    return spreads


def run_prior(
    space: ParameterSpace, start: MeshParameters, device: DeviceUnderTest, crosstalk_spread: float | None = None
) -> Prior:
    """Return the prior of a device before its readings are fitted, around a start point.

    Monitors with a very unusual reading get no prior for their sensitivity. Phases refer to the mean frequency of the
    modules, which is not measured.

    Args:
        space: The parameters.
        start: Start of the fit.
        device: What is known of the device.
        crosstalk_spread: Relative standard deviation of the crosstalk around that of the start; ``None`` for the
            published crosstalk.
    """
    prior = default_prior(space, start, device.heaters, device.puc_loss_db)
    monitors = space.group("monitor_db")
    mean, sigma = prior.mean.copy(), prior.sigma.copy()
    mean[monitors] = 10.0 * np.log10(device.monitor_ma_per_mw)
    level_db = 10.0 * np.log10(start.monitor_ma_per_mw)
    # Levels of the start are accurate to a decibel. A monitor far from the others has another range or is broken, and a
    # tight prior would move its error into the losses of the path.
    usual_db = max(_MIN_OUTLIER_DB, _MIN_OUTLIER_SIGMA * device.monitor_spread_db)
    is_outlier = np.abs(level_db - np.median(level_db)) > usual_db
    # A stuck PUC changes the light at its own port; this is not the responsivity of the monitor there.
    at = np.array(space.mesh.port_puc_port, dtype=np.int64)[list(space.monitors)] // 4
    stuck = (start.heater_law.reshape(space.mesh.n_pucs, -1) == 0.0).all(axis=1)
    sigma[monitors] = np.where(is_outlier & ~stuck[at], _ANY_DB, device.monitor_spread_db)
    if crosstalk_spread is not None:
        crosstalk = space.group("crosstalk")
        factor = start.crosstalk_rad_per_mw[0] / mean[crosstalk.start]
        mean[crosstalk] *= (factor, 1.0, factor)
        sigma[crosstalk] *= (factor, 1.0, factor)
        sigma[crosstalk.start] = crosstalk_spread * mean[crosstalk.start]
    prior = Prior(mean, sigma)
    return prior.anchored("source_detuning_hz", space, _REFERENCE_HZ) if device.source_spread_hz else prior
