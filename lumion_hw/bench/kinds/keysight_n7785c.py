"""``keysight-n7785c``: the Keysight N7785C polarization stabilizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from lumion_hw.bench.file.devices import DeviceModel
from lumion_hw.bench.file.fields import Number
from lumion_hw.bench.file.kind import DeviceKind, ScpiIdentity
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.polarization.keysight_n778x import EmulatedKeysightN7785C
    from lumion_hw.interfaces import PolarizationOptimizer


class StabilizerModel(DeviceModel):
    """Keysight N7785C polarization stabilizer (SCPI), which optimizes the polarization by a feedback signal."""

    kind: Literal["keysight-n7785c"]
    serial: str | None = Field(None, description="Expected serial number; opening fails if it differs.")
    settle_s: Number = Field(0.05, ge=0.0, le=10.0, description="Settling time of the light after a step.")


def _open(name: str, model: StabilizerModel, link: Link, clock: Clock) -> PolarizationOptimizer:
    from lumion_hw.drivers.polarization.keysight_n778x import KeysightN7785C

    return model.open_device(
        KeysightN7785C(link, clock, device=name, expected_serial=model.serial, settle_s=model.settle_s)
    )


def _emulate(bench: EmulatedBench, name: str, model: StabilizerModel) -> EmulatedKeysightN7785C:
    from lumion_hw.emulator.polarization.keysight_n778x import EmulatedKeysightN7785C

    return EmulatedKeysightN7785C(
        name, bench.clock, bench.rng(name), turn=bench.turn(name), serial=model.emulated_serial(name)
    )


KIND = DeviceKind(
    title="Keysight N7785C polarization stabilizer, with an autonomous search",
    role=Role.POLARIZATION_OPTIMIZER,
    model=StabilizerModel,
    open=_open,
    emulate=_emulate,
    hislip=True,
    scpi=ScpiIdentity("keysight|agilent", "N7785C$", names_model=False),
)
