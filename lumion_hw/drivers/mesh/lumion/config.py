"""Converts limits of the bench file to a configuration of the LUMION mesh controller (protocol section 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import (
    FULL_SCALE_CODE,
    LIMIT_DTYPE,
    ConfigApplyRequest,
    ConfigGlobalRequest,
    ConfigLimitsRequest,
    FaultSource,
    HelloReply,
    Message,
    Request,
    WatchdogPolicy,
    code_from_output,
    config_crc32,
    has_feature,
    max_payload,
    output_from_code,
)
from lumion_hw.drivers.ranges import numbers_per_channel
from lumion_hw.errors import DeviceAddress, LimitError
from lumion_hw.interfaces import ControllerLimits

_ENABLED = (FaultSource.TOTAL_POWER, FaultSource.EXTERNAL_LOOP)
"""Optional fault sources without a threshold."""


@dataclass(frozen=True)
class BoardConfiguration:
    """Configuration of the controller, in its own units.

    Attributes:
        global_block: Watchdog policy, power limit, optional faults.
        limits: Limit of each channel, shape ``(n_dac,)``, ``LIMIT_DTYPE``.
    """

    global_block: ConfigGlobalRequest
    limits: NDArray[Any]

    @property
    def crc32(self) -> int:
        """CRC-32 of the configuration (protocol section 7.2)."""
        return config_crc32(self.global_block, self.limits)

    def requests(self, mtu: int) -> list[Request[Message]]:
        """Return the requests that apply the configuration, split to fit frames of ``mtu`` bytes."""
        # The board assembles the parts by channel, in any number and order (section 7.1).
        per_frame = (max_payload(mtu) - ConfigLimitsRequest.layout.fixed_size) // LIMIT_DTYPE.itemsize
        pieces = [
            ConfigLimitsRequest(start, self.limits[start : start + per_frame])
            for start in range(0, len(self.limits), per_frame)
        ]
        return [self.global_block, *pieces, ConfigApplyRequest(len(self.limits), self.crc32)]


@dataclass(frozen=True)
class WatchdogRule:
    """Action of the controller on its outputs when its watchdog trips (protocol section 11.2).

    Attributes:
        policy: OFF immediately, RAMP down, or HOLD.
        time_s: Time of the ramp (0.001…60 s), or longest hold (0.001…3600 s); 0 for OFF.
    """

    policy: WatchdogPolicy = WatchdogPolicy.OFF
    time_s: float = 0.0


_LONGEST_S = {WatchdogPolicy.RAMP: 60.0, WatchdogPolicy.HOLD: 3600.0}


def board_configuration(
    limits: ControllerLimits, hello: HelloReply, target: DeviceAddress, rule: WatchdogRule | None = None
) -> BoardConfiguration:
    """Convert the limits of the bench file to a configuration of the controller.

    The power limit is rounded down to whole mW. Current limits are rounded to the nearest DAC code.

    Args:
        limits: Limits of the bench file.
        hello: HELLO reply of the controller.
        target: Device name and address, for messages.
        rule: Action when the watchdog trips; by default the outputs are switched off immediately.

    Raises:
        LimitError: A value is outside the range of the controller; the message names the channel.
        ConfigError: An array does not have one value per heater.
    """
    full_scale_ma = hello.dac_full_scale * 1e-3
    max_ma = checked_currents(limits.heater_max_ma, np.full(hello.n_dac, full_scale_ma), "heater_max_ma", target)
    ohm = _column(limits.heater_ohm, hello.n_dac, "heater_ohm", target)
    records = np.zeros(hello.n_dac, dtype=LIMIT_DTYPE)
    records["code_max"] = code_from_output(max_ma, full_scale_ma)
    lowest = np.where(records["code_max"] > 0, 1.0, 0.0)  # 0 Ω means "not fitted" and needs a limit of 0
    for channel in np.flatnonzero(~((np.rint(ohm) >= lowest) & (np.rint(ohm) <= FULL_SCALE_CODE))):
        raise out_of_range_error(
            f"heater_ohm of channel {channel}", ohm[channel], (lowest[channel], FULL_SCALE_CODE), "ohm", target
        )
    records["load_ohm"] = np.rint(ohm)
    _check("total_power_mw", limits.total_power_mw, (1, 4_000_000), "mW", target)
    _check("watchdog_s", limits.watchdog_s, (0.1, 60.0), "s", target)
    rule = rule or WatchdogRule()
    if rule.policy is not WatchdogPolicy.OFF:
        _check(f"{rule.policy.name.lower()} time", rule.time_s, (1e-3, _LONGEST_S[rule.policy]), "s", target)
    return BoardConfiguration(
        ConfigGlobalRequest(
            wd_policy=rule.policy,
            wd_timeout_ms=round(limits.watchdog_s * 1e3),
            wd_param_ms=round(rule.time_s * 1e3) if rule.policy is not WatchdogPolicy.OFF else 0,
            # Rounded down: a limit that is rounded up would allow too much.
            total_power_mw=int(limits.total_power_mw),
            fault_enable=_fault_mask(hello.features),
        ),
        records,
    )


def checked_currents(
    currents_ma: NDArray[np.float64], max_ma: NDArray[np.float64], label: str, target: DeviceAddress
) -> NDArray[np.float64]:
    """Return ``currents_ma`` unchanged if each current is between 0 and ``max_ma``.

    Raises:
        LimitError: A current is negative, above its limit, or not a number; the message names the first such channel.
        ConfigError: The number of currents differs from the number of heaters.
    """
    values = _column(currents_ma, len(max_ma), label, target)
    # Fast path for the common case, because every table is checked here.
    if (values >= 0.0).all() and (values <= max_ma).all():
        return values
    for channel in np.flatnonzero(~((values >= 0.0) & (values <= max_ma)))[:1]:
        raise out_of_range_error(f"{label}, channel {channel}", values[channel], (0.0, max_ma[channel]), "mA", target)
    return values


def nearest_codes(currents_ma: NDArray[np.float64], full_scale_ma: float) -> NDArray[np.uint16]:
    """Convert currents to the nearest DAC codes, without a check of the range."""
    return np.rint(currents_ma / full_scale_ma * FULL_SCALE_CODE).astype(np.uint16)


def load_ohm(limits: ControllerLimits) -> NDArray[np.int64]:
    """Return the heater resistances in whole ohm."""
    return np.rint(limits.heater_ohm).astype(np.int64)


def power_cap_uw(limits: ControllerLimits) -> int:
    """Return the power limit in µW, rounded down to whole mW."""
    return int(limits.total_power_mw) * 1000


def check_power(power_uw: int, cap_uw: float, label: str, target: DeviceAddress) -> None:
    """Raise ``LimitError`` if the total power (protocol section 7.3) exceeds its limit."""
    if power_uw > cap_uw:
        raise target.error(
            LimitError,
            f"{label}: the computed total power is too high; nothing was sent",
            requested=-(-power_uw // 1000),
            limit=cap_uw / 1000,
            unit="mW",
        )


def _fault_mask(features: int) -> int:
    present = [source for source in _ENABLED if source.feature is not None and has_feature(features, source.feature)]
    return sum(source.mask for source in present)


def _column(values: NDArray[np.float64], n: int, label: str, target: DeviceAddress) -> NDArray[np.float64]:
    return numbers_per_channel(
        values, n, label, f"the controller has {n} heaters", device=target.device, address=target.address
    )


def _check(label: str, value: float, allowed: tuple[float, float], unit: str, target: DeviceAddress) -> None:
    if not allowed[0] <= value <= allowed[1]:
        raise out_of_range_error(label, value, allowed, unit, target)


def out_of_range_error(
    label: str, value: float, allowed: tuple[float, float], unit: str, target: DeviceAddress
) -> LimitError:
    """Return the error for a value outside ``allowed``; nothing was sent."""
    broken = allowed[1] if value > allowed[1] else allowed[0]
    return target.error(
        LimitError,
        f"{label} is outside {allowed[0]:g} to {allowed[1]:g} {unit}; nothing was sent",
        requested=float(value),
        limit=float(broken),
        unit=unit,
    )


def limit_error_in_ma(error: LimitError, full_scale_ma: float, target: DeviceAddress) -> LimitError:
    """Return the error with DAC codes converted to mA. Return other errors unchanged."""
    if error.unit != "code":
        return error
    requested, limit = output_from_code(np.array([error.requested, error.limit]), full_scale_ma)
    return target.error(
        LimitError, error.message.split(": requested")[0], requested=float(requested), limit=float(limit), unit="mA"
    )
