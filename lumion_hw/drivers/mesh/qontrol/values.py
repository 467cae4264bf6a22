"""Range checks, requests and replies of a Qontrol chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.drivers.mesh.qontrol.chain import ModuleChain
from lumion_hw.drivers.ranges import numbers_per_channel
from lumion_hw.errors import FrameError, LimitError
from lumion_hw.interfaces import ControllerLimits
from lumion_hw.sessions.codecs.qontrol import (
    CHANNEL_READING_LINE,
    FULL_SCALE_CODE,
    VECTOR_LENGTH,
    QontrolRequest,
    Quantity,
    codes_from_values,
    encode_read_all_binary,
    encode_read_all_text,
    encode_set_channel_text,
    encode_set_vector_binary,
    encode_set_vector_text,
    encode_text_request,
)
from lumion_hw.sessions.qontrol import QontrolSession

Mode = Literal["binary", "ascii"]
LINE_LIMIT_BYTES = 64
"""Longest text request sent, in bytes. A length of 22 is known to work, and 86 to fail."""
_LOWEST_VMAX_V = 1.0  # outputs that are off read up to 0.2 V, so a limit of zero would trip without cause
_LOWEST_IMAX_MA = 0.05  # outputs that are off read up to 0.012 mA
_MAX_FULL_SCALES = 1.5  # readings above this multiple of full scale come from damaged lines


@dataclass(frozen=True)
class ChannelReadings:
    """Voltages and currents of the outputs, measured by the modules.

    Attributes:
        voltage_v: Voltage of each channel, shape ``(n_channels,)``.
        current_ma: Current of each channel, shape ``(n_channels,)``.
        timestamp_s: Host clock when the last line arrived.
    """

    voltage_v: NDArray[np.float64]
    current_ma: NDArray[np.float64]
    timestamp_s: float


@dataclass(frozen=True)
class Compliance:
    """Current and voltage limits that the modules supervise.

    Attributes:
        current_ma: Current limit (IMAX) of each channel, shape ``(n_channels,)``.
        voltage_v: Voltage limit (VMAX) of each channel, shape ``(n_channels,)``.
    """

    current_ma: NDArray[np.float64]
    voltage_v: NDArray[np.float64]


def checked_column(
    values: object, lowest: float, highest: NDArray[np.float64], label: str, unit: str, session: QontrolSession
) -> NDArray[np.float64]:
    """Return ``values`` unchanged if each value is between ``lowest`` and the ``highest`` of its channel.

    Raises:
        LimitError: A value is out of range or not a number; the message names the first such channel.
        ConfigError: The number of values differs from the number of channels.
    """
    owner = f"the chain has {len(highest)} channels"
    column = numbers_per_channel(
        values, len(highest), label, owner, device=session.device, address=session.address
    ).copy()
    for channel in np.flatnonzero(~((column >= lowest) & (column <= highest)))[:1]:
        broken = highest[channel] if column[channel] > highest[channel] else lowest
        raise session.error(
            LimitError,
            f"{label}: channel {channel} is outside {lowest:g} to {highest[channel]:g} {unit}; nothing was sent",
            requested=float(column[channel]),
            limit=float(broken),
            unit=unit,
        )
    return column


def check_power(
    currents_ma: NDArray[np.float64], limits: ControllerLimits, label: str, session: QontrolSession
) -> None:
    """Raise ``LimitError`` if the total power of these currents exceeds its limit."""
    # mA² times ohm is µW.
    power_mw = float(np.sum(limits.heater_ohm * currents_ma**2)) * 1e-3
    if not power_mw <= limits.total_power_mw:
        raise session.error(
            LimitError,
            f"{label}: the computed total power is too high; nothing was sent",
            requested=power_mw,
            limit=limits.total_power_mw,
            unit="mW",
        )


def compliance_for(
    limits: ControllerLimits, chain: ModuleChain, compliance_v: float | None, headroom: float, session: QontrolSession
) -> Compliance:
    """Return the voltage and current limits for the modules.

    The current limit is the largest current of the heater. The voltage limit is ``compliance_v`` if given, otherwise
    the voltage of the heater at this current times ``headroom``.

    Raises:
        LimitError: A current is outside 0 … full scale, or a resistance or the power limit is negative or not a number.
        ConfigError: An array does not have one value per channel.
    """
    max_ma = checked_column(limits.heater_max_ma, 0.0, chain.full_scale_ma, "heater_max_ma", "mA", session)
    unbounded = np.full(chain.n_channels, np.finfo(np.float64).max)
    ohm = checked_column(limits.heater_ohm, 0.0, unbounded, "heater_ohm", "ohm", session)
    checked_column([limits.total_power_mw], 0.0, unbounded[:1], "total_power_mw", "mW", session)
    needed_v = headroom * max_ma * ohm * 1e-3 if compliance_v is None else np.full(chain.n_channels, compliance_v)
    if compliance_v is not None:
        checked_column(needed_v, 0.0, chain.full_scale_v, "compliance_v", "V", session)
    return Compliance(
        current_ma=np.minimum(np.maximum(max_ma, _LOWEST_IMAX_MA), chain.full_scale_ma),
        voltage_v=np.minimum(np.maximum(needed_v, _LOWEST_VMAX_V), chain.full_scale_v),
    )


def set_requests(
    mode: Mode,
    quantity: Quantity,
    values: NDArray[np.float64],
    chain: ModuleChain,
    changed: NDArray[np.bool_] | None = None,
) -> list[QontrolRequest]:
    """Return the requests that set the channels, module by module in ascending order.

    Args:
        mode: Format of the requests: binary or text.
        quantity: Quantity to set.
        values: Shape ``(n_channels,)``, within 0 … full scale.
        chain: Modules of the chain.
        changed: Channels to set; all if omitted. Unchanged channels of the same module may be set again.
    """
    full = chain.full_scale_ma if quantity.unit == "mA" else chain.full_scale_v
    requests: list[QontrolRequest] = []
    for module in chain.modules:
        channels = [c for c in module.channels if changed is None or changed[c]]
        module_values = values[module.first_channel : module.channels.stop]
        if not channels:
            continue
        if mode == "binary":
            codes = codes_from_values(module_values, full[module.first_channel])
            requests.append(encode_set_vector_binary(quantity, module.first_channel, codes))
            continue
        vector = encode_set_vector_text(quantity, module.first_channel, module_values.tolist())
        has_vector = quantity in (Quantity.VOLTAGE, Quantity.CURRENT) and module.n_channels == VECTOR_LENGTH
        # Only vectors for all channels of a module were recorded; the effect of a shorter vector is unknown.
        if has_vector and len(channels) == module.n_channels and len(vector.data) <= LINE_LIMIT_BYTES:
            requests.append(vector)
        else:
            requests += [encode_set_channel_text(quantity, channel, float(values[channel])) for channel in channels]
    return requests


def read_request(mode: Mode, quantity: Quantity, chain: ModuleChain) -> QontrolRequest:
    """Return the request that reads all channels."""
    return (encode_read_all_binary if mode == "binary" else encode_read_all_text)(quantity, chain.n_channels)


def column_from_lines(
    lines: tuple[str, ...], request: QontrolRequest, full_scale: NDArray[np.float64], session: QontrolSession
) -> NDArray[np.float64]:
    """Return the values of a reply, one per channel. Raises ``FrameError`` for an impossible value."""
    values = np.array([float(line.split()[0]) for line in lines])
    _check_possible(values, full_scale, request.text, lines, session)
    return values


def step(full_scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the smallest step of each channel, which is one count of the 16-bit code."""
    return full_scale / FULL_SCALE_CODE


def read_channels(session: QontrolSession, chain: ModuleChain, clock: Clock) -> ChannelReadings:
    """Read voltage and current of all channels.

    Raises ``FrameError`` if the reply does not match the chain, or a reading is impossible.
    """
    request = encode_text_request("VIPALL?", CHANNEL_READING_LINE, chain.n_channels)
    lines = session.query_lines(request)
    matches = [match for line in lines if (match := CHANNEL_READING_LINE.fullmatch(line))]
    expected = [(module.index, local) for module in chain.modules for local in range(module.n_channels)]
    if [(int(match[1]), int(match[2])) for match in matches] != expected:
        raise _damaged_error(session, request.text, "the lines do not match the channels of the chain")
    voltage_v = np.array([float(match[3]) for match in matches])
    current_ma = np.array([float(match[4]) for match in matches])
    _check_possible(voltage_v, chain.full_scale_v, request.text, lines, session)
    _check_possible(current_ma, chain.full_scale_ma, request.text, lines, session)
    return ChannelReadings(voltage_v, current_ma, clock.now())


def _check_possible(
    values: NDArray[np.float64],
    full_scale: NDArray[np.float64],
    label: str,
    lines: tuple[str, ...],
    session: QontrolSession,
) -> None:
    # The protocol has no checksum: a lost or doubled digit shows as an impossible value.
    for channel in np.flatnonzero(np.abs(values) > _MAX_FULL_SCALES * full_scale)[:1]:
        raise _damaged_error(
            session, label, f"{lines[channel]!r} for channel {channel}, full scale is {full_scale[channel]:g}"
        )


def _damaged_error(session: QontrolSession, label: str, content: str) -> FrameError:
    session.mark_out_of_sync(f"{label}: {content}")
    return session.error(
        FrameError,
        f"{label}: the reply is damaged: {content}",
        hint="Read again. If this happens often, check the cable.",
    )
