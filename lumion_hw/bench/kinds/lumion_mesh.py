"""``lumion-mesh``: the LUMION mesh controller."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from lumion_hw.bench.file.checks import BenchData, Check
from lumion_hw.bench.file.devices import HeaterDriverModel
from lumion_hw.bench.file.fields import Number, Serial
from lumion_hw.bench.file.heater_checks import channel_check, heater_check
from lumion_hw.bench.file.kind import DeviceKind, DiscoveryQuery
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.address import serial_baud
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.faults.device_faults import Target
    from lumion_hw.emulator.faults.fault_table import Places, ScriptedFault
    from lumion_hw.emulator.mesh.lumion import MeshBoard
    from lumion_hw.interfaces import MeshController

_MAX_FRAME_BYTES = 4096
_FULL_SCALE_UA = 3_000
"""Full scale of the emulated outputs; larger if the bench file allows more current."""
_MAX_CHANNELS = 2000
"""Largest number of drive channels (docs/protocol.md, section 1)."""


class MeshControllerModel(HeaterDriverModel):
    """The LUMION mesh controller, which drives the heaters."""

    kind: Literal["lumion-mesh"]
    serial: Serial | None = Field(None, description="Expected serial number; opening fails if it differs.")
    watchdog_s: Number = Field(
        2.0, ge=0.1, le=60.0, description="Time without a message from the host after which all heaters switch off."
    )
    monitor_responsivity_a_per_w: Number = Field(
        0.8, gt=0.0, le=2.0, description="Nominal responsivity of the photodiodes at the ports."
    )

    emulated_write_ms: Number = Field(
        0.0,
        ge=0.0,
        le=10_000.0,
        description="Time that the emulated controller needs to write a table before it takes effect.",
    )

    @property
    def photodiodes_a_per_w(self) -> float:
        """Nominal responsivity of the photodiodes at the ports, in A/W."""
        return self.monitor_responsivity_a_per_w


def _check(bench: BenchData, name: str) -> Iterator[Check]:
    yield from heater_check(bench, name, MeshControllerModel)
    yield from channel_check(bench, name, _MAX_CHANNELS, "a LUMION mesh controller")


def _open(name: str, model: MeshControllerModel, link: Link, clock: Clock) -> MeshController:
    from lumion_hw.drivers.life_cycle import close_on_error
    from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController

    # On a UART, time-outs must include the transmission time of the bytes.
    baud = serial_baud(link.name)
    controller = LumionMeshController(
        link,
        clock,
        device=name,
        expected_serial=model.serial,
        baud=baud,
        on_exit="hold" if model.leave_on_s else "off",
        hold_s=model.leave_on_s,
    )
    controller.open()
    with close_on_error(controller.close):
        if model.leave_on_s:
            controller.end_hold()
        controller.configure(model.limits(controller.info.n_heaters, model.watchdog_s))
    return controller


def _emulate(bench: EmulatedBench, name: str, model: MeshControllerModel) -> MeshBoard:
    from lumion_hw.emulator.mesh.lumion import BoardProfile, MeshBoard

    share = bench.share_of(name)
    board = MeshBoard(
        name,
        bench.clock,
        bench.rng(name),
        drive=bench.driving(name),
        sense_ma=bench.sensing(name),
        profile=BoardProfile(
            n_dac=len(share.heaters),
            n_adc=len(share.monitors),
            dac_full_scale=max(_FULL_SCALE_UA, math.ceil(1e3 * model.heater_max_ma)),
            adc_full_scale=5_000_000,  # 5 mA: an amplified input one hop away must not saturate the photodiode
            serial=model.serial or f"EMU-{name}"[:11] + f"-{bench.chip_id[:4]}",
            write_us=round(1e3 * model.emulated_write_ms),
        ),
    )
    ambient_c = board.core.profile.chip_temp_c

    def warm(temperature_k: float) -> None:
        board.core.set_chip_temp(round(100.0 * (ambient_c + temperature_k)), bench.clock.now())

    bench.slow_drift.on_change.append(warm)
    bench.world.scanning.append(board.advance)
    bench.world.before_changing.append(board.advance)
    return board


def _queries() -> tuple[DiscoveryQuery, ...]:
    from firmware_protocol import Command, Frame, Kind, PingRequest, encode_frame

    ping = encode_frame(Frame(Kind.REQ, Command.PING, payload=PingRequest().encode()))
    # The zero byte ends any partial frame in the controller's receive buffer.
    return (
        DiscoveryQuery("LUMION mesh controller (PING outside of sessions)", (115200, 921600), b"\0" + ping, _identify),
    )


def _identify(answer: bytes) -> tuple[str, dict[str, Any]] | None:
    from firmware_protocol import BadFrame, Command, Decoder, Kind, PingReply, ProtocolError

    for item in Decoder(_MAX_FRAME_BYTES).feed(answer):
        if isinstance(item, BadFrame) or item.kind != Kind.RSP or item.command != Command.PING:
            continue
        try:
            reply = PingReply.decode(item.payload)
        except ProtocolError:
            continue
        return f"LUMION mesh controller, outputs {reply.outputs_state.name}", {}
    return None


def _sources(_target: Target) -> Places:
    from firmware_protocol import FaultSource

    return {"source": {int(source) for source in {*FaultSource, *range(24, 32)}}}


def _faults() -> tuple[ScriptedFault, ...]:
    from lumion_hw.emulator.faults.device_faults import calls
    from lumion_hw.emulator.faults.fault_table import Argument, ScriptedFault

    return (
        ScriptedFault(
            "trip",
            "a fault source trips and stays present until the fault ends; the latched trip remains",
            (Argument("source", "number of the source in the protocol", component_kind="source"),),
            lambda target, source: target.device.trip(source, present=True),
            lambda target, source: target.device.remove_condition(source),
            places=_sources,
        ),
        ScriptedFault(
            "hot_chip",
            "the chip has this temperature; above the limit the controller trips",
            (Argument("temperature_c", "temperature of the chip", -40.0, 150.0, "degC"),),
            lambda target, temperature_c: target.device.set_chip_temperature(temperature_c),
        ),
        ScriptedFault(
            "hang",
            "the processor hangs: no timers, no replies, outputs unchanged",
            begin=calls("freeze"),
            end=calls("thaw"),
        ),
        ScriptedFault(
            "deaf",
            "the controller stops reading bytes; everything else continues, so the watchdog trips",
            begin=calls("stop_reading"),
            end=calls("resume_reading"),
        ),
        ScriptedFault(
            "restart",
            "the processor restarts: outputs are 0 and sessions are lost",
            begin=calls("reset"),
            is_momentary=True,
        ),
        ScriptedFault(
            "lose_frames",
            "the next valid frames are lost without an error",
            (Argument("count", "number of frames", 1, 1_000_000, default=1),),
            lambda target, count: target.device.lose_frames(int(count)),
            is_momentary=True,
        ),
        ScriptedFault(
            "corrupt_bytes",
            "random bytes in both directions are replaced",
            (
                Argument("rate", "probability per byte", 0.0, 1.0),
                Argument("seed", "random seed", 0, 2**32 - 1, default=0),
            ),
            lambda target, rate, seed: target.device.corrupt(rate, int(seed)),
            lambda target, **_: target.device.corrupt(0.0),
        ),
    )


KIND = DeviceKind(
    title="LUMION mesh controller",
    role=Role.MESH,
    model=MeshControllerModel,
    open=_open,
    emulate=_emulate,
    queries=_queries,
    faults=_faults,
    check=_check,
)
