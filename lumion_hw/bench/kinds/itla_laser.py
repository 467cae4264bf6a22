"""``itla-laser``: integrable tunable lasers according to OIF-ITLA-MSA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from lumion_hw.bench.file.devices import DeviceModel
from lumion_hw.bench.file.kind import DeviceKind, DiscoveryQuery
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.faults.fault_table import ScriptedFault
    from lumion_hw.emulator.lasers.itla import Itla
    from lumion_hw.interfaces import TunableLaser


class ItlaModel(DeviceModel):
    """Integrable tunable laser according to OIF-ITLA-MSA.

    The serial line has 9600 baud unless the laser is set to another rate.
    """

    kind: Literal["itla-laser"]
    serial: str | None = Field(None, description="Expected serial number; opening fails if it differs.")


def _open(name: str, model: ItlaModel, link: Link, clock: Clock) -> TunableLaser:
    from lumion_hw.drivers.lasers.itla import ItlaLaser

    return model.open_device(ItlaLaser(link, clock, device=name, expected_serial=model.serial))


def _emulate(bench: EmulatedBench, name: str, model: ItlaModel) -> Itla:
    from lumion_hw.emulator.lasers.itla import Itla

    laser = Itla(
        name,
        bench.clock,
        bench.rng(name),
        serial=model.emulated_serial(name),
        warm=bench.warm,
        emit=bench.launch(name),
    )
    bench.world.before_reading.append(laser.advance)
    return laser


def _queries() -> tuple[DiscoveryQuery, ...]:
    from lumion_hw.sessions.codecs.itla import ItlaRegister, read_request

    # Sent four times, because the first requests may complete a frame that another discovery query began. No such frame
    # has a valid checksum and the write bit, at whatever byte the frame begins.
    return (DiscoveryQuery("ITLA laser (NOP)", (9600,), read_request(ItlaRegister.NOP) * 4, _identify),)


def _identify(answer: bytes) -> tuple[str, dict[str, Any]] | None:
    from lumion_hw.sessions.codecs.itla import FRAME_BYTES, ItlaRegister, decode_reply

    for start in range(len(answer) - FRAME_BYTES + 1):
        reply = decode_reply(answer[start : start + FRAME_BYTES])
        if reply is not None and not reply.damaged and reply.register == ItlaRegister.NOP:
            return "ITLA laser (answers NOP)", {}
    return None


def _faults() -> tuple[ScriptedFault, ...]:
    from lumion_hw.emulator.faults.device_faults import calls, lasting

    return (lasting("disable_pin", "the output-disable pin is asserted", calls, "pull_disable_pin"),)


KIND = DeviceKind(
    title="ITLA according to OIF-ITLA-MSA",
    role=Role.LASER,
    model=ItlaModel,
    open=_open,
    emulate=_emulate,
    baud=9600,
    wire="pty",
    queries=_queries,
    faults=_faults,
)
