"""What Qontrol modules reported unasked, traced to channels and kept until it is cleared by its id.

The modules latch nothing: they keep a log. The latch is this driver's, and ends with it.
"""

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
    LOG_ENTRY,
    OVER_CURRENT,
    OVER_VOLTAGE,
    POWERED_UP,
    REQUEST_ERRORS,
    error_name,
    text_request,
)
from lumion_hw.sessions.qontrol import QontrolSession, Report

STOPPED = "ESTOP"
HOST_IDLE = "HOST_IDLE"
# Below 1, since what the modules measure has noise.
_AT_LIMIT = 0.95  # part of its limit at which an output counts as held there
_MOST_KEPT = 256
_LOG_LINES = 64
_AGE_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
# The log tells ages in whole seconds, and reports are traced within one.
_RECENT_S = 2.0


@dataclass(frozen=True)
class LogEntry:
    """One line of a module's own log.

    Attributes:
        module: Position of the module in the chain.
        code: Error code.
        local_channel: Channel within the module.
        age_s: How long ago, in the coarse unit of the log.
    """

    module: int
    code: int
    local_channel: int
    age_s: float


class FaultLatch:
    """Faults in order, with growing ids, the oldest forgotten beyond 256 unless latched."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._newest_id = 0

    @property
    def faults(self) -> tuple[Fault, ...]:
        """All faults kept, oldest first."""
        return tuple(self._faults)

    @property
    def latched(self) -> tuple[Fault, ...]:
        """Those not cleared yet, oldest first."""
        return tuple(fault for fault in self._faults if fault.latched)

    def add(self, fault: Fault) -> Fault:
        """Latch a fault under the next id; one that is latched already is kept, not doubled."""
        for kept in self.latched:
            # A fault that lasts is reported again and again.
            if (kept.source, _candidates(kept)) == (fault.source, _candidates(fault)):
                return kept
        self._newest_id += 1
        fault = replace(fault, fault_id=self._newest_id, latched=True)
        self._faults.append(fault)
        if len(self._faults) > _MOST_KEPT:
            # A latched one goes only if all are: what nobody has cleared nobody has seen.
            oldest = next((kept for kept in self._faults if not kept.latched), self._faults[0])
            self._faults.remove(oldest)
        return fault

    def find(self, fault_id: int) -> Fault | None:
        """Return the fault of this id, if it is kept."""
        return next((fault for fault in self._faults if fault.fault_id == fault_id), None)

    def was_issued(self, fault_id: int) -> bool:
        """Return whether a fault was given this id; those that are no longer kept were cleared."""
        return 1 <= fault_id <= self._newest_id

    def clear(self, fault_id: int) -> None:
        """Unlatch the fault of this id."""
        self._faults = [
            replace(fault, latched=False, present=False) if fault.fault_id == fault_id else fault
            for fault in self._faults
        ]

    def refresh(self, readings: ChannelReadings, compliance: Compliance) -> None:
        """Say of every latched fault whether its channel is at its limit now."""
        at_limit = {code: _channels_at_limit(code, readings, compliance) for code in (OVER_VOLTAGE, OVER_CURRENT)}
        for index, fault in enumerate(self._faults):
            code = fault.extra.get("code")
            if fault.latched and isinstance(code, int) and code in at_limit:
                present = any(at_limit[code][channel] for channel in _candidates(fault))
                self._faults[index] = replace(fault, present=present)


def faults_from_reports(
    reports: Iterable[Report], chain: ModuleChain, readings: ChannelReadings | None, compliance: Compliance
) -> list[Fault]:
    """Return one fault per distinct report, with the channel it must be about, or all it may be about.

    A report names a channel within a module and no module. Over-voltage and over-current are narrowed down to the
    channels that are at their limit; ``extra`` holds what is left as ``candidates``.
    """
    faults: dict[tuple[int, tuple[int, ...]], Fault] = {}
    for report in reports:
        candidates = _narrowed(report, chain, readings, compliance)
        key = (report.code, candidates)
        if key not in faults:
            faults[key] = _fault(report.code, candidates, readings, compliance, str(report), report.during)
    return list(faults.values())


def faults_from_log(
    entries: Iterable[LogEntry], chain: ModuleChain, readings: ChannelReadings | None, compliance: Compliance
) -> list[Fault]:
    """Return one fault per channel the modules logged in the last two seconds: what ``E30`` kept from being sent."""
    faults: dict[tuple[int, int], Fault] = {}
    for entry in entries:
        channel = chain.channel(entry.module, entry.local_channel)
        supervised = entry.code not in REQUEST_ERRORS | {ERRORS_SUPPRESSED, POWERED_UP}
        if supervised and channel is not None and entry.age_s <= _RECENT_S:
            words = f"log of module {entry.module}: E{entry.code:02d}:{entry.local_channel:02d}"
            faults[entry.code, channel] = _fault(entry.code, (channel,), readings, compliance, words, "")
    return list(faults.values())


def read_log(session: QontrolSession, chain: ModuleChain) -> tuple[LogEntry, ...]:
    """Read the logs of all modules (``LOGALL?``), 64 entries each, in the order of the reply."""
    lines = session.ask(text_request("LOGALL?", LOG_ENTRY, _LOG_LINES * len(chain.modules)))
    entries = []
    for number, line in enumerate(lines):
        match = LOG_ENTRY.fullmatch(line)
        if match is not None:
            age_s = int(match[4]) * _AGE_UNITS_S[match[5]]
            entries.append(LogEntry(number // _LOG_LINES, int(match[2]), int(match[3]), age_s))
    return tuple(entries)


def _candidates(fault: Fault) -> tuple[int, ...]:
    found = fault.extra.get("candidates", ())
    return found if isinstance(found, tuple) else ()


def _narrowed(
    report: Report, chain: ModuleChain, readings: ChannelReadings | None, compliance: Compliance
) -> tuple[int, ...]:
    if report.code in (ERRORS_SUPPRESSED, POWERED_UP):
        return ()
    candidates = chain.candidates(report.channel)
    if readings is None or report.code not in (OVER_VOLTAGE, OVER_CURRENT):
        return candidates
    at_limit = _channels_at_limit(report.code, readings, compliance)
    # None at its limit any more: the trouble has passed, and all candidates stay.
    return tuple(channel for channel in candidates if at_limit[channel]) or candidates


def _channels_at_limit(code: int, readings: ChannelReadings, compliance: Compliance) -> NDArray[np.bool_]:
    if code == OVER_VOLTAGE:
        return np.abs(readings.voltage_v) >= _AT_LIMIT * compliance.voltage_v
    return np.abs(readings.current_ma) >= _AT_LIMIT * compliance.current_ma


def _fault(
    code: int,
    candidates: tuple[int, ...],
    readings: ChannelReadings | None,
    compliance: Compliance,
    words: str,
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
    extra: dict[str, object] = {"code": code, "candidates": candidates, "unit": unit, "line": words, "during": during}
    return Fault(
        0, error_name(code), latched=True, present=present, channel=channel, value=value, limit=limit, extra=extra
    )
