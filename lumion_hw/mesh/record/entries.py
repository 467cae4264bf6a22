"""Parts of a calibration record. Unknown values are ``None``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.waves.cell import BASIC_UNIT_DELAY_S
from lumion_hw.mesh.waves.heater import HeaterLaw

CONVENTIONS: dict[str, str] = {
    "phase": "fields vary as exp(+j w t); a phase is a delay and multiplies by exp(-j phase)",
    "coupling": "k is power: 0 bar, 1 cross; k = cos^2(theta), theta = (phase_upper - phase_lower) / 2",
    "heater_law": "phase_rad = rho2 I^2 + rho4 I^4 + rho6 I^6, I in mA, 0 <= I <= max_ma",
    "heat": "heat_mw = heater_ohm I^2 (own phase / (rho2 I^2)) heat_factor / 1000, I in mA",
    "coupler": "eta = sin^2(angle), angle = pi/4 + common +- difference/2, + at end A",
    "numbering": "PUC-port 4 puc + (0 AL, 1 AR, 2 BL, 3 BR); heater 2 puc + (0 upper, 1 lower); joints ascending",
}
"""Signs, angles and numbering used in a record. Records with other conventions are rejected."""


@dataclass(frozen=True)
class HeaterEntry:
    """Calibration of one heater.

    Attributes:
        channel: Controller channel that drives the heater.
        law: Phase as a function of current; ``None`` if the heater has no effect.
        residual_sigma: Rms residual of the fringe fit, in units of the reading noise.
        note: Fault found at the heater; empty if there is none.
        heat_factor: Ratio of the heat to that of the nominal resistance; matters for crosstalk only.
    """

    channel: int
    law: HeaterLaw | None
    residual_sigma: float | None
    note: str = ""
    heat_factor: float = 1.0


@dataclass(frozen=True)
class CouplerEntry:
    """Calibration of the two couplers of a PUC, as angles asin√η.

    Attributes:
        common_rad: Mean of the two angles, minus π/4.
        difference_rad: Angle at end A minus angle at end B.
        common_sigma_rad: Standard error of the mean.
        difference_sigma_rad: Standard error of the difference.
    """

    common_rad: float = 0.0
    difference_rad: float = 0.0
    common_sigma_rad: float | None = None
    difference_sigma_rad: float | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """Smallest and largest power coupling that can be set: sin²(a1 - a2), sin²(a1 + a2) of both coupler angles."""
        # With angles π/4 + common ± difference/2, a1 + a2 is π/2 + 2 common, so sin²(a1 + a2) is cos²(2 common).
        return float(np.sin(self.difference_rad) ** 2), float(np.cos(2.0 * self.common_rad) ** 2)


@dataclass(frozen=True)
class PucEntry:
    """Calibration of one PUC.

    Attributes:
        passive_phase_rad: Phase without heat of the upper arm relative to the lower arm, -π … π; ``None`` if unknown.
        passive_phase_sigma_rad: Standard error of this phase.
        loss_sigma_db: Standard error of the loss, including the prior.
        note: Fault found at the PUC; empty if there is none.
        coupler: Calibration of the couplers; ``None`` means that they are assumed to be balanced.
    """

    passive_phase_rad: float | None
    passive_phase_sigma_rad: float | None
    loss_db: float
    loss_sigma_db: float
    upper: HeaterEntry
    lower: HeaterEntry
    note: str = ""
    coupler: CouplerEntry | None = None

    @property
    def is_settable(self) -> bool:
        """Whether the PUC can be set: its phase is known and at least one heater changes it."""
        return self.passive_phase_rad is not None and (self.upper.law is not None or self.lower.law is not None)


@dataclass(frozen=True)
class PortEntry:
    """Calibration of one port with a fibre.

    Attributes:
        input_loss_db: Loss from fibre into mesh, from the launch power the module reports; ``None`` without a source.
        input_loss_sigma_db: Standard error of the input loss.
        output_loss_db: Loss from mesh into fibre, measured with the power meter; ``None`` if there is no meter.
        output_loss_sigma_db: Standard error of the output loss.
        monitor_ma_per_mw: Photocurrent per power that leaves the mesh at this port.
        monitor_dark_ma: Monitor reading without light.
        monitor_floor_ma: Additive noise of a monitor reading.
        monitor_full_scale_ma: Reading at which the monitor saturates.
        source_dbm: Power that entered the mesh at this port during calibration.
        source_detuning_hz: Frequency of the light entering at this port minus the reference frequency.
        lit_with: Port that receives the other tributary (same frequency, independent data) of a module with two
            tributaries; ``None`` for other modules.
    """

    port: int
    input_loss_db: float | None
    input_loss_sigma_db: float | None
    output_loss_db: float | None
    output_loss_sigma_db: float | None
    monitor_ma_per_mw: float | None
    monitor_dark_ma: float | None = None
    monitor_floor_ma: float | None = None
    monitor_full_scale_ma: float | None = None
    source_dbm: float | None = None
    source_detuning_hz: float | None = None
    lit_with: int | None = None


@dataclass(frozen=True)
class CrosstalkKernel:
    """Crosstalk phase per heat as a function of distance: κ(d) = amplitude·exp(-d/length) + floor.

    Attributes:
        amplitude_rad_per_mw: Amplitude of the exponential part.
        floor_rad_per_mw: Value at large distance.
        edge_mm: PUC spacing for which the distances were calculated.
    """

    amplitude_rad_per_mw: float
    length_mm: float
    floor_rad_per_mw: float
    edge_mm: float


@dataclass(frozen=True)
class CrosstalkEntry:
    """Thermal crosstalk: a function of distance (kernel), a correction per PUC and heater, or both.

    Attributes:
        differential_rad_per_mw: Phase difference between the arms of each PUC per heat of each heater, in addition to
            the kernel; shape ``(n_pucs, 2 n_pucs)``, empty if not measured.
        kernel: Part that depends on distance only; ``None`` if not fitted.
    """

    differential_rad_per_mw: tuple[tuple[float, ...], ...] = ()
    kernel: CrosstalkKernel | None = None

    def differential_rad(self, power_mw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the crosstalk phase difference of each PUC without the kernel; heat has shape ``(2 n_pucs,)``."""
        if not self.differential_rad_per_mw:
            return np.zeros(len(power_mw) // 2)
        shift: NDArray[np.float64] = np.asarray(self.differential_rad_per_mw) @ power_mw
        return shift


@dataclass(frozen=True)
class JointsEntry:
    """Phases of the joints (waveguides between PUCs).

    Ports can only observe their sums around closed paths (docs/calibration.md, 1.2).

    Attributes:
        phase_rad: Phase of each joint, in the order of ``MeshTopology.joints``.
        gauge: Rule that fixes the phases that the ports cannot observe.
        loop_sigma_rad: Standard error of a sum around a closed path, root mean square over all paths.
    """

    phase_rad: tuple[float, ...]
    gauge: str = "shortest joint vector of its loops: orthogonal to the signed incidence of the PUCs"
    loop_sigma_rad: float | None = None


@dataclass(frozen=True)
class ExtraPhysics:
    """One physical effect, such as loss by heat, that was fitted in addition to the standard chip model.

    Attributes:
        name: Name of the effect with its unit, as listed in ``calibration.model.physics.PHYSICS``.
        description: Description of the effect.
        width: Standard deviation of the parameters around zero, estimated from the readings.
        gain: Increase of the log evidence when the effect was added.
        values: The parameters; empty for crosstalk of single pairs, which is stored as an array.
    """

    name: str
    description: str
    parameters: int
    width: float
    gain: float
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class Dispersion:
    """Dependence of the mesh on wavelength, relative to the reference frequency."""

    delay_s: float = BASIC_UNIT_DELAY_S
    differential_slope_rad_per_hz: float = 0.0
    coupler_slope_rad_per_hz: float = 0.0


@dataclass(frozen=True)
class Conditions:
    """Conditions of a calibration, and its range of validity.

    Attributes:
        reference_hz: Optical frequency to which the phases refer; ``None`` means the frequency of ``wavelength_nm``.
        wavelengths_nm: All wavelengths used in the calibration.
        wavelength_range_nm: Smallest and largest wavelength at which the record is valid.
        temperature_range_c: Smallest and largest temperature measured during calibration.
        temperature_valid_c: Smallest and largest temperature at which the record is valid.
        laser_power_dbm: Power of the light source.
        polarization: Description of the polarization at each input port.
        ambient: Remarks about the surroundings.
        valid_for_s: Age at which the record should be checked.
        emulated_age_s: Age of an emulated bench on its own clock.
        heater_tau_s: Thermal time constant of the heaters; ``None`` if not measured, or too short to measure.
    """

    reference_hz: float | None = None
    wavelengths_nm: tuple[float, ...] = ()
    wavelength_range_nm: tuple[float, float] | None = None
    temperature_set_c: float | None = None
    temperature_range_c: tuple[float, float] | None = None
    temperature_valid_c: tuple[float, float] | None = None
    laser_power_dbm: float | None = None
    polarization: dict[str, str] = field(default_factory=dict)
    ambient: str = ""
    valid_for_s: float | None = None
    emulated_age_s: float | None = None
    heater_tau_s: float | None = None


@dataclass(frozen=True)
class CovarianceEntry:
    """Layout and rank of the covariance of all parameters.

    The array ``covariance_factor`` F, shape ``(size, rank)``, gives the covariance F·Fᵀ. Its rows follow the order of
    the groups.

    Attributes:
        groups: Name and size of each parameter group, in the order of ``calibration.model.space.ParameterSpace``.
        rank: Number of independent parameter combinations that the readings determine.
        expected_rank: Largest rank that is possible with these ports.
        set_by_prior: Descriptions of parameters that are determined mainly by the prior.
        unidentifiable: Descriptions of parameter combinations that the readings do not determine.
    """

    groups: tuple[tuple[str, int], ...]
    rank: int
    expected_rank: int
    set_by_prior: tuple[str, ...] = ()
    unidentifiable: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(size for _, size in self.groups)

    @property
    def n_free(self) -> int:
        """Number of free parameters in the fit."""
        return self.rank + len(self.unidentifiable)

    def rows_of(self, group: str) -> slice | None:
        """Return the rows of a parameter group in the factor F, or ``None`` if the group is not present."""
        first = 0
        for name, size in self.groups:
            if name == group:
                return slice(first, first + size)
            first += size
        return None


@dataclass(frozen=True)
class Defect:
    """One fault as data.

    Attributes:
        kind: Kind of fault: ``dead heater``, ``stuck PUC``, ``dead monitor``, ``saturated monitor`` and so on.
        element: Kind of element that has the fault.
        number: Number of the PUC, heater (2·PUC + arm) or port; 0 for the whole chip.
        evidence: Description of the observation.
        usable_states: States that the PUC can still take; ``None`` if the fault does not concern states.
        coupling: Power coupling at which a PUC is stuck.
        coupling_sigma: Standard error of the coupling.
    """

    kind: str
    element: Literal["puc", "heater", "port", "monitor", "source", "chip"]
    number: int
    evidence: str = ""
    usable_states: tuple[State, ...] | None = None
    coupling: float | None = None
    coupling_sigma: float | None = None


@dataclass(frozen=True)
class ArrayFile:
    """A file of arrays next to a record: its name without directory, and the hash of its contents."""

    name: str
    sha256: str
