"""Section ``emulation`` of a bench file: the physics of the emulated bench, which a real bench does not reveal.

Only the emulator uses it, never a driver or a calibration. docs/sources.md#figures-of-the-mesh lists the sources of
the values and the assumptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, create_model, model_validator

from lumion_hw.bench.file.fields import Flag, Number, StrictModel
from lumion_hw.emulator.chip.effects import CHIP_EFFECTS, EffectSizes, Physics


class HeaterEfficiencyModel(StrictModel):
    """Heater power per π of phase: spread between ``min`` and ``max`` around ``typical``, in mW."""

    min: Number = Field(1.2, gt=0.0, le=1000.0, description="Minimum of all heaters, mW.")
    typical: Number = Field(1.34, gt=0.0, le=1000.0, description="Typical value, mW.")
    max: Number = Field(2.0, gt=0.0, le=1000.0, description="Maximum of all heaters, mW.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.min <= self.typical <= self.max:
            raise ValueError(f"expected min <= typical <= max, found {self.min:g}, {self.typical:g}, {self.max:g}")
        return self


if TYPE_CHECKING:

    class EffectsModel(StrictModel):
        """Sizes of single effects that replace the defaults of `physics`; 0 disables an effect."""

else:
    _SIZES: dict[str, Any] = {
        effect.name: (Number | None, Field(None, ge=0.0, le=effect.max_size, description=effect.description))
        for effect in CHIP_EFFECTS
    }
    EffectsModel = create_model("EffectsModel", __base__=StrictModel, **_SIZES)
    EffectsModel.__doc__ = "Sizes of single effects that replace the defaults of `physics`; 0 disables an effect."


class EmulationModel(StrictModel):
    """Spreads, noise and drift of the emulated bench. All random values follow from the seed of the run."""

    physics: Physics = Field(
        "ideal", description="Chip effects beyond the calibration model: ideal (none), realistic or harsh."
    )
    effects: EffectsModel = Field(
        default_factory=EffectsModel, description="Sizes of single effects that replace the defaults of `physics`."
    )

    puc_loss_sigma_db: Number = Field(0.03, ge=0.0, le=5.0, description="Spread of the loss per PUC.")
    access_loss_sigma_db: Number = Field(1.0, ge=0.0, le=10.0, description="Spread of the loss between port and mesh.")
    coupler_common_sigma: Number = Field(
        0.011, ge=0.0, le=0.2, description="Spread of the power coupling that both couplers of a PUC have in common."
    )
    coupler_difference_rad: Number = Field(
        0.0063, ge=0.0, le=0.5, description="Difference of the two couplers' angles asin(sqrt(eta)) within a PUC."
    )
    passive_phases: Literal["random", "zero"] = Field(
        "random", description="Passive phases of PUCs and joints: uniformly random, or all zero for teaching."
    )
    p_pi_mw: HeaterEfficiencyModel = Field(
        default_factory=HeaterEfficiencyModel, description="Heater power for a phase of π."
    )
    heater_ohm_sigma: Number = Field(0.03, ge=0.0, le=0.3, description="Relative spread of the heater resistance.")
    thermal_nonlinearity_per_mw: Number = Field(
        0.02, ge=0.0, le=0.1, description="Relative increase of the heater resistance per mW of heater power."
    )
    thermal_tau_s: Number = Field(100e-6, gt=0.0, le=1.0, description="Thermal time constant of a heater.")
    slow_heat_tau_s: Number = Field(
        20e-3, gt=0.0, le=1000.0, description="Thermal time constant of the substrate, for `effects.slow_heat_share`."
    )
    crosstalk: Flag = Field(True, description="Whether heaters warm their neighbours.")
    monitor_noise_relative: Number = Field(0.005, ge=0.0, le=0.5, description="Photodiode noise relative to the power.")
    monitor_noise_floor_dbm: Number = Field(-60.0, ge=-120.0, le=0.0, description="Photodiode noise in the dark, rms.")
    fibre_drift_rad2_per_s: Number = Field(
        1e-5,
        ge=0.0,
        le=1e3,
        description="Rate of the polarization drift in the fibres: autocorrelation exp(-rate t).",
    )
    temperature_sigma_k: Number = Field(
        0.0, ge=0.0, le=10.0, description="Spread of the chip temperature around its set point; typically 0.01 to 0.1."
    )
    resistance_drift_per_root_day: Number = Field(
        0.0, ge=0.0, le=0.1, description="Relative random walk of the heater resistances; typically 1e-4 to 1e-3."
    )
    phase_drift_rad_per_root_day: Number = Field(
        0.0, ge=0.0, le=10.0, description="Random walk of the passive phases of PUCs and joints."
    )
    tm_rejection_db: Number = Field(25.0, ge=0.0, le=80.0, description="Additional loss of TM light at each mesh port.")

    def effect_sizes(self) -> EffectSizes:
        """Return the size of every effect: the default of `physics`, or the value in the file."""
        return EffectSizes.for_chip(self.physics, self.effects.model_dump(exclude_none=True))
