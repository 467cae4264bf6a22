"""Monitors of one emulated QSFP module: true values, fixed errors, noise and comparison with the thresholds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from lumion_hw.emulator.transponders.qsfp import offsets
from lumion_hw.emulator.transponders.qsfp.flags import EmulatedQsfpFlags
from lumion_hw.emulator.transponders.qsfp.image import decode_monitor, encode_monitor
from lumion_hw.emulator.transponders.qsfp.memory import EmulatedQsfpMemory
from lumion_hw.emulator.transponders.qsfp.offsets import HALF_BYTES, LANES
from lumion_hw.emulator.transponders.qsfp.profiles import QsfpProfile
from lumion_hw.quantities import ratio_from_db

_LIMIT_BITS = (0x80, 0x40, 0x20, 0x10)
"""Flags of high alarm, low alarm, high warning and low warning, in the upper half of a byte."""
_FIRST_BYTES = {
    "temperature": offsets.TEMPERATURE,
    "supply": offsets.SUPPLY,
    "rx_power": offsets.RX_POWER,
    "tx_bias": offsets.TX_BIAS,
    "tx_power": offsets.TX_POWER,
}
_LANE_FLAGS = {
    "rx_power": offsets.RX_POWER_FLAGS,
    "tx_bias": offsets.TX_BIAS_FLAGS,
    "tx_power": offsets.TX_POWER_FLAGS,
}
_MODULE_FLAGS = {"temperature": offsets.TEMPERATURE_FLAGS, "supply": offsets.SUPPLY_FLAGS}
_NOISES = {"temperature": 0.05, "supply": 0.001, "tx_bias": 0.002}
"""RMS noise: degC, V, and relative to the bias."""

Key = tuple[str, int]
"""Name of a monitor and its lane; 0 for the module's own monitors."""


class EmulatedQsfpMonitors:
    """Writes the monitors of a module to its memory, and reports values beyond a threshold.

    Args:
        rng: Source of the fixed errors, drawn once, and of the noise.
    """

    def __init__(
        self, profile: QsfpProfile, memory: EmulatedQsfpMemory, flags: EmulatedQsfpFlags, rng: np.random.Generator
    ) -> None:
        self._profile, self._memory, self._flags, self._rng = profile, memory, flags, rng
        self._keys: list[Key] = [("temperature", 0), ("supply", 0)]
        self._keys += [("rx_power", lane) for lane in LANES] + [("tx_bias", lane) for lane in LANES]
        if profile.has("tx_power_monitor"):
            self._keys += [("tx_power", lane) for lane in LANES]
        bounds = {
            "temperature": profile.temperature_offset_c,
            "supply": profile.supply_offset,
            "tx_bias": profile.bias_offset,
            "rx_power": profile.power_offset_db,
            "tx_power": profile.power_offset_db,
        }
        self._errors = {key: float(rng.uniform(-bounds[key[0]], bounds[key[0]])) for key in self._keys}
        self._limits = _limits(memory)
        self._previous: dict[int, int] = {}

    def _span(self, key: Key) -> range:
        name, lane = key
        first = _FIRST_BYTES[name] + 2 * max(lane - 1, 0)
        return range(first, first + 2)

    def _measured(self, key: Key, true_value: float, noise: float) -> float:
        name, error = key[0], self._errors[key]
        if name == "temperature":
            return true_value + error + _NOISES[name] * noise
        if name == "supply":
            return true_value * (1.0 + error) + _NOISES[name] * noise
        if name == "tx_bias":
            return true_value * (1.0 + error) * (1.0 + _NOISES[name] * noise)
        return true_value * ratio_from_db(error + self._profile.power_noise_db * noise)

    def refresh(self, true_value: Callable[[str, int], float]) -> None:
        """Measure all monitors, in degC, V, mA and W."""
        noises = self._rng.standard_normal(len(self._keys))
        for key, noise in zip(self._keys, noises, strict=True):
            span = self._span(key)
            self._previous |= {byte: self._memory.lower[byte] for byte in span}
            value = self._measured(key, true_value(*key), float(noise))
            self._memory.lower[span.start : span.stop] = encode_monitor(key[0], value)

    def previous_byte(self, address: int) -> int | None:
        """Return the value that a monitor byte had before the last refresh; ``None`` for other bytes."""
        return self._previous.get(address)

    def clear(self) -> None:
        """Set all monitors to 0: the module has no valid data."""
        for key in self._keys:
            span = self._span(key)
            self._memory.lower[span.start : span.stop] = bytes(2)
        self._previous.clear()

    def compare(self, due_s: float) -> None:
        """Compare the monitors with their thresholds; flags follow at ``due_s``."""
        for key in self._keys:
            name, lane = key
            span = self._span(key)
            value = decode_monitor(name, bytes(self._memory.lower[span.start : span.stop]))
            byte = _MODULE_FLAGS.get(name, 0) or _LANE_FLAGS[name] + (lane - 1) // 2
            shift = 4 if lane and lane % 2 == 0 else 0
            for mask, exceeded in zip(_LIMIT_BITS, self._exceeded(name, value), strict=True):
                self._flags.hold(byte, mask >> shift, exceeded, due_s)

    def _exceeded(self, name: str, value: int) -> tuple[bool, bool, bool, bool]:
        high_alarm, low_alarm, high_warning, low_warning = self._limits[name]
        return (value > high_alarm, value < low_alarm, value > high_warning, value < low_warning)


def _limits(memory: EmulatedQsfpMemory) -> Mapping[str, tuple[int, ...]]:
    """Return the register integers of the thresholds, which hosts cannot change; none without page 03h."""
    page = bytes(memory.pages.get(0x03, b""))
    if not page:
        return {}
    firsts = {name: byte - HALF_BYTES for name, byte in offsets.THRESHOLDS.items()}
    return {
        name: tuple(decode_monitor(name, page[first + index : first + index + 2]) for index in range(0, 8, 2))
        for name, first in firsts.items()
    }
