"""The parts of a calibration record. Units are in every name; what was not found is ``None``, never a sentinel."""

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
"""What the numbers mean; part of every document. A document with others is refused."""


@dataclass(frozen=True)
class HeaterEntry:
    """One heater.

    Attributes:
        channel: Drive channel of the controller.
        law: Phase against current; ``None`` if the heater has no effect.
        residual_sigma: Rms residual of the fringe fit, in units of the reading noise.
        note: What was found wrong, empty if nothing.
        heat_factor: Its heat over that of the nominal resistance; only crosstalk needs it.
    """

    channel: int
    law: HeaterLaw | None
    residual_sigma: float | None
    note: str = ""
    heat_factor: float = 1.0


@dataclass(frozen=True)
class CouplerEntry:
    """The two couplers of a PUC, as angles asin√η.

    Attributes:
        common_rad: Their mean, minus π/4.
        difference_rad: Angle at end A minus that at end B.
        common_sigma_rad: Standard error of the mean.
        difference_sigma_rad: Standard error of the difference.
    """

    common_rad: float = 0.0
    difference_rad: float = 0.0
    common_sigma_rad: float | None = None
    difference_sigma_rad: float | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """Least and largest power coupling that can be set, sin²(a1 - a2) and sin²(a1 + a2)."""
        return float(np.sin(self.difference_rad) ** 2), float(np.cos(2.0 * self.common_rad) ** 2)


@dataclass(frozen=True)
class PucEntry:
    """One PUC.

    Attributes:
        passive_phase_rad: Passive phase of the upper arm over the lower, -π … π; ``None`` if not found.
        passive_phase_sigma_rad: Its standard error.
        loss_db: Insertion loss.
        loss_sigma_db: Its standard error, prior included.
        upper: Heater of the upper arm.
        lower: Heater of the lower arm.
        note: What was found wrong, empty if nothing.
        coupler: Its couplers; taken as balanced where they were not measured.
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
        """Whether it can be set: its phase is known, and a heater moves it."""
        return self.passive_phase_rad is not None and (self.upper.law is not None or self.lower.law is not None)


@dataclass(frozen=True)
class PortEntry:
    """One port with a fibre.

    Attributes:
        port: Port number.
        input_loss_db: Fibre into mesh, against the power the module reports; ``None`` where nothing was injected.
        input_loss_sigma_db: Its standard error.
        output_loss_db: Mesh into fibre, against the power meter; ``None`` where there is none.
        output_loss_sigma_db: Its standard error.
        monitor_ma_per_mw: Photocurrent per power leaving the mesh at this port.
        monitor_dark_ma: Its reading without light.
        monitor_floor_ma: Additive noise of a reading.
        monitor_full_scale_ma: Reading at which it saturates.
        source_dbm: Power entering the mesh here while it was calibrated.
        source_detuning_hz: Frequency of that light above the reference frequency.
        lit_with: Port lit by the same module at the same time, by light without relation to this: its other tributary,
            which has its frequency here. Written only where there is one.
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
    """Phase per heat against distance, for arms and joints: κ(d) = amplitude·exp(-d/length) + floor.

    Attributes:
        amplitude_rad_per_mw: Amplitude.
        length_mm: Decay length.
        floor_rad_per_mw: What is left far away.
        edge_mm: Length of a lattice edge the distances were reckoned with.
    """

    amplitude_rad_per_mw: float
    length_mm: float
    floor_rad_per_mw: float
    edge_mm: float


@dataclass(frozen=True)
class CrosstalkEntry:
    """Thermal crosstalk: a kernel over distance, a residual by PUC and heater, or both.

    Attributes:
        differential_rad_per_mw: Differential phase of each PUC per heat of each heater beyond the kernel, shape
            ``(n_pucs, 2 n_pucs)`` as nested tuples; empty if there is none.
        kernel: What distance explains, joints included; ``None`` if it was not fitted.
    """

    differential_rad_per_mw: tuple[tuple[float, ...], ...] = ()
    kernel: CrosstalkKernel | None = None

    def differential_rad(self, power_mw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the differential phase beyond the kernel that heat of shape ``(2 n_pucs,)`` adds to each PUC."""
        if not self.differential_rad_per_mw:
            return np.zeros(len(power_mw) // 2)
        shift: NDArray[np.float64] = np.asarray(self.differential_rad_per_mw) @ power_mw
        return shift


@dataclass(frozen=True)
class JointsEntry:
    """Phases of the waveguide joints, of which only loops are seen from the ports (docs/calibration.md, 1.2).

    Attributes:
        phase_rad: One per joint, in the order of ``MeshTopology.joints``.
        gauge: Rule that fixes what the ports cannot tell.
        loop_sigma_rad: Root mean square standard error per loop.
    """

    phase_rad: tuple[float, ...]
    gauge: str = "shortest joint vector of its loops: orthogonal to the signed incidence of the PUCs"
    loop_sigma_rad: float | None = None


@dataclass(frozen=True)
class ExtraPhysics:
    """Physics that was needed beyond the model of every chip.

    Attributes:
        name: Its group of parameters, with the unit: a row of ``calibration.model.physics``.
        words: What it is.
        parameters: How many parameters were fitted.
        width: Width of these about zero, found from the light.
        gain: By how much the logarithm of the evidence rose when it was taken in.
        values: The parameters; of pairs of waveguide and heater there are none here, they are the array of that name.
    """

    name: str
    words: str
    parameters: int
    width: float
    gain: float
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class Dispersion:
    """What changes with wavelength; all about the reference frequency.

    Attributes:
        delay_s: Group delay of a PUC.
        differential_slope_rad_per_hz: Change of every φu - φl per Hz.
        coupler_slope_rad_per_hz: Change of every coupler angle per Hz.
    """

    delay_s: float = BASIC_UNIT_DELAY_S
    differential_slope_rad_per_hz: float = 0.0
    coupler_slope_rad_per_hz: float = 0.0


@dataclass(frozen=True)
class Conditions:
    """What the calibration was made under, and how far it holds.

    Attributes:
        reference_hz: Optical frequency at which phases are given; that of ``wavelength_nm`` if ``None``.
        wavelengths_nm: All wavelengths used.
        wavelength_range_nm: Least and largest wavelength it holds for.
        temperature_set_c: Temperature the chip was held at.
        temperature_range_c: Least and largest temperature measured.
        temperature_valid_c: Least and largest temperature it holds for.
        laser_power_dbm: Power of the light source.
        polarization: State by input port, in words.
        ambient: Anything else worth knowing, in words.
        valid_for_s: Age at which it should be checked.
        emulated_age_s: How old the bench was, if it is an emulated one: its days are not those of the calendar.
        heater_tau_s: Thermal time constant of the heaters; ``None`` if they are faster than could be seen, or nobody
            has looked. Written only where there is one.
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
    """Where the covariance of all parameters lies, and what it says.

    The factor F in the side file (``covariance_factor``, shape ``(size, rank)``) makes the covariance F·Fᵀ. Its rows
    follow the groups.

    Attributes:
        groups: Name and number of parameters of each group, in order: those of
            ``calibration.model.space.ParameterSpace``.
        rank: Number of independent combinations that the readings showed.
        expected_rank: Number of those that settings of these ports can show, whichever are chosen.
        set_by_prior: Parameters that owe most of their certainty to the prior, in words.
        unidentifiable: Combinations that the readings do not show, in words.
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
        """Number of parameters that were free."""
        return self.rank + len(self.unidentifiable)

    def rows_of(self, group: str) -> slice | None:
        """Return the rows of a group; ``None`` if it has none."""
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
        kind: What is wrong, such as ``dead heater``, ``stuck PUC``, ``dead monitor``, ``saturated monitor``.
        element: What it is wrong with.
        number: Its number: PUC, heater (2·PUC + arm) or port; 0 for the chip as a whole.
        evidence: What was seen, in words.
        usable_states: States a PUC can still take; ``None`` where the fault says nothing about states.
        coupling: Power coupling at which a PUC is stuck.
        coupling_sigma: Its standard error.
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
    """A file of arrays that belongs to the record and lies beside it.

    Attributes:
        name: File name without directory.
        sha256: Hash of names, types, shapes and contents of its arrays, whatever the container.
    """

    name: str
    sha256: str
