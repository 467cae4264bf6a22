"""Messages of the command CONFIG (section 7.1), and the error reply (section 5)."""

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
from firmware_protocol.fields import Layout, PayloadField, wire
from firmware_protocol.messages import Records


class ConfigReply(Message):
    """Reply to the CONFIG operations GLOBAL, LIMITS and APPLY."""

    op: int = wire(0, "u8", "", "0,1,2", "echo")
    outputs_state: OutputsState = wire(1, "u8", "", "0..4", "section 11.1", view="OutputsState")
    pending: int = wire(2, "u16", "channels", "", "channels with a pending limit record")
    config_crc32: int = wire(4, "u32", "", "", "active configuration, 0 = none")


class GlobalBlock(Message):
    """Settings of a configuration for the whole board: watchdog, power limit, optional faults."""

    wd_policy: int = wire(1, "u8", "", "0,1,2", "0 OFF, 1 RAMP, 2 HOLD")
    wd_timeout_ms: int = wire(2, "u16", "ms", "100..60000", "host silence that trips the watchdog")
    wd_param_ms: int = wire(4, "u32", "ms", "by wd_policy", "OFF 0; RAMP 1..60000 ramp time; HOLD 1..3600000")
    total_power_mw: int = wire(8, "u32", "mW", "1..4000000", "cap on the computed power of a whole table")
    fault_enable: int = wire(12, "u32", "bits", "", "optional fault sources to enable", default=0)
    temp_trip: int | None = wire(
        16, "i16", "0.01 °C", "-4000..15000", "chip over-temperature threshold", none=32767, default=None
    )
    supply_min_mv: int | None = wire(18, "u16", "mV", "", "supply under-voltage threshold", none=0, default=None)


class LimitsBlock(Message):
    """Limits of neighbouring channels, as an array of ``LIMIT_DTYPE`` or rows of its three fields."""

    _reserved_1 = wire(1, "u8")
    start: int = wire(2, "u16", "channel", "0..n_dac-1", "first channel")
    _count = wire(4, "u16", "channels", "1..n_dac-start", "records that follow")
    _reserved_6 = wire(6, "u16")
    limits: Records = wire(8, "limit[count]", "", "", "code_max u16, load_ohm u16, trip_ua u32 per channel")


class ConfigGlobalRequest(GlobalBlock):
    """Begin a new configuration: watchdog policy, power limit, optional faults."""

    command: ClassVar[Command] = Command.CONFIG
    reply: ClassVar[type[ConfigReply]] = ConfigReply
    op: ClassVar[ConfigOp] = ConfigOp.GLOBAL
    _op = wire(0, "u8", "", "0", "GLOBAL opens a new pending configuration; READ_GLOBAL echoes it", const=0)

    def out_of_range(self) -> tuple[int, int] | None:
        """Return ``(payload offset, value)`` of the first field outside its range, or ``None``."""
        low, high = {0: (0, 0), 1: (1, 60_000), 2: (1, 3_600_000)}.get(self.wd_policy, (0, 0xFFFFFFFF))
        # The board reports the offset of the first wrong field, so an earlier wrong field comes before this one.
        values = super().out_of_range()
        offset = self.layout.offset_of("wd_param_ms")
        if not low <= self.wd_param_ms <= high and (values is None or values[0] > offset):
            return offset, self.wd_param_ms
        return values


class ConfigLimitsRequest(LimitsBlock):
    """Send limits of channels for the new configuration."""

    command: ClassVar[Command] = Command.CONFIG
    reply: ClassVar[type[ConfigReply]] = ConfigReply
    op: ClassVar[ConfigOp] = ConfigOp.LIMITS
    _op = wire(0, "u8", "", "1", "LIMITS, or the echo of READ_LIMITS", const=1)


class ConfigApplyRequest(Message):
    """Activate the new configuration."""

    command: ClassVar[Command] = Command.CONFIG
    reply: ClassVar[type[ConfigReply]] = ConfigReply
    op: ClassVar[ConfigOp] = ConfigOp.APPLY
    count: int = wire(2, "u16", "channels", "n_dac", "size of the table the host believes in")
    config_crc32: int = wire(4, "u32", "", "1..", "CRC of the canonical configuration")
    apply_flags: int = wire(1, "u8", "bits", "", "b0 SAVE: also write to flash (feature 5)", default=0)
    _op = wire(0, "u8", "", "2", "APPLY", const=2)


class ConfigGlobalReply(GlobalBlock):
    """Settings of the active configuration for the whole board."""

    op: ClassVar[ConfigOp] = ConfigOp.READ_GLOBAL
    _op = wire(0, "u8", "", "3", "GLOBAL opens a new pending configuration; READ_GLOBAL echoes it", const=3)


class ConfigReadGlobalRequest(Message):
    """Request the settings of the active configuration for the whole board."""

    command: ClassVar[Command] = Command.CONFIG
    reply: ClassVar[type[ConfigGlobalReply]] = ConfigGlobalReply
    op: ClassVar[ConfigOp] = ConfigOp.READ_GLOBAL
    _op = wire(0, "u8", "", "3", "READ_GLOBAL", const=3)


class ConfigLimitsReply(LimitsBlock):
    """Limits of channels in the active configuration."""

    op: ClassVar[ConfigOp] = ConfigOp.READ_LIMITS
    _op = wire(0, "u8", "", "4", "LIMITS, or the echo of READ_LIMITS", const=4)


class ConfigReadLimitsRequest(Message):
    """Request limits of channels in the active configuration."""

    command: ClassVar[Command] = Command.CONFIG
    reply: ClassVar[type[ConfigLimitsReply]] = ConfigLimitsReply
    op: ClassVar[ConfigOp] = ConfigOp.READ_LIMITS
    _op = wire(0, "u8", "", "4", "READ_LIMITS of the active configuration", const=4)
    _reserved_1 = wire(1, "u8")
    start: int = wire(2, "u16", "channel", "0..n_dac-1", "first channel")
    count: int = wire(4, "u16", "channels", "1..n_dac-start", "records wanted")


ERROR_LAYOUT = Layout(
    "ErrorReply",
    "",
    (
        PayloadField(0, "u16", "channel", "channel", "", "first offending channel, by code", none=0xFFFF),
        PayloadField(2, "u16", "index", "", "", "point number of a sweep, saturates at 65534", none=0xFFFF),
        PayloadField(4, "i32", "value", "by code", "", "what was asked or found"),
        PayloadField(8, "i32", "limit", "by code", "", "what is allowed"),
        PayloadField(12, "u8", "text_len", "B", "0..32", "length of the hint"),
        PayloadField(13, "char[text_len]", "text", "", "", "hint, never parsed"),
    ),
)
"""Payload of an error reply; see :class:`Refusal`."""


def signed32(value: int) -> int:
    """Convert a u32 to the i32 with the same bits; i32 values are unchanged (protocol section 12)."""
    return value - (1 << 32) if value >= 1 << 31 else value


@dataclass(frozen=True)
class Refusal:
    """An error reply of the board (protocol sections 5 and 12).

    Attributes:
        status: Status code; unknown codes are kept as numbers.
        channel: First wrong channel, or payload offset of the wrong field (BAD_VALUE); ``None`` for none.
        index: Point number of a sweep; ``None`` for none.
        value: Requested or found value, as an i32.
        limit: Allowed value, as an i32.
        text: Hint for a reader; at most 32 bytes are sent.
    """

    status: int
    channel: int | None = None
    index: int | None = None
    value: int = 0
    limit: int = 0
    text: str = ""

    @property
    def name(self) -> str:
        """Name of the status code."""
        return status_name(self.status)

    @property
    def value_u32(self) -> int:
        """``value`` with its 32 bits read as an unsigned number."""
        return self.value & 0xFFFFFFFF

    @property
    def limit_u32(self) -> int:
        """``limit`` with its 32 bits read as an unsigned number."""
        return self.limit & 0xFFFFFFFF

    def encode(self) -> bytes:
        """Return the payload of the error reply."""
        text = self.text.encode("ascii", errors="replace")[:MAX_TEXT]
        values = {
            "channel": self.channel,
            # The largest value of the 16-bit field means none, so higher points get the value below it (section 5).
            "index": self.index if self.index is None else min(self.index, FULL_SCALE_CODE - 1),
            "value": signed32(self.value),
            "limit": signed32(self.limit),
            "text_len": len(text),
        }
        return pack_fixed(ERROR_LAYOUT, values) + text

    @classmethod
    def decode(cls, status: int, payload: bytes) -> Refusal:
        """Return the error reply in a payload. Raises ``PayloadError`` if the payload is too short."""
        values: Mapping[str, Any] = unpack_fixed(ERROR_LAYOUT, payload)
        text = need(ERROR_LAYOUT, ERROR_LAYOUT.fields[-1], payload, values["text_len"]).decode(
            "ascii", errors="replace"
        )
        return cls(status, values["channel"], values["index"], values["value"], values["limit"], text)
