"""From the diagnostic memory of an SFP module to quantities: calibration, monitors, thresholds (SFF-8472 clause 9)."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass

from lumion_hw.interfaces import RangeState
from lumion_hw.quantities import dbm_from_w
from lumion_hw.standards.registers import unscaled
from lumion_hw.standards.sff8472.registers import FIELDS

MONITORS = ("temperature", "supply", "tx_bias", "tx_power", "rx_power")
"""The five monitors, by their field names."""
_POWERS = ("tx_power", "rx_power")
_LARGEST_RAW = 0xFFFF


class CalibrationKind(enum.Enum):
    """How raw counts become quantities (A0h:92, bits 5 and 4)."""

    INTERNAL = "internal"
    EXTERNAL = "external"
    INCONSISTENT = "both or neither; taken as internal"


@dataclass(frozen=True)
class OpticalPower:
    """A power as the module measures it.

    Attributes:
        state: Whether the module has a number.
        power_dbm: The number; ``None`` unless ``state`` is ``OK``.
    """

    state: RangeState
    power_dbm: float | None = None


@dataclass(frozen=True)
class Thresholds:
    """Four thresholds of one monitor, in its unit; powers in dBm, ``None`` where a threshold is zero power."""

    high_alarm: float | None
    low_alarm: float | None
    high_warning: float | None
    low_warning: float | None


def calibration_kind(*, internal: bool, external: bool) -> CalibrationKind:
    """Return the kind from the two bits of A0h:92."""
    # Some modules set both bits or neither; most modules are calibrated internally.
    if internal == external:
        return CalibrationKind.INCONSISTENT
    return CalibrationKind.EXTERNAL if external else CalibrationKind.INTERNAL


@dataclass(frozen=True)
class DiagnosticCalibration:
    """From raw counts to quantities.

    Attributes:
        kind: The kind of calibration.
        slope: Slope per monitor, except ``rx_power``.
        offset: Offset per monitor in counts, except ``rx_power``.
        rx_power: Coefficients of the received power, of raw^0 to raw^4.
    """

    kind: CalibrationKind
    slope: Mapping[str, float]
    offset: Mapping[str, float]
    rx_power: tuple[float, ...]

    @classmethod
    def from_memory(cls, kind: CalibrationKind, diagnostics: bytes) -> DiagnosticCalibration:
        """Read the constants of A2h:56 to 91.

        Args:
            kind: The kind of calibration.
            diagnostics: The memory A2h from offset 0, at least to the constants' end.
        """
        linear = [monitor for monitor in MONITORS if monitor != "rx_power"]
        return cls(
            kind,
            {m: field_number(f"cal_{m}_slope", diagnostics) * float(FIELDS[f"cal_{m}_slope"].scale) for m in linear},
            {m: field_number(f"cal_{m}_offset", diagnostics) for m in linear},
            tuple(field_number(f"cal_rx_power_{power}", diagnostics) for power in range(5)),
        )

    def counts(self, monitor: str, raw: float) -> float:
        """Return calibrated counts: the raw ones, or with external calibration those of SFF-8472 clause 9.5."""
        if self.kind is not CalibrationKind.EXTERNAL:
            return raw
        if monitor == "rx_power":
            return sum(coefficient * raw**power for power, coefficient in enumerate(self.rx_power))
        return self.slope[monitor] * raw + self.offset[monitor]

    def value(self, monitor: str, raw: float) -> float:
        """Return temperature in degrees Celsius, supply in V, bias in mA or power in W."""
        return self.counts(monitor, raw) * float(FIELDS[monitor].scale)

    def power(self, monitor: str, raw: int) -> OpticalPower:
        """Return an optical power; a full-scale count is over-range, a power of zero or less under-range.

        It is invalid where the module's calibration constants make no number of it.
        """
        # A full count is what a saturated converter shows.
        if raw >= _LARGEST_RAW:
            return OpticalPower(RangeState.OVER)
        power_w = self.value(monitor, raw)
        # The coefficients are floating-point numbers in a memory: damaged ones may be infinite or none.
        if not math.isfinite(power_w):
            return OpticalPower(RangeState.INVALID)
        if power_w <= 0.0:
            return OpticalPower(RangeState.UNDER)
        return OpticalPower(RangeState.OK, dbm_from_w(power_w))

    def thresholds(self, monitor: str, diagnostics: bytes) -> Thresholds:
        """Return the thresholds of a monitor, calibrated the way the monitor is."""
        values: list[float | None] = []
        for name in ("high_alarm", "low_alarm", "high_warning", "low_warning"):
            value = self.value(monitor, field_number(f"{monitor}_{name}", diagnostics))
            if monitor in _POWERS:
                values.append(dbm_from_w(value) if 0.0 < value < math.inf else None)
            else:
                values.append(value)
        return Thresholds(*values)


def field_number(name: str, memory: bytes, start: int = 0) -> float:
    """Return the raw number of a field from a piece of its device's memory that begins at ``start``."""
    field = FIELDS[name]
    number = unscaled(field, memory[field.byte - start : field.end - start])
    if not isinstance(number, (int, float)):
        raise TypeError(f"{name} is not a number")
    return number


def raw_count(name: str, memory: bytes, start: int = 0) -> int:
    """Return the raw count of an integer field; see :func:`field_number`."""
    return int(field_number(name, memory, start))


DIAGNOSTIC_BYTES = FIELDS["cc_dmi"].end
"""Length of the constant part of A2h: thresholds, calibration constants, check sum."""
