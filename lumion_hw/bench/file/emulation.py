"""The hidden physics of an emulated bench: what a real bench would not tell, with honest defaults.

Only the emulator reads this; no driver, no calibration. Where the values are from, and which of them
are assumed: docs/sources.md#figures-of-the-mesh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, create_model, model_validator

from lumion_hw.bench.file.fields import Flag, Number, StrictModel
from lumion_hw.emulator.chip.effects import CHIP_EFFECTS, EffectSizes, Physics


class HeaterEfficiencyModel(StrictModel):
    """Heater power per π of phase: spread between ``min`` and ``max`` around ``typical``, in mW."""

    min: Number = Field(1.2, gt=0.0, le=1000.0, description="Least of all heaters, mW.")
    typical: Number = Field(1.34, gt=0.0, le=1000.0, description="Of most heaters, mW.")
    max: Number = Field(2.0, gt=0.0, le=1000.0, description="Largest of all heaters, mW.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.min <= self.typical <= self.max:
            raise ValueError(f"expected min <= typical <= max, found {self.min:g}, {self.typical:g}, {self.max:g}")
        return self


if TYPE_CHECKING:

    class EffectsModel(StrictModel):
        """Sizes of effects in the place of those of the kind of chip; 0 switches one off."""

else:
    _SIZES: dict[str, Any] = {
        each.name: (Number | None, Field(None, ge=0.0, le=each.max_size, description=each.description))
        for each in CHIP_EFFECTS
    }
    EffectsModel = create_model("EffectsModel", __base__=StrictModel, **_SIZES)
    EffectsModel.__doc__ = "Sizes of effects in the place of those of the kind of chip; 0 switches one off."


class EmulationModel(StrictModel):
    """Spreads, noise and drift of the emulated bench. Everything random is drawn from the run's one seed."""

    physics: Physics = Field(
        "ideal", description="What the chip does beyond the model of a calibration: nothing, or as chips do."
    )
    effects: EffectsModel = Field(
        default_factory=EffectsModel, description="Sizes of single effects in the place of those of `physics`."
    )

    puc_loss_sigma_db: Number = Field(0.03, ge=0.0, le=5.0, description="Spread of the loss per PUC.")
    access_loss_sigma_db: Number = Field(1.0, ge=0.0, le=10.0, description="Spread of the loss between port and mesh.")
    coupler_common_sigma: Number = Field(
        0.011, ge=0.0, le=0.2, description="Spread of the power coupling common to both couplers of a PUC."
    )
    coupler_difference_rad: Number = Field(
        0.0063, ge=0.0, le=0.5, description="Difference of the two couplers' angles asin(sqrt(eta)) within a PUC."
    )
    passive_phases: Literal["random", "zero"] = Field(
        "random", description="Unheated phases of PUCs and joints: uniform over a turn, or all zero for teaching."
    )
    p_pi_mw: HeaterEfficiencyModel = Field(
        default_factory=HeaterEfficiencyModel, description="Heater power per half turn of phase."
    )
    heater_ohm_sigma: Number = Field(0.03, ge=0.0, le=0.3, description="Relative spread of the heater resistance.")
    thermal_nonlinearity_per_mw: Number = Field(
        0.02, ge=0.0, le=0.1, description="Relative rise of the heater resistance per mW of its own power."
    )
    thermal_tau_s: Number = Field(100e-6, gt=0.0, le=1.0, description="Time constant of a heater.")
    slow_heat_tau_s: Number = Field(
        20e-3, gt=0.0, le=1000.0, description="Time constant of the substrate, for `effects.slow_heat_share`."
    )
    crosstalk: Flag = Field(True, description="Heaters warm their neighbours.")
    monitor_noise_relative: Number = Field(0.005, ge=0.0, le=0.5, description="Photodiode noise relative to the light.")
    monitor_noise_floor_dbm: Number = Field(-60.0, ge=-120.0, le=0.0, description="Photodiode noise in the dark, rms.")
    fibre_drift_rad2_per_s: Number = Field(
        1e-5,
        ge=0.0,
        le=1e3,
        description="Rate at which the fibres' polarization wanders: autocorrelation exp(-rate t).",
    )
    temperature_sigma_k: Number = Field(
        0.0, ge=0.0, le=10.0, description="Spread of the chip's temperature about its set point; 0.01 to 0.1 is usual."
    )
    resistance_drift_per_root_day: Number = Field(
        0.0, ge=0.0, le=0.1, description="Relative random walk of the heaters' resistances; 1e-4 to 1e-3 is usual."
    )
    phase_drift_rad_per_root_day: Number = Field(
        0.0, ge=0.0, le=10.0, description="Random walk of the unheated phases of PUCs and joints."
    )
    tm_rejection_db: Number = Field(25.0, ge=0.0, le=80.0, description="Extra loss of TM light at each mesh port.")

    def effect_sizes(self) -> EffectSizes:
        """Return the size of every effect: of the kind of chip, or as the file has it."""
        return EffectSizes.for_chip(self.physics, self.effects.model_dump(exclude_none=True))
