"""Converts replies of the LUMION mesh controller to values of the interfaces."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from firmware_protocol import (
    FaultRecord,
    FaultSource,
    FaultState,
    Feature,
    GetStatsRequest,
    HelloReply,
    StatsCounter,
    SweepImage,
    SweepPoint,
    fault_source_name,
    has_feature,
)
from lumion_hw.drivers.mesh.lumion.light import can_watch
from lumion_hw.interfaces import ControllerInfo, Fault
from lumion_hw.sessions.framed.session import FramedSession

_log = logging.getLogger(__name__)

_MODEL = "LUMION mesh controller"

EventT = TypeVar("EventT")


def controller_info(hello: HelloReply) -> ControllerInfo:
    """Return identity and capabilities of the controller from its HELLO reply."""
    full_scale_ma = hello.dac_full_scale * 1e-3
    sweeps = bool(has_feature(hello.features, Feature.SWEEP) and hello.sweep_mem and hello.sweep_ring)
    return ControllerInfo(
        model=_MODEL,
        serial=hello.serial,
        firmware=hello.fw_version,
        n_heaters=hello.n_dac,
        n_monitors=hello.n_adc,
        current_full_scale_ma=full_scale_ma,
        current_step_ma=full_scale_ma * (1 << (16 - hello.dac_bits)) / 65535,
        atomic=True,
        readback=True,
        watchdog=True,
        on_board_sweep=sweeps,
        telemetry=bool(hello.n_streams and hello.n_adc),
        monitor_full_scale_ma=hello.adc_full_scale * 1e-6,
        monitor_step_ma=hello.adc_full_scale * 1e-6 / (2**hello.adc_bits - 1) if hello.adc_bits else 0.0,
        sweep_points=_sweep_points(hello) if sweeps else 0,
        watches_light=can_watch(hello),
        tick_s=hello.tick_us * 1e-6,
    )


def _sweep_points(hello: HelloReply) -> int:
    point = SweepPoint(table=np.zeros(hello.n_dac, np.uint16))
    size = len(point.encode())
    image = SweepImage((point,), mask=bytes(-(-hello.n_adc // 8)))
    return (hello.sweep_mem - len(image.encode()) + size) // size


def board_counters(session: FramedSession) -> dict[str, int]:
    """Return the controller's counters by name. Counters unknown to the driver are named by their number."""
    counters = session.request(GetStatsRequest()).counters.tolist()
    names = [counter.name.lower() for counter in StatsCounter]
    return {names[i] if i < len(names) else f"counter_{i}": count for i, count in enumerate(counters)}


def fault_from_record(record: FaultRecord) -> Fault:
    """Convert a fault record to a :class:`Fault`."""
    is_known = record.source in FaultSource.__members__.values()
    return Fault(
        fault_id=record.fault_id,
        source=fault_source_name(record.source),
        latched=record.fault_state is not FaultState.CLEARED,
        present=record.fault_state is FaultState.PRESENT,
        channel=record.channel,
        value=record.value,
        limit=record.limit,
        extra={"tick": record.tick, "unit": FaultSource(record.source).unit if is_known else ""},
    )


def call_back(callback: Callable[[EventT], None] | None, event: EventT) -> None:
    """Call a function of the application, and log its exceptions instead of raising them."""
    if callback is None:
        return
    try:
        callback(event)
    except Exception:  # noqa: BLE001 - code of the application
        _log.exception("the callback of the application raised an error for the event %s", event)
