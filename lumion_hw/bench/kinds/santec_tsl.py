"""``santec-tsl``: Santec TSL tunable lasers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from lumion_hw.bench.file.devices import DeviceModel
from lumion_hw.bench.file.fields import Number
from lumion_hw.bench.file.kind import DeviceKind, ScpiIdentity
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.lasers.santec_tsl import EmulatedSantecTsl
    from lumion_hw.interfaces import TunableLaser


class SantecLaserModel(DeviceModel):
    """Santec TSL-510, TSL-550, TSL-570 or TSL-710 tunable laser.

    All except the TSL-570 need the wavelength keys in the bench file.
    """

    kind: Literal["santec-tsl"]
    model: Literal["TSL-510", "TSL-550", "TSL-570", "TSL-710"] | None = Field(None, description="Expected model.")
    serial: str | None = Field(None, description="Expected serial number; opening fails if it differs.")
    wavelength_min_nm: Number | None = Field(None, ge=400.0, le=3000.0, description="Shortest wavelength.")
    wavelength_max_nm: Number | None = Field(None, ge=400.0, le=3000.0, description="Longest wavelength.")
    power_min_dbm: Number | None = Field(None, ge=-60.0, le=30.0, description="Lowest output power.")
    power_max_dbm: Number | None = Field(None, ge=-60.0, le=30.0, description="Highest output power.")

    @model_validator(mode="after")
    def _limits_in_pairs(self) -> Self:
        for low, high, expected in (
            (self.wavelength_min_nm, self.wavelength_max_nm, "wavelength_min_nm below wavelength_max_nm"),
            (self.power_min_dbm, self.power_max_dbm, "power_min_dbm below power_max_dbm"),
        ):
            both_or_none = (low is None) == (high is None)
            if not both_or_none or (low is not None and high is not None and not low < high):
                raise ValueError(f"expected {expected}, both or none; found {low} and {high}")
        return self

    @model_validator(mode="after")
    def _range_of_older_lasers(self) -> Self:
        if self.model not in (None, "TSL-570") and self.wavelength_min_nm is None:
            raise ValueError(
                f"expected wavelength_min_nm and wavelength_max_nm, because a {self.model} does not report its range; "
                "found neither"
            )
        return self


def _open(name: str, model: SantecLaserModel, link: Link, clock: Clock) -> TunableLaser:
    from lumion_hw.drivers.lasers.santec_tsl import SantecTsl

    return model.open_device(
        SantecTsl(
            link,
            clock,
            device=name,
            expected_model=model.model,
            expected_serial=model.serial,
            limits_nm=_pair(model.wavelength_min_nm, model.wavelength_max_nm),
            limits_dbm=_pair(model.power_min_dbm, model.power_max_dbm),
        )
    )


def _pair(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None else (low, high)


def _emulate(bench: EmulatedBench, name: str, model: SantecLaserModel) -> EmulatedSantecTsl:
    from lumion_hw.emulator.lasers.santec_tsl import EmulatedSantecTsl

    laser = EmulatedSantecTsl(
        name,
        bench.clock,
        bench.rng(name),
        serial=model.emulated_serial(name),
        model=model.model or "TSL-570",
        on_triggers=bench.trigger_output(name),
        emit=bench.launch(name),
    )
    bench.add_swept_laser(name, laser.advance, laser.light_at)
    return laser


KIND = DeviceKind(
    title="Santec TSL-510, 550, 570 or 710; only a TSL-570 works without the wavelength keys",
    role=Role.LASER,
    model=SantecLaserModel,
    open=_open,
    emulate=_emulate,
    hislip=True,
    scpi=ScpiIdentity("santec", "TSL-(510|550|570|710)$", names_model=True),
)
