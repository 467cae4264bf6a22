"""Monitors, thresholds and calibration of SFP modules (SFF-8472 clause 9)."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass

from lumion_hw.interfaces import RangeState
from lumion_hw.quantities import dbm_from_w
from lumion_hw.standards.registers import raw_limits, unscaled
from lumion_hw.standards.sff8472.registers import FIELDS

MONITORS = ("temperature", "supply", "tx_bias", "tx_power", "rx_power")
"""The five monitors, by their field names."""
_POWERS = ("tx_power", "rx_power")
LARGEST_RAW = 0xFFFF
"""Largest raw count of an optical power."""


class CalibrationKind(enum.Enum):
    """Kind of calibration (A0h:92, bits 5 and 4)."""

    INTERNAL = "internal"
    EXTERNAL = "external"
    INCONSISTENT = "both or neither; treated as internal"


@dataclass(frozen=True)
class OpticalPower:
    """Optical power measured by the module; ``power_dbm`` is ``None`` unless ``state`` is ``OK``."""

    state: RangeState
    power_dbm: float | None = None


@dataclass(frozen=True)
class Thresholds:
    """Four thresholds of one monitor, in its unit (powers in dBm); ``None`` for zero power or implausible values."""

    high_alarm: float | None
    low_alarm: float | None
    high_warning: float | None
    low_warning: float | None


def calibration_kind(*, internal: bool, external: bool) -> CalibrationKind:
    """Return the kind of calibration from two bits of A0h:92."""
    # Some modules set both bits or neither; most modules are calibrated internally.
    if internal == external:
        return CalibrationKind.INCONSISTENT
    return CalibrationKind.EXTERNAL if external else CalibrationKind.INTERNAL


@dataclass(frozen=True)
class DiagnosticCalibration:
    """Converts raw counts of the monitors to temperature, voltage, current and power.

    Attributes:
        kind: Kind of calibration.
        slope: Slope per monitor, except ``rx_power``.
        offset: Offset per monitor in counts, except ``rx_power``.
        rx_power: Coefficients of the received power for raw^0 to raw^4.
    """

    kind: CalibrationKind
    slope: Mapping[str, float]
    offset: Mapping[str, float]
    rx_power: tuple[float, ...]

    @classmethod
    def from_memory(cls, kind: CalibrationKind, diagnostics: bytes) -> DiagnosticCalibration:
        """Return the calibration with the constants in A2h:56 to 91.

        Args:
            kind: Kind of calibration.
            diagnostics: Memory A2h from offset 0 to the end of the constants or further.
        """
        linear = [monitor for monitor in MONITORS if monitor != "rx_power"]
        return cls(
            kind,
            {m: field_number(f"cal_{m}_slope", diagnostics) * float(FIELDS[f"cal_{m}_slope"].scale) for m in linear},
            {m: field_number(f"cal_{m}_offset", diagnostics) for m in linear},
            tuple(field_number(f"cal_rx_power_{power}", diagnostics) for power in range(5)),
        )

    def counts(self, monitor: str, raw: float) -> float:
        """Return the calibrated counts of a monitor (SFF-8472 clause 9.5)."""
        if self.kind is not CalibrationKind.EXTERNAL:
            return raw
        if monitor == "rx_power":
            return sum(coefficient * raw**power for power, coefficient in enumerate(self.rx_power))
        return self.slope[monitor] * raw + self.offset[monitor]

    def is_plausible(self, monitor: str, raw: float) -> bool:
        """Return whether the calibrated value is within the total range that SFF-8472 clauses 9.2 and 9.3 define.

        Values slightly below 0, as from a dark laser, are plausible.
        """
        low, high = raw_limits(FIELDS[monitor])
        return (low if low < 0 else -high) <= self.counts(monitor, raw) <= high

    def value(self, monitor: str, raw: float) -> float:
        """Return temperature in degrees Celsius, supply in V, bias in mA or power in W."""
        return self.counts(monitor, raw) * float(FIELDS[monitor].scale)

    def power(self, monitor: str, raw: int) -> OpticalPower:
        """Return an optical power.

        A full-scale count is over-range, zero is under-range, an implausible power is invalid.
        """
        # A saturated converter returns the full-scale count.
        if raw >= LARGEST_RAW:
            return OpticalPower(RangeState.OVER)
        # Damaged floating-point coefficients may be infinite or not a number.
        if not self.is_plausible(monitor, raw):
            return OpticalPower(RangeState.INVALID)
        power_w = self.value(monitor, raw)
        if power_w <= 0.0:
            return OpticalPower(RangeState.UNDER)
        return OpticalPower(RangeState.OK, dbm_from_w(power_w))

    def thresholds(self, monitor: str, diagnostics: bytes) -> Thresholds:
        """Return the calibrated thresholds of a monitor; ``None`` for implausible thresholds."""
        values: list[float | None] = []
        for name in ("high_alarm", "low_alarm", "high_warning", "low_warning"):
            raw = field_number(f"{monitor}_{name}", diagnostics)
            value = self.value(monitor, raw)
            if not self.is_plausible(monitor, raw):
                values.append(None)
            elif monitor in _POWERS:
                values.append(dbm_from_w(value) if value > 0.0 else None)
            else:
                values.append(value)
        return Thresholds(*values)


def implausibility_text(monitor: str, value: float) -> str:
    """Return why a calibrated value is implausible, with its range in SFF-8472."""
    if not math.isfinite(value):
        return "not a number with the calibration constants at A2h:56-91"
    field = FIELDS[monitor]
    if monitor in _POWERS:
        dbm = f" ({dbm_from_w(value):.1f} dBm)" if value > 0.0 else ""
        actual, limits = f"{value * 1e3:.4g} mW{dbm}", "0 to 6.5535 mW (8.16 dBm)"
    else:
        low, high = (bound * float(field.scale) for bound in raw_limits(field))
        actual, limits = f"{value:.4g} {field.unit}", f"{low:.4g} to {high:.4g} {field.unit}"
    return f"{actual}, outside the SFF-8472 range {limits}: the calibration constants at A2h:56-91 are damaged"


def field_number(name: str, memory: bytes, start: int = 0) -> float:
    """Return the raw value of a field, from memory that begins at address ``start``."""
    field = FIELDS[name]
    number = unscaled(field, memory[field.byte - start : field.end - start])
    if not isinstance(number, (int, float)):
        raise TypeError(f"{name} is not a number")
    return number


def raw_count(name: str, memory: bytes, start: int = 0) -> int:
    """Return the raw count of an integer field, from memory that begins at address ``start``."""
    return int(field_number(name, memory, start))


DIAGNOSTIC_BYTES = FIELDS["cc_dmi"].end
"""Length in bytes of the thresholds and calibration constants in A2h, with their checksum."""
