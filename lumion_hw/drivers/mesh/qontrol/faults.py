"""Faults that Qontrol modules reported, kept until they are cleared by id or the driver is closed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.drivers.mesh.qontrol.chain import ModuleChain
from lumion_hw.drivers.mesh.qontrol.values import ChannelReadings, Compliance
from lumion_hw.interfaces import Fault
from lumion_hw.sessions.codecs.qontrol import (
    ERRORS_SUPPRESSED,
    LOG_ENTRY_LINE,
    OVER_CURRENT,
    OVER_VOLTAGE,
    POWERED_UP,
    REQUEST_ERRORS,
    encode_text_request,
    error_name,
)
from lumion_hw.sessions.qontrol import QontrolSession, Report

STOPPED = "ESTOP"
HOST_IDLE = "HOST_IDLE"
# Below 1 because of measurement noise.
_AT_LIMIT_FRACTION = 0.95  # fraction of its limit from which an output counts as being at the limit
_MAX_FAULTS = 256
_LOG_LINES = 64
_AGE_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
# The log has ages in whole seconds, and reports are traced within one second.
_RECENT_S = 2.0


@dataclass(frozen=True)
class LogEntry:
    """One line of the error log of a module.

    Attributes:
        module: Position of the module in the chain.
        code: Error code.
        local_channel: Channel within the module.
        age_s: Age of the entry; the log counts whole seconds, minutes or hours.
    """

    module: int
    code: int
    local_channel: int
    age_s: float


class FaultLatch:
    """Stores up to 256 faults. When full, it drops the oldest cleared fault, or without one the oldest fault."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._newest_id = 0

    @property
    def faults(self) -> tuple[Fault, ...]:
        """All stored faults, oldest first."""
        return tuple(self._faults)

    @property
    def latched(self) -> tuple[Fault, ...]:
        """All latched faults, oldest first."""
        return tuple(fault for fault in self._faults if fault.latched)

    def add(self, fault: Fault) -> Fault:
        """Latch a fault under a new id. A fault that is already latched is not added again."""
        for stored in self.latched:
            # A lasting fault is reported repeatedly.
            if (stored.source, _candidates(stored)) == (fault.source, _candidates(fault)):
                return stored
        self._newest_id += 1
        fault = replace(fault, fault_id=self._newest_id, latched=True)
        self._faults.append(fault)
        if len(self._faults) > _MAX_FAULTS:
            # A latched fault is dropped only if all are latched, because nobody may have seen it yet.
            oldest = next((stored for stored in self._faults if not stored.latched), self._faults[0])
            self._faults.remove(oldest)
        return fault

    def find(self, fault_id: int) -> Fault | None:
        """Return the fault with this id, or ``None`` if it is not stored."""
        return next((fault for fault in self._faults if fault.fault_id == fault_id), None)

    def was_issued(self, fault_id: int) -> bool:
        """Return whether a fault ever had this id."""
        return 1 <= fault_id <= self._newest_id

    def clear(self, fault_id: int) -> None:
        """Mark the fault with this id as no longer latched."""
        self._faults = [
            replace(fault, latched=False, present=False) if fault.fault_id == fault_id else fault
            for fault in self._faults
        ]

    def refresh(self, readings: ChannelReadings, compliance: Compliance) -> None:
        """Update for every latched fault whether its channel is at its limit now."""
        at_limit = {code: _channels_at_limit(code, readings, compliance) for code in (OVER_VOLTAGE, OVER_CURRENT)}
        for index, fault in enumerate(self._faults):
            code = fault.extra.get("code")
            if fault.latched and isinstance(code, int) and code in at_limit:
                present = any(at_limit[code][channel] for channel in _candidates(fault))
                self._faults[index] = replace(fault, present=present)


def faults_from_reports(
    reports: Iterable[Report], chain: ModuleChain, readings: ChannelReadings | None, compliance: Compliance
) -> list[Fault]:
    """Return one fault per distinct report, with the channels that the report may concern.

    A report names the channel within a module, but not the module. ``extra`` contains the possible channels
    (``candidates``).
    """
    faults: dict[tuple[int, tuple[int, ...]], Fault] = {}
    for report in reports:
        candidates = _narrowed_candidates(report, chain, readings, compliance)
        key = (report.code, candidates)
        if key not in faults:
            faults[key] = _fault(report.code, candidates, readings, compliance, str(report), report.during)
    return list(faults.values())


def faults_from_log(
    entries: Iterable[LogEntry], chain: ModuleChain, readings: ChannelReadings | None, compliance: Compliance
) -> list[Fault]:
    """Return the faults that the modules logged in the last two seconds but did not report."""
    faults: dict[tuple[int, int], Fault] = {}
    for entry in entries:
        channel = chain.channel(entry.module, entry.local_channel)
        supervised = entry.code not in REQUEST_ERRORS | {ERRORS_SUPPRESSED, POWERED_UP}
        if supervised and channel is not None and entry.age_s <= _RECENT_S:
            description = f"log of module {entry.module}: E{entry.code:02d}:{entry.local_channel:02d}"
            faults[entry.code, channel] = _fault(entry.code, (channel,), readings, compliance, description, "")
    return list(faults.values())


def read_log(session: QontrolSession, chain: ModuleChain) -> tuple[LogEntry, ...]:
    """Read the logs of all modules, 64 entries each."""
    lines = session.query_lines(encode_text_request("LOGALL?", LOG_ENTRY_LINE, _LOG_LINES * len(chain.modules)))
    entries = []
    for number, line in enumerate(lines):
        match = LOG_ENTRY_LINE.fullmatch(line)
        if match is not None:
            age_s = int(match[4]) * _AGE_UNITS_S[match[5]]
            entries.append(LogEntry(number // _LOG_LINES, int(match[2]), int(match[3]), age_s))
    return tuple(entries)


def _candidates(fault: Fault) -> tuple[int, ...]:
    actual = fault.extra.get("candidates", ())
    return actual if isinstance(actual, tuple) else ()


def _narrowed_candidates(
    report: Report, chain: ModuleChain, readings: ChannelReadings | None, compliance: Compliance
) -> tuple[int, ...]:
    if report.code in (ERRORS_SUPPRESSED, POWERED_UP):
        return ()
    candidates = chain.candidates(report.channel)
    if readings is None or report.code not in (OVER_VOLTAGE, OVER_CURRENT):
        return candidates
    at_limit = _channels_at_limit(report.code, readings, compliance)
    # If no channel is at its limit, the problem has passed and all candidates remain.
    return tuple(channel for channel in candidates if at_limit[channel]) or candidates


def _channels_at_limit(code: int, readings: ChannelReadings, compliance: Compliance) -> NDArray[np.bool_]:
    if code == OVER_VOLTAGE:
        return np.abs(readings.voltage_v) >= _AT_LIMIT_FRACTION * compliance.voltage_v
    return np.abs(readings.current_ma) >= _AT_LIMIT_FRACTION * compliance.current_ma


def _fault(
    code: int,
    candidates: tuple[int, ...],
    readings: ChannelReadings | None,
    compliance: Compliance,
    description: str,
    during: str,
) -> Fault:
    channel = candidates[0] if len(candidates) == 1 else None
    value = limit = 0
    present = False
    unit = "mV" if code == OVER_VOLTAGE else "uA"
    if channel is not None and readings is not None and code in (OVER_VOLTAGE, OVER_CURRENT):
        measured, bound = (
            (readings.voltage_v, compliance.voltage_v)
            if code == OVER_VOLTAGE
            else (readings.current_ma, compliance.current_ma)
        )
        value, limit = round(1e3 * measured[channel]), round(1e3 * bound[channel])
        present = bool(_channels_at_limit(code, readings, compliance)[channel])
    extra: dict[str, object] = {
        "code": code,
        "candidates": candidates,
        "unit": unit,
        "line": description,
        "during": during,
    }
    return Fault(
        0, error_name(code), latched=True, present=present, channel=channel, value=value, limit=limit, extra=extra
    )
