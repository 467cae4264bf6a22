"""Properties of an emulated Qontrol chain."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from lumion_hw.errors import ConfigError

BAUD = 115_200
"""Line rate of real modules. With it, bytes need transmission time."""

FULL_SCALE: Mapping[str, tuple[float, float]] = {
    "Q8iv": (12.0, 24.0),
    "Q8a": (12.0, 100.0),
    "Q8b": (12.0, 83.333333),
    "Q8bi": (12.0, 100.0),
}
"""Full scale in V and mA by module type (Qontrol manuals)."""

_KIND = re.compile(r"[A-Za-z]+([0-9]{1,3})[A-Za-z]*")


class ReplyMode(Enum):
    """Delay of replies, from recordings in the branch virtual-module of takeqontrol/api."""

    FAST = "fast"
    """Replies leave at once."""
    USB1 = "usb1"
    """Replies leave 1 ms after the request."""
    FTDI16 = "ftdi16"
    """Replies reach the host every 16 ms, as with the default latency timer of the USB bridge."""
    RECORDED = "recorded"
    """Delays of recordings of real modules; long replies arrive in pieces."""


class OverLimit(Enum):
    """Reaction of a module to a set value above its limit (unverified)."""

    REFUSE = "refuse"
    """The module replies ``E01`` or ``E02`` instead of ``OK``; the output does not change."""
    LIMIT = "limit"
    """The module replies ``OK``, limits the output, and reports an error later."""


class ErrorOrder(Enum):
    """Position of unsolicited error lines among the replies."""

    NATURAL = "natural"
    """Error lines are sent when they are due."""
    BEFORE_REPLY = "before"
    """Error lines are sent before the next reply."""
    INSIDE_REPLY = "inside"
    """Error lines follow the first line of the next reply."""


@dataclass(frozen=True)
class ModuleSpec:
    """Properties of one module of the chain.

    Attributes:
        kind: Type name; its digits are the number of channels.
        number: Number in the device id, 0 to FFFFh; ``None`` for a module without number (``****``).
        full_scale_v: Full-scale voltage; ``None`` for the value of the type (12 V for an unlisted type).
        full_scale_ma: Full-scale current; ``None`` for the value of the type (24 mA for an unlisted type).
        firmware: Reply to ``FIRMWARE?``.
    """

    kind: str = "Q8iv"
    number: int | None = None
    full_scale_v: float | None = None
    full_scale_ma: float | None = None
    firmware: str = "v2.4.1"
    lifetime_s: int = 156_607

    def __post_init__(self) -> None:
        match = _KIND.fullmatch(self.kind)
        if match is None or int(match.group(1)) == 0:
            raise ConfigError(
                f"{self.kind!r} is not a module type",
                hint="Give a type whose digits are the number of channels, as in Q8iv.",
            )
        if self.number is not None and not 0 <= self.number <= 0xFFFF:
            raise ConfigError(f"module number {self.number} is out of range", hint="Give 0 to 65535 or None.")

    @property
    def n_channels(self) -> int:
        """Number of output channels of the module."""
        return int("".join(character for character in self.kind if character.isdigit()))

    @property
    def device_id(self) -> str:
        """Device id of the module, such as ``Q8iv-0001``."""
        return f"{self.kind}-{'****' if self.number is None else format(self.number, '04X')}"

    @property
    def vfull_v(self) -> float:
        """Full-scale voltage of the module in V."""
        return FULL_SCALE.get(self.kind, FULL_SCALE["Q8iv"])[0] if self.full_scale_v is None else self.full_scale_v

    @property
    def ifull_ma(self) -> float:
        """Full-scale current of the module in mA."""
        return FULL_SCALE.get(self.kind, FULL_SCALE["Q8iv"])[1] if self.full_scale_ma is None else self.full_scale_ma


@dataclass(frozen=True)
class Readback:
    """Errors of voltage and current readings.

    Recorded: currents within ±0.012 mA in steady state, outputs without load at 0.0001 to 0.2 V. Other values: assumed.

    Attributes:
        offset_v: Largest voltage offset in either direction, in V.
        offset_ma: Largest current offset in either direction, in mA.
        noise_v: Standard deviation of one voltage reading.
        noise_ma: Standard deviation of one current reading.
        floating_v: Largest voltage to which an output without load floats.
    """

    offset_v: float = 0.0005
    offset_ma: float = 0.003
    noise_v: float = 0.0002
    noise_ma: float = 0.0005
    floating_v: float = 0.2


IDEAL_READBACK = Readback(0.0, 0.0, 0.0, 0.0, 0.0)
"""Readings without errors."""


@dataclass(frozen=True)
class ChainProfile:
    """Behaviour of the chain that differs between modules or is not published.

    Attributes:
        line_limit: Longest text request in bytes, with LF (between 22 and 86 on real modules).
        baud: Line rate in baud (8N1); ``None`` if bytes need no transmission time.
        exponents: Whether numbers like ``1e-05`` are accepted; otherwise error ``E11``.
        negatives: Whether negative set values are treated as 0; otherwise error ``E11``.
        short_vectors: Whether vectors may cover parts of modules; otherwise error ``E11``.
        silent_unknown_channels: Whether requests for missing channels get no reply; otherwise error ``E12``.
        check_parity: Whether binary headers with odd parity are answered by ``E15``; otherwise they are accepted.
        echo: Whether the firmware is of the older kind: it echoes text lines, and ``P<channel>=`` sets a power in mW.
        error_order: Position of unsolicited error lines among the replies.
        supervision_s: Shortest and longest time from a set command to the error report.
        burst_lines: Number of error lines per window and module. The next error gives ``E30:00``.
        long_form_ma: Current from which on the lines of ``VIP?`` also contain power and resistance.
        binary_gap_s: Silence after which an incomplete binary request is discarded.
        limits_survive: Whether ``VMAX`` and ``IMAX`` survive a power cycle.
    """

    line_limit: int = 80
    reply_mode: ReplyMode = ReplyMode.FAST
    baud: float | None = None
    over_limit: OverLimit = OverLimit.REFUSE
    exponents: bool = False
    negatives: bool = False
    short_vectors: bool = False
    silent_unknown_channels: bool = False
    check_parity: bool = True
    echo: bool = False
    error_order: ErrorOrder = ErrorOrder.NATURAL
    supervision_s: tuple[float, float] = (0.003, 0.040)
    burst_lines: int = 4
    burst_window_s: float = 0.1
    long_form_ma: float = 0.1
    binary_gap_s: float = 0.040
    limits_survive: bool = False
    readback: Readback = field(default_factory=Readback)

    def __post_init__(self) -> None:
        low, high = self.supervision_s
        faults = {
            "line_limit": self.line_limit < 2,
            "baud": self.baud is not None and self.baud <= 0.0,
            "supervision_s": not 0.0 <= low <= high,
            "burst_lines": self.burst_lines < 1,
            "burst_window_s": self.burst_window_s <= 0.0,
            "long_form_ma": self.long_form_ma <= 0.0,
            "binary_gap_s": self.binary_gap_s <= 0.0,
        }
        for name, is_invalid in faults.items():
            if is_invalid:
                raise ConfigError(
                    f"{name} of a Qontrol chain cannot be {getattr(self, name)}", hint="Give a positive value."
                )
