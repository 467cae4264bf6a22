"""Section ``emulation`` of a bench file: the physics of the emulated bench.

Sources of the values: docs/sources.md#figures-of-the-mesh.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, create_model, model_validator

from lumion_hw.bench.file.fields import Flag, Number, StrictModel
from lumion_hw.emulator.chip.effects import CHIP_EFFECTS, EffectSizes, Physics
from lumion_hw.emulator.optics.physics_parameters import EMULATION_KEYS, EmulationKey, PhysicsParameters


class HeaterEfficiencyModel(StrictModel):
    """Heater power in mW for a phase shift of π: between ``min`` and ``max``, mostly near ``typical``."""

    min: Number = Field(PhysicsParameters.p_pi_min_mw, gt=0.0, le=1000.0, description="Minimum of all heaters, mW.")
    typical: Number = Field(PhysicsParameters.p_pi_typical_mw, gt=0.0, le=1000.0, description="Typical value, mW.")
    max: Number = Field(PhysicsParameters.p_pi_max_mw, gt=0.0, le=1000.0, description="Maximum of all heaters, mW.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.min <= self.typical <= self.max:
            raise ValueError(f"expected min <= typical <= max, found {self.min:g}, {self.typical:g}, {self.max:g}")
        return self


def _model_field(key: EmulationKey) -> tuple[Any, Any]:
    if isinstance(key.default, bool):
        return Flag, Field(key.default, description=key.description)
    ge, gt = (key.low, None) if key.low_is_allowed else (None, key.low)
    return Number, Field(key.default, ge=ge, gt=gt, le=key.high, description=key.description)


if TYPE_CHECKING:

    class EffectsModel(StrictModel):
        """Sizes of physical effects, which replace the defaults of key `physics`; 0 disables an effect."""

    class _PhysicsKeys(StrictModel): ...

else:
    _SIZES: dict[str, Any] = {
        effect.name: (Number | None, Field(None, ge=0.0, le=effect.max_size, description=effect.description))
        for effect in CHIP_EFFECTS
    }
    EffectsModel = create_model("EffectsModel", __base__=StrictModel, **_SIZES)
    EffectsModel.__doc__ = "Sizes of single physical effects, replacing defaults of `physics`; 0 disables an effect."
    _PhysicsKeys = create_model(
        "_PhysicsKeys", __base__=StrictModel, **{name: _model_field(key) for name, key in EMULATION_KEYS.items()}
    )


class EmulationModel(_PhysicsKeys):
    """Manufacturing spread, noise and drift of the emulated bench.

    All random values follow from the seed of the run.
    """

    physics: Physics = Field(
        "ideal",
        description="Chip effects beyond the calibration model: ideal (none), realistic or harsh.",
    )
    effects: EffectsModel = Field(
        default_factory=EffectsModel, description="Sizes of single effects that replace the defaults of `physics`."
    )
    passive_phases: Literal["random", "zero"] = Field(
        "random", description="Passive phases of PUCs and joints: uniformly random, or all zero for teaching."
    )
    p_pi_mw: HeaterEfficiencyModel = Field(
        default_factory=HeaterEfficiencyModel,
        description="Heater power for a phase of π. Without it, the range of `mesh.typical`.",
    )

    def effect_sizes(self) -> EffectSizes:
        """Return the size of every physical effect, from the file or from the default of `physics`."""
        return EffectSizes.for_chip(self.physics, self.effects.model_dump(exclude_none=True))

    def heater_efficiency(self, p_pi_range_mw: tuple[float, float]) -> HeaterEfficiencyModel:
        """Return the heater powers for a phase shift of π: from the file, or by default the given range in mW."""
        low_mw, high_mw = p_pi_range_mw
        default = HeaterEfficiencyModel()
        if "p_pi_mw" in self.model_fields_set or (low_mw, high_mw) == (default.min, default.max):
            return self.p_pi_mw
        # The typical value divides the logarithmic range as on the published chip.
        fraction = math.log(default.typical / default.min) / math.log(default.max / default.min)
        typical_mw = min(low_mw * (high_mw / low_mw) ** fraction, high_mw)
        return HeaterEfficiencyModel(min=low_mw, typical=typical_mw, max=high_mw)

    def physics_parameters(
        self, *, puc_loss_db: float, access_loss_db: float, heater_ohm: float, p_pi_range_mw: tuple[float, float]
    ) -> PhysicsParameters:
        """Return the parameters of the emulated physics.

        Args:
            puc_loss_db: Mean insertion loss of a PUC.
            access_loss_db: Mean loss between a fibre and the chip, per port.
            heater_ohm: Mean cold heater resistance.
            p_pi_range_mw: Smallest and largest heater power for a phase shift of π; used if the file does not give
                them.
        """
        p_pi_mw = self.heater_efficiency(p_pi_range_mw)
        keys = {name: getattr(self, name) for name in EMULATION_KEYS}
        if "thermal_nonlinearity_per_mw" not in self.model_fields_set:
            # Larger heaters have the same rise of resistance at a phase of π.
            keys["thermal_nonlinearity_per_mw"] *= PhysicsParameters.p_pi_typical_mw / p_pi_mw.typical
        return PhysicsParameters(
            puc_loss_db=puc_loss_db,
            access_loss_db=access_loss_db,
            heater_ohm=heater_ohm,
            random_passive_phases=self.passive_phases == "random",
            p_pi_min_mw=p_pi_mw.min,
            p_pi_typical_mw=p_pi_mw.typical,
            p_pi_max_mw=p_pi_mw.max,
            effects=self.effect_sizes(),
            **keys,
        )
