"""``oz-epc04``: OZ Optics EPC04 polarization controllers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from lumion_hw.bench.file.devices import DeviceModel
from lumion_hw.bench.file.fields import Number
from lumion_hw.bench.file.kind import DeviceKind, DiscoveryQuery
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.polarization.oz_epc04 import Epc04
    from lumion_hw.interfaces import PolarizationController


class PolarizationControllerModel(DeviceModel):
    """OZ Optics EPC04 polarization controller: four fibre squeezers on a serial line."""

    kind: Literal["oz-epc04"]
    settle_s: Number = Field(0.001, ge=0.0, le=10.0, description="Settling time of the light after a change.")


def _open(name: str, model: PolarizationControllerModel, link: Link, clock: Clock) -> PolarizationController:
    from lumion_hw.drivers.polarization.oz_epc04 import OzEpc04

    return model.open_device(OzEpc04(link, clock, device=name, settle_s=model.settle_s))


def _emulate(bench: EmulatedBench, name: str, _model: PolarizationControllerModel) -> Epc04:
    from lumion_hw.emulator.optics.polarization import Squeezers
    from lumion_hw.emulator.polarization.oz_epc04 import Epc04

    squeezers = [
        Squeezers(chain.squeezer_period_mv, chain.squeezer_offset_rad, bench.clock.now)
        for chain, path in zip(bench.world.chains, bench.spec.wiring.inputs, strict=True)
        if path.polarization == name
    ]

    def drive_mv(channel: int, drive_mv: float) -> None:
        for squeezer in squeezers:
            squeezer.drive(channel, drive_mv)

    def follow() -> None:
        controller.advance()
        for squeezer in squeezers:
            bench.world.set_polarization(name, squeezer.jones())

    controller = Epc04(name, bench.clock, bench.rng(name), drive_mv=drive_mv)
    bench.world.before_reading.append(follow)
    return controller


def _identify(answer: bytes) -> tuple[str, dict[str, Any]] | None:
    text = " ".join(answer.decode("ascii", "replace").split())
    if not re.search(r"CH1 [+-]?\d+ CH2 [+-]?\d+ CH3 [+-]?\d+ CH4 [+-]?\d+ Done", text):
        return None
    return "OZ Optics EPC04", {}


KIND = DeviceKind(
    title="OZ Optics polarization controller",
    role=Role.POLARIZATION,
    model=PolarizationControllerModel,
    open=_open,
    emulate=_emulate,
    baud=9600,
    wire="pty",
    queries=lambda: (DiscoveryQuery("OZ Optics EPC04 (V?)", (9600,), b"V?\r\n", _identify),),
)
