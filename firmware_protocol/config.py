"""The five operations of CONFIG (section 7.1) and the error reply (section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from firmware_protocol.codec import Message, need, pack_fixed, unpack_fixed
from firmware_protocol.codes import (
    FULL_SCALE_CODE,
    MAX_TEXT,
    Command,
    ConfigOp,
    OutputsState,
    status_name,
)
from firmware_protocol.layouts import LAYOUTS
from firmware_protocol.messages import Records


@dataclass(frozen=True, eq=False)
class ConfigReply(Message):
    """Reply to GLOBAL, LIMITS and APPLY."""

    op: int
    outputs_state: OutputsState
    pending: int
    config_crc32: int


@dataclass(frozen=True, eq=False)
class ConfigGlobalRequest(Message):
    """Open a new pending configuration: watchdog policy, power cap, optional faults."""

    command: ClassVar[Command] = Command.CONFIG
    reply: ClassVar[type[ConfigReply]] = ConfigReply
    op: ClassVar[ConfigOp] = ConfigOp.GLOBAL
    wd_policy: int
    wd_timeout_ms: int
    wd_param_ms: int
    total_power_mw: int
    fault_enable: int = 0
    temp_trip: int | None = None
    supply_min_mv: int | None = None

    def out_of_range(self) -> tuple[int, int] | None:
        """As of every message; the range of ``wd_param_ms`` follows from the policy."""
        low, high = {0: (0, 0), 1: (1, 60_000), 2: (1, 3_600_000)}.get(self.wd_policy, (0, 0xFFFFFFFF))
        found = super().out_of_range()
        offset = self.layout.offset_of("wd_param_ms")
        if not low <= self.wd_param_ms <= high and (found is None or found[0] > offset):
            return offset, self.wd_param_ms
        return found


@dataclass(frozen=True, eq=False)
class ConfigLimitsRequest(Message):
    """Limit records of neighbouring channels; ``limits`` has ``LIMIT_DTYPE`` or rows of its three columns."""

    command: ClassVar[Command] = Command.CONFIG
    reply: ClassVar[type[ConfigReply]] = ConfigReply
    op: ClassVar[ConfigOp] = ConfigOp.LIMITS
    start: int
    limits: Records


@dataclass(frozen=True, eq=False)
class ConfigApplyRequest(Message):
    """Make the pending configuration the active one."""

    command: ClassVar[Command] = Command.CONFIG
    reply: ClassVar[type[ConfigReply]] = ConfigReply
    op: ClassVar[ConfigOp] = ConfigOp.APPLY
    count: int
    config_crc32: int
    apply_flags: int = 0


@dataclass(frozen=True, eq=False)
class ConfigGlobalReply(Message):
    """The GLOBAL block of the active configuration."""

    op: ClassVar[ConfigOp] = ConfigOp.READ_GLOBAL
    wd_policy: int
    wd_timeout_ms: int
    wd_param_ms: int
    total_power_mw: int
    fault_enable: int = 0
    temp_trip: int | None = None
    supply_min_mv: int | None = None


@dataclass(frozen=True, eq=False)
class ConfigReadGlobalRequest(Message):
    """Ask for the GLOBAL block of the active configuration."""

    command: ClassVar[Command] = Command.CONFIG
    reply: ClassVar[type[ConfigGlobalReply]] = ConfigGlobalReply
    op: ClassVar[ConfigOp] = ConfigOp.READ_GLOBAL


@dataclass(frozen=True, eq=False)
class ConfigLimitsReply(Message):
    """Limit records of the active configuration."""

    op: ClassVar[ConfigOp] = ConfigOp.READ_LIMITS
    start: int
    limits: Records


@dataclass(frozen=True, eq=False)
class ConfigReadLimitsRequest(Message):
    """Ask for limit records of the active configuration."""

    command: ClassVar[Command] = Command.CONFIG
    reply: ClassVar[type[ConfigLimitsReply]] = ConfigLimitsReply
    op: ClassVar[ConfigOp] = ConfigOp.READ_LIMITS
    start: int
    count: int


def signed32(value: int) -> int:
    """Return the i32 with the bit pattern of a u32; values that are i32 already stay (section 12)."""
    return value - (1 << 32) if value >= 1 << 31 else value


@dataclass(frozen=True)
class Refusal:
    """A status other than OK, as a value (sections 5 and 12).

    Attributes:
        status: Status code; reserved and vendor codes are kept as numbers.
        channel: First offending channel, or payload offset of the field (BAD_VALUE); ``None`` for none.
        index: Point number of a sweep; ``None`` for none.
        value: What was asked or found, signed; a u32 travels as the same bit pattern.
        limit: What is allowed, signed likewise.
        text: Hint for a reader, never parsed; at most 32 bytes are sent.
    """

    status: int
    channel: int | None = None
    index: int | None = None
    value: int = 0
    limit: int = 0
    text: str = ""

    @property
    def name(self) -> str:
        """Name of the status."""
        return status_name(self.status)

    @property
    def value_u32(self) -> int:
        """``value`` as the u32 of the same bit pattern (generations, CRCs, masks)."""
        return self.value & 0xFFFFFFFF

    @property
    def limit_u32(self) -> int:
        """``limit`` as the u32 of the same bit pattern."""
        return self.limit & 0xFFFFFFFF

    def encode(self) -> bytes:
        """Return the payload of the error reply; u32 values are accepted in ``value`` and ``limit``."""
        text = self.text.encode("ascii", errors="replace")[:MAX_TEXT]
        values = {
            "channel": self.channel,
            "index": self.index if self.index is None else min(self.index, FULL_SCALE_CODE - 1),
            "value": signed32(self.value),
            "limit": signed32(self.limit),
            "text_len": len(text),
        }
        return pack_fixed(LAYOUTS["ErrorReply"], values) + text

    @classmethod
    def decode(cls, status: int, payload: bytes) -> Refusal:
        """Return the refusal of a reply. Raises ``PayloadError`` when the payload is too short."""
        layout = LAYOUTS["ErrorReply"]
        values: Mapping[str, Any] = unpack_fixed(layout, payload)
        text = need(layout, layout.fields[-1], payload, values["text_len"]).decode("ascii", errors="replace")
        return cls(status, values["channel"], values["index"], values["value"], values["limit"], text)
