"""Monitors and thresholds of a QSFP module (SFF-8636 clauses 6.2.4 and 6.7)."""

from __future__ import annotations

from collections.abc import Iterable

from lumion_hw.clock import Clock
from lumion_hw.drivers.transponders.qsfp_identity import END_OF_READINGS, FIRST_READING, QsfpCapabilities
from lumion_hw.drivers.transponders.qsfp_memory import QsfpMemory
from lumion_hw.drivers.transponders.sfp_diagnostics import Thresholds
from lumion_hw.errors import DeviceError, OutOfRangeError
from lumion_hw.interfaces import LaneMonitors
from lumion_hw.quantities import dbm_from_w, w_from_dbm
from lumion_hw.standards.cmis.fields import HALF_BYTES
from lumion_hw.standards.registers import number, raw
from lumion_hw.standards.sff8636.registers import (
    LANES,
    LIMITS,
    MONITORS,
    POWERS,
    THRESHOLD_PAGE,
    QsfpField,
    find,
)

DATA_READY_S = 2.0
"""Time until the first monitor values are valid, in s (SFF-8679, t_data)."""
DARK_DBM = -30.0
"""Power of a lane below which its transmitter is off, in dBm (IEEE 802.3 Tables 88-7 and 95-6)."""
POLL_S = 0.1
"""Period in s at which a state of the module is read while waiting for it."""
_FULL_SCALE = 0xFFFF


class QsfpMonitors:
    """Reads the monitors and thresholds that a module announces.

    Args:
        memory: Memory of the module.
        clock: Clock for waiting times.
        capabilities: QsfpCapabilities of the module.
    """

    def __init__(self, memory: QsfpMemory, clock: Clock, capabilities: QsfpCapabilities) -> None:
        self._memory = memory
        self._clock = clock
        self._capabilities = capabilities
        self._thresholds: dict[str, Thresholds] | None = None

    def thresholds(self) -> dict[str, Thresholds]:
        """Return the thresholds by monitor; powers are in dBm. Empty if the module has no page 03h."""
        if self._thresholds is None:
            self._thresholds = self._read_thresholds()
        return dict(self._thresholds)

    def read(self, *, strict: bool = True) -> tuple[dict[str, float | None], tuple[LaneMonitors, ...]]:
        """Return temperature and supply by name, and the monitors of the lanes.

        Args:
            strict: Whether to wait until the values are valid, and to refuse saturated powers. Otherwise a saturated
                power is the highest measurable one: a dark transmitter can be verified in too strong received light.

        Raises:
            DeviceError: The values are not valid in time.
            OutOfRangeError: A power is above the measurable range of the module.
        """
        if strict:
            self.await_data()
        data = self._memory.pages.read_page(None, FIRST_READING, END_OF_READINGS - FIRST_READING)

        def value(name: str, lane: int | None = None) -> float | None:
            field = find(name, lane)
            if not self._capabilities.measures(name, data):
                return None
            counts = data[field.byte - FIRST_READING : field.end - FIRST_READING]
            return self._power_dbm(field, counts, strict) if name in POWERS else number(field, counts)

        module = {name: value(name) for name in ("temperature", "supply")}
        return module, tuple(
            LaneMonitors(lane, value("tx_bias", lane), value("tx_power", lane), value("rx_power", lane))
            for lane in LANES
        )

    def _power_dbm(self, field: QsfpField, counts: bytes, strict: bool) -> float | None:
        # A saturated converter returns the full-scale count.
        if strict and raw(field, counts) == _FULL_SCALE:
            raise self._memory.error(
                OutOfRangeError,
                f"{field.name} of lane {field.lane} is above the module's range of +8.16 dBm",
                hint="Insert an attenuator. More than +4 dBm damages receivers.",
            )
        power_w = number(field, counts)
        return dbm_from_w(power_w) if power_w else None

    def await_data(self) -> None:
        """Wait until the monitor values are valid. Raises ``DeviceError`` after ``DATA_READY_S``."""
        deadline = self._clock.now() + DATA_READY_S
        while self._memory.bit("data_not_ready"):
            if self._clock.now() >= deadline:
                raise self._memory.error(
                    DeviceError,
                    f"the monitor values are not valid after {DATA_READY_S:g} s",
                    hint="Data_Not_Ready (byte 2, bit 0) is still set. Wait for the module to start, or replace it.",
                )
            self._clock.sleep(POLL_S)

    def _read_thresholds(self) -> dict[str, Thresholds]:
        pages = self._memory.pages
        # Some modules announce page 03h without having it; a memory file then shows page 00h in its place.
        with pages.transaction():
            if self._capabilities.flat or not pages.has_page(THRESHOLD_PAGE):
                return {}
            half = pages.read_page(THRESHOLD_PAGE, HALF_BYTES, HALF_BYTES)
        table = {}
        for monitor in MONITORS:
            if self._capabilities.has(monitor):
                values = [
                    number(field, half[field.byte - HALF_BYTES : field.end - HALF_BYTES]) for field in _limits(monitor)
                ]
                if any(values):
                    table[monitor] = Thresholds(*(_limit(monitor, value) for value in values))
        return table


def _limits(monitor: str) -> list[QsfpField]:
    return [find(f"{monitor}_{limit}") for limit in LIMITS]


def _limit(monitor: str, value: float) -> float | None:
    if monitor not in POWERS:
        return value
    return dbm_from_w(value) if value else None


def total_dbm(powers_dbm: Iterable[float | None]) -> float | None:
    """Return the sum of the powers that are not ``None``, in dBm; ``None`` without any."""
    powers_w = [w_from_dbm(power_dbm) for power_dbm in powers_dbm if power_dbm is not None]
    return dbm_from_w(sum(powers_w)) if powers_w else None


def is_dark(item: LaneMonitors) -> bool:
    """Return whether the transmitter of a lane emits no light."""
    return item.tx_power_dbm is None or item.tx_power_dbm < DARK_DBM


def is_within(power_dbm: float | None, window: Thresholds | None) -> bool:
    """Return whether a power is within alarm thresholds; without them, whether it is not dark."""
    if power_dbm is None:
        return False
    low = DARK_DBM if window is None or window.low_alarm is None else window.low_alarm
    return low <= power_dbm and (window is None or window.high_alarm is None or power_dbm <= window.high_alarm)
