"""Faults of the emulated board that are not cleared yet (docs/protocol.md, section 11.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from firmware_protocol import FaultRecord, FaultState

MAX_RECORDS = 16
"""Largest number of records with cleared faults. Faults that are not cleared are never dropped."""


@dataclass(frozen=True)
class Condition:
    """A fault condition that is present now; value and threshold are in the unit of the fault source."""

    value: int = 0
    limit: int = 0


def source_mask(source: int) -> int:
    """Return the mask bit of a fault source."""
    return 1 << source


class FaultLog:
    """Faults that are not cleared, and present fault conditions. Both survive a restart of the board."""

    def __init__(self) -> None:
        self.newest_id = 0
        self.records: list[FaultRecord] = []
        self.conditions: dict[tuple[int, int | None], Condition] = {}

    def restart(self) -> None:
        """Prepare for a restart: faults that are not cleared get new ids from 1 on, and the tick 0."""
        # Ids and ticks are valid within one boot; a new boot_id tells the host that its ids are obsolete.
        latched = [record for record in self.records if record.fault_state is not FaultState.CLEARED]
        self.records = [replace(record, fault_id=number, tick=0) for number, record in enumerate(latched, start=1)]
        self.newest_id = len(self.records)

    @property
    def latched(self) -> int:
        """Mask of the fault sources with a fault that is not cleared."""
        mask = 0
        for record in self.records:
            if record.fault_state is not FaultState.CLEARED:
                mask |= source_mask(record.source)
        return mask

    def find_latched(self, source: int, channel: int | None) -> FaultRecord | None:
        """Return the uncleared fault of a source and channel; ``None`` if there is none."""
        for record in self.records:
            is_same = record.source == source and record.channel == channel
            if is_same and record.fault_state is not FaultState.CLEARED:
                return record
        return None

    def latch(self, source: int, tick: int, channel: int | None, value: int, limit: int) -> tuple[FaultRecord, bool]:
        """Record a fault. Return the record, and whether the fault is new."""
        existing = self.find_latched(source, channel)
        if existing is not None:
            return existing, False
        self.newest_id += 1
        present = (source, channel) in self.conditions
        state = FaultState.PRESENT if present else FaultState.LATCHED
        record = FaultRecord(self.newest_id, tick, source, state, channel, value, limit)
        self.records.append(record)
        cleared = [item for item in self.records if item.fault_state is FaultState.CLEARED]
        # The oldest first; ids are never reused within a boot.
        for old in cleared[: max(len(self.records) - MAX_RECORDS, 0)]:
            self.records.remove(old)
        return record, True

    def set_present(self, source: int, channel: int | None, condition: Condition | None) -> None:
        """Set a fault condition, or remove it with ``None``."""
        if condition is None:
            self.conditions.pop((source, channel), None)
        else:
            self.conditions[source, channel] = condition
        state = FaultState.LATCHED if condition is None else FaultState.PRESENT
        for index, record in enumerate(self.records):
            is_same = record.source == source and record.channel == channel
            if is_same and record.fault_state is not FaultState.CLEARED:
                self.records[index] = replace(record, fault_state=state)

    def was_issued(self, fault_id: int) -> bool:
        """Return whether a fault id was assigned since power-up."""
        return 1 <= fault_id <= self.newest_id

    def clear(self, fault_id: int) -> FaultRecord | None:
        """Clear a fault. A fault whose condition is still present is not cleared; it is returned instead."""
        for index, record in enumerate(self.records):
            if record.fault_id == fault_id:
                if record.fault_state is FaultState.PRESENT:
                    return record
                self.records[index] = replace(record, fault_state=FaultState.CLEARED)
        return None
