"""Means and standard deviations of the true parameters of an emulated bench.

Bench files can set the parameters in :data:`EMULATION_KEYS` (section ``emulation``). Sources: SmartLight-class chip (D.
Sánchez-Jácome, PhD thesis, UPV 2025; Teofilovic et al., JLT 2024). Values marked *assumed* have no published source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from lumion_hw.emulator.chip.effects import EffectSizes


@dataclass(frozen=True)
class EmulationKey:
    """A parameter in section ``emulation`` of a bench file.

    Attributes:
        default: Default value; a Boolean or a number.
        low_is_allowed: Whether ``low`` itself is allowed.
    """

    default: float | bool
    description: str
    low: float
    high: float
    low_is_allowed: bool


def _key(
    default: float | bool, description: str, *, low: float = 0.0, high: float = 1.0, low_is_allowed: bool = True
) -> Any:
    key = EmulationKey(default, description, low, high, low_is_allowed)
    return field(default=default, metadata={"key": key})


@dataclass(frozen=True)
class PhysicsParameters:
    """Means, standard deviations and constants of a bench.

    Attributes:
        puc_loss_db: Mean insertion loss of a PUC.
        access_loss_db: Mean loss between a fibre and the mesh at each port: facet and access waveguide.
        random_passive_phases: Whether passive phases are random between 0 and 2π; otherwise all are zero.
        p_pi_min_mw: Smallest heater power for a phase of π.
        p_pi_typical_mw: Most likely heater power for a phase of π.
        p_pi_max_mw: Largest heater power for a phase of π.
        heater_ohm: Mean cold heater resistance (assumed).
        eta_slope_per_nm: Change of the coupler splitting per nm.
        differential_slope_per_nm: Change of the phase difference, upper minus lower arm, in rad per nm.
        monitor_scale_sigma: Relative standard deviation of the photodiode responsivity (assumed).
        wavelength_sigma_nm: Standard deviation of module wavelengths about nominal (assumed).
        squeezer_period_min_mv: Smallest drive of a polarization squeezer for a retardance of 2π (assumed).
        squeezer_period_max_mv: Largest drive for a retardance of 2π (assumed).
    """

    puc_loss_db: float = 0.5  # 0.46 to 0.55 dB published
    puc_loss_sigma_db: float = _key(0.03, "Standard deviation of the loss of a PUC, dB.", high=5.0)
    access_loss_db: float = 6.85  # half of 13.7 dB: two facets of 3.34 dB and 7 dB of routing, typical
    access_loss_sigma_db: float = _key(  # assumed; deviations are cut at 2.5 sigma
        1.0, "Standard deviation of the loss between a port and the mesh, dB.", high=10.0
    )
    coupler_common_sigma: float = _key(  # gives the published extinction of 33 dB in the through output
        0.011, "Standard deviation of the power coupling error common to both couplers of a PUC.", high=0.2
    )
    coupler_difference_rad: float = _key(  # gives the published extinction of 44 dB in the cross output
        0.0063,
        "Standard deviation of the difference of the two coupler angles asin(sqrt(eta)) within a PUC, rad.",
        high=0.5,
    )
    random_passive_phases: bool = True
    p_pi_min_mw: float = 1.2
    p_pi_typical_mw: float = 1.34  # 1.2, 1.34 and 2.0 mW: smallest, typical and largest value published
    p_pi_max_mw: float = 2.0
    heater_ohm: float = 1000.0
    heater_ohm_sigma: float = _key(  # assumed
        0.03, "Relative standard deviation of the heater resistance.", high=0.3
    )
    thermal_nonlinearity_per_mw: float = _key(  # assumed
        0.02,
        "Relative rise of the heater resistance per mW of its own power; negative if it falls.",
        low=-0.1,
        high=0.1,
    )
    thermal_tau_s: float = _key(  # suspended heaters: 141 to 144 µs (Micromachines 13:1509)
        100e-6, "Time constant of a heater, s.", low_is_allowed=False
    )
    thermal_tau_max_s: float = _key(
        0.0,
        "Longest time constant of a heater, s: each heater gets one between `thermal_tau_s` and this, log-uniform. By "
        "default all are equal.",
        high=1000.0,
    )
    slow_heat_tau_s: float = _key(  # assumed
        20e-3, "Time constant of the substrate, for `effects.slow_heat_share`, s.", high=1000.0, low_is_allowed=False
    )
    crosstalk: bool = _key(True, "Whether heaters warm their neighbours.")
    crosstalk_scale: float = _key(
        1.0,
        "Thermal crosstalk relative to that of the published chip, where a heater adds 0.08 % of its own phase to the "
        "arms one PUC away.",
        high=100.0,
    )
    other_arm_crosstalk: float = _key(  # 3.5 % over 15 µm of oxide, 10 % over 5 µm (Jacques 2019)
        0.0,
        "Thermal crosstalk through the oxide: phase on the other arm of a PUC, 0.05 mm away, relative to the phase on "
        "the heater's own arm.",
        high=0.5,
    )
    oxide_decay_mm: float = _key(  # 10 µm from the two figures above; more where silicon conducts
        0.03,
        "Distance over which `other_arm_crosstalk` falls to 1/e, mm.",
        high=1.0,
        low_is_allowed=False,
    )
    eta_slope_per_nm: float = 7e-4  # gives the published 45 nm of 30 dB isolation (median, through)
    differential_slope_per_nm: float = 15e-3  # a slope of η alone changes a 50 % setting only to second order
    monitor_scale_sigma: float = 0.03
    monitor_noise_relative: float = _key(  # assumed
        0.005, "Photodiode noise relative to the light, rms.", high=0.5
    )
    monitor_noise_floor_dbm: float = _key(  # assumed
        -60.0, "Photodiode noise in the dark, rms, dBm.", low=-120.0, high=0.0
    )
    wavelength_sigma_nm: float = 0.05
    fibre_drift_rad2_per_s: float = _key(
        1e-5,
        "Rate of the polarization random walk of each fibre: autocorrelation exp(-rate t). 0 for polarization-"
        "maintaining fibres.",
        high=1e3,
    )
    temperature_sigma_k: float = _key(  # assumed
        0.0,
        "Standard deviation of the chip's temperature about its set point, K; 0.01 to 0.1 is usual.",
        high=10.0,
    )
    resistance_drift_per_root_day: float = _key(  # assumed
        0.0, "Relative random walk of each heater's resistance; 1e-4 to 1e-3 is usual.", high=0.1
    )
    gain_drift_per_root_day: float = _key(  # assumed
        0.0, "Relative random walk of each heater's phase per power.", high=0.1
    )
    phase_drift_rad_per_root_day: float = _key(  # assumed
        0.0, "Random walk of each passive phase, of PUCs and joints.", high=10.0
    )
    plugging_sigma_db: float = _key(  # fibre-array and lensed-fibre couplings repeat to some tenths of a dB (assumed)
        0.5, "Standard deviation of the coupling of a fibre that is plugged in by hand, dB.", high=10.0
    )
    tm_rejection_db: float = _key(  # extinction of TM in splitter-rotators (AIP Advances 10, 125214)
        25.0, "Extra loss of TM light at each mesh port, dB.", high=80.0
    )
    squeezer_period_min_mv: float = 3200.0
    squeezer_period_max_mv: float = 4200.0
    effects: EffectSizes = field(default_factory=EffectSizes)


EMULATION_KEYS: Mapping[str, EmulationKey] = MappingProxyType(
    {item.name: item.metadata["key"] for item in fields(PhysicsParameters) if "key" in item.metadata}
)
"""Parameters that the bench file may set in section ``emulation``, by name."""
