"""A sweep as the LUMION mesh controller stores it: checked point by point, then encoded (protocol section 10.1)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import (
    FULL_SCALE_CODE,
    Drive,
    EndAction,
    HelloReply,
    SweepDataEvent,
    SweepImage,
    SweepReadReply,
    code_from_output,
    computed_power_uw,
    delta_points,
    mask_from_channels,
    max_elements,
    ring_capacity,
)
from lumion_hw.drivers.mesh.lumion.config import check_power, checked_currents, load_ohm, outside, power_cap_uw
from lumion_hw.drivers.mesh.lumion.monitors import check_average, chosen_monitors
from lumion_hw.errors import ConfigError, LimitError
from lumion_hw.interfaces import ControllerLimits, SweepPlan
from lumion_hw.sessions.framed_errors import Where

_MAX_U32 = 0xFFFFFFFF


@dataclass(frozen=True)
class PlannedSweep:
    """A sweep ready to be loaded.

    Attributes:
        image: The encoded image.
        n_points: Points, one record each.
        monitors: Monitor channels of a record, ascending.
        end: Table driven after the run, codes of shape ``(n_heaters,)``.
        dwell_ticks: Planned time of a point in ticks.
        window: Records the controller may be ahead.
    """

    image: bytes
    n_points: int
    monitors: tuple[int, ...]
    end: NDArray[np.uint16]
    dwell_ticks: int
    window: int


@dataclass(frozen=True)
class Allowed:
    """What a table may hold.

    Attributes:
        max_ma: Largest current per heater, shape ``(n_heaters,)``.
        limits: The limits applied, for the power cap; ``None`` before any were.
    """

    max_ma: NDArray[np.float64]
    limits: ControllerLimits | None


def planned_sweep(
    plan: SweepPlan, base: NDArray[np.uint16], hello: HelloReply, allowed: Allowed, where: Where
) -> PlannedSweep:
    """Check a plan against all limits and encode it.

    Args:
        plan: The plan.
        base: Codes driven now, shape ``(n_heaters,)``.
        hello: Sizes of the controller.
        allowed: What a table may hold.
        where: Names for messages.

    Raises:
        LimitError: A point is outside the limits (the message names point and channel), a time or average cannot be
            expressed, or the image is larger than the controller's memory.
        ConfigError: There is no point, or a heater or monitor that does not exist.
    """
    monitors = chosen_monitors(plan.monitors, hello.n_adc, "sweep", where)
    _check_run(plan, len(monitors), hello, where)
    start = base
    if plan.start_ma is not None:
        checked = checked_currents(plan.start_ma, allowed.max_ma, "sweep, start_ma", where)
        start = code_from_output(checked, hello.dac_full_scale * 1e-3)
    tables = _Tables(plan, start, hello, allowed, where)
    settle_us = math.ceil(plan.settle_s * 1e6)
    dwell_ticks = max(1, -(-(settle_us + plan.n_avg * hello.adc_scan_us) // hello.tick_us))
    image = SweepImage(
        delta_points(tables, start),
        n_avg=plan.n_avg,
        settle_us=settle_us,
        dwell_us=min(dwell_ticks * hello.tick_us, _MAX_U32),
        end_action=EndAction.KEEP if plan.keep_last else EndAction.BASE,
        mask=b"" if plan.monitors is None else mask_from_channels(monitors, hello.n_adc),
        start_table=None if plan.start_ma is None else start,
    ).encode()
    _check("the encoded sweep", len(image), hello.sweep_mem, "B", "Split it into several sweeps.", where)
    capacity = ring_capacity(hello.sweep_ring, len(monitors))
    window = max(1, min(capacity, _window(hello.fw_tx_max, len(monitors))))
    end = tables.table if plan.keep_last else base
    return PlannedSweep(image, len(plan.points), monitors, end, dwell_ticks, window)


def _window(mtu: int, n_monitors: int) -> int:
    """Records the controller may push ahead: some frames full, so that it never waits for an acknowledgement."""
    return 16 * max_elements(SweepDataEvent, mtu, row=n_monitors)


def _check_run(plan: SweepPlan, n_monitors: int, hello: HelloReply, where: Where) -> None:
    if not plan.points:
        raise ConfigError("sweep: there is no point in the plan.", device=where.device, address=where.address)
    check_average(plan.n_avg, "sweep, n_avg", where)
    longest_s = _MAX_U32 * 1e-6
    if not 0.0 <= plan.settle_s <= longest_s:
        raise outside("sweep, settle_s", plan.settle_s, (0.0, longest_s), "s", where)
    fit = min(max_elements(kind, hello.fw_tx_max) for kind in (SweepDataEvent, SweepReadReply))
    hint = "Choose fewer monitors."
    _check("sweep, monitors of one record", n_monitors, min(fit, hello.sweep_ring), "monitors", hint, where)


def _check(what: str, asked: int, limit: int, unit: str, hint: str, where: Where) -> None:
    if asked > limit:
        raise LimitError(
            what, asked=asked, limit=limit, unit=unit, device=where.device, address=where.address, hint=hint
        )


class _Tables:
    """The tables of a plan one after the other, each checked on its way.

    Attributes:
        table: The newest one.
    """

    def __init__(
        self, plan: SweepPlan, start: NDArray[np.uint16], hello: HelloReply, allowed: Allowed, where: Where
    ) -> None:
        self.table = np.array(start, dtype=np.uint16)
        self._points = plan.points
        self._hello = hello
        self._max_ma = allowed.max_ma
        self._where = where
        limits = allowed.limits
        self._cap_uw = math.inf if limits is None else power_cap_uw(limits)
        self._ohm = np.zeros(len(start), np.int64) if limits is None else load_ohm(limits)
        self._power_uw = computed_power_uw(self.table, self._ohm, hello.dac_full_scale, Drive.CURRENT)

    def __iter__(self) -> Iterator[NDArray[np.uint16]]:
        for number, point in enumerate(self._points):
            self._change(number, point)
            check_power(self._power_uw, self._cap_uw, f"sweep, point {number}", self._where)
            yield self.table.copy()

    def _change(self, number: int, point: Mapping[int, float]) -> None:
        for channel, current_ma in point.items():
            if not (_is_number(channel) and 0 <= channel < len(self.table)):
                raise ConfigError(
                    f"sweep, point {number}: heater {channel} does not exist; "
                    f"the controller has heaters 0 to {len(self.table) - 1}.",
                    device=self._where.device,
                    address=self._where.address,
                )
            if not _is_number(current_ma):
                raise ConfigError(
                    f"sweep, point {number}, channel {channel}: {current_ma!r} is no number.",
                    device=self._where.device,
                    address=self._where.address,
                )
            top_ma = float(self._max_ma[channel])
            if not 0.0 <= current_ma <= top_ma:
                what = f"sweep, point {number}, channel {channel}"
                raise outside(what, current_ma, (0.0, top_ma), "mA", self._where)
            code = round(float(current_ma) / (self._hello.dac_full_scale * 1e-3) * FULL_SCALE_CODE)
            self._power_uw += self._channel_uw(channel, code) - self._channel_uw(channel, int(self.table[channel]))
            self.table[channel] = code

    def _channel_uw(self, channel: int, code: int) -> int:
        """Power of one channel in the integers of section 7.3."""
        current_ua = code * self._hello.dac_full_scale // FULL_SCALE_CODE
        return int(current_ua * current_ua * int(self._ohm[channel]) // 1_000_000)


def _is_number(value: object) -> bool:
    """Return whether a value is one real number: nothing masked or complex, no text."""
    return isinstance(value, float | int | np.floating | np.integer)
