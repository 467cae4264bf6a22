"""``thorlabs-mpc``: Thorlabs motorised fibre paddles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from lumion_hw.bench.file.devices import DeviceModel
from lumion_hw.bench.file.fields import Number, WholeNumber
from lumion_hw.bench.file.kind import DeviceKind, DiscoveryQuery
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.polarization.thorlabs_mpc import Mpc320
    from lumion_hw.interfaces import PolarizationController


class PaddlesModel(DeviceModel):
    """Thorlabs MPC220 or MPC320: two or three motorised fibre paddles, on a serial line with 115 200 baud.

    Paddles are homed before their first move after power-up.
    """

    kind: Literal["thorlabs-mpc"]
    model: Literal["MPC220", "MPC320"] | None = Field(
        None, description="Expected model; by default the paddles that answer are used."
    )
    velocity_percent: WholeNumber | None = Field(
        None, ge=10, le=100, description="Velocity in percent of 400 degrees per second; by default unchanged."
    )
    settle_s: Number = Field(0.05, ge=0.0, le=10.0, description="Settling time of the light after a move.")


def _open(name: str, model: PaddlesModel, link: Link, clock: Clock) -> PolarizationController:
    from lumion_hw.drivers.polarization.thorlabs_mpc import ThorlabsMpc

    return model.open_device(
        ThorlabsMpc(
            link,
            clock,
            device=name,
            model=model.model,
            velocity_percent=model.velocity_percent,
            settle_s=model.settle_s,
        )
    )


def _emulate(bench: EmulatedBench, name: str, model: PaddlesModel) -> Mpc320:
    from lumion_hw.emulator.polarization.thorlabs_mpc import Mpc320

    controller = Mpc320(
        name,
        bench.clock,
        bench.rng(name),
        turn=bench.turn(name),
        model=model.model or "MPC320",
        serial=model.emulated_serial(name),
    )
    bench.world.before_reading.append(controller.advance)
    return controller


def _queries() -> tuple[DiscoveryQuery, ...]:
    from lumion_hw.sessions.codecs.apt import DecodedAptMessage, command

    # Sent six times with one byte in between, so that one request starts at a frame boundary whatever was sent before.
    request = (command(DecodedAptMessage.REQUEST_PARAMETERS) + b"\0") * 6
    return (DiscoveryQuery("Thorlabs paddles (APT, parameters)", (115200,), request, _identify),)


def _identify(answer: bytes) -> tuple[str, dict[str, Any]] | None:
    from lumion_hw.sessions.codecs.apt import AptDecoder, DecodedAptMessage, decode_parameters

    for frame in AptDecoder().feed(answer):
        if frame.message == DecodedAptMessage.PARAMETERS:
            return f"Thorlabs paddles (APT) at {decode_parameters(frame).velocity_percent} % of their velocity", {}
    return None


KIND = DeviceKind(
    title="Thorlabs MPC220 or MPC320 paddles, at 115 200 baud",
    role=Role.POLARIZATION,
    model=PaddlesModel,
    open=_open,
    emulate=_emulate,
    wire="pty",
    queries=_queries,
)
