"""Whether a calibration record still holds: its age, and the temperature and wavelength it is used at."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from lumion_hw.errors import CalibrationError, LimitError
from lumion_hw.mesh.record.calibration_record import CalibrationRecord

Policy = Literal["refuse", "warn"]
"""What happens when a record is used outside its range: an error, or a warning."""


class CalibrationWarning(UserWarning):
    """A calibration record is used outside the range it was made for."""


@dataclass(frozen=True)
class UseConditions:
    """What a record is to be used for; ``None`` where that is not known and not judged.

    Attributes:
        now_utc: Time of use (ISO 8601 with zone).
        age_s: Age of the record, where that is known better than from two dates.
        temperature_c: Temperature of the chip.
        wavelength_nm: Wavelength of the light.
    """

    now_utc: str | None = None
    temperature_c: float | None = None
    wavelength_nm: float | None = None
    age_s: float | None = None


def check_validity(record: CalibrationRecord, use: UseConditions, policy: Policy = "warn") -> tuple[str, ...]:
    """Judge a record against the range of validity it states; what it states no range for is not judged.

    Args:
        record: The record.
        use: What it is to be used for.
        policy: ``refuse`` raises for age and temperature, ``warn`` issues :class:`CalibrationWarning`. A wavelength out
            of range is always refused: nothing is extrapolated silently.

    Returns:
        What is out of range, one sentence each.

    Raises:
        LimitError: The wavelength is outside the range the record holds for.
        CalibrationError: Age or temperature is, and the policy is to refuse.
    """
    conditions = record.conditions
    passed_nm = _passed(use.wavelength_nm, conditions.wavelength_range_nm)
    if use.wavelength_nm is not None and passed_nm is not None:
        raise LimitError(
            "wavelength outside the range of the calibration record",
            requested=use.wavelength_nm,
            limit=passed_nm,
            unit="nm",
        )
    remarks = []
    age_s = _age_s(record, use)
    if age_s is not None and conditions.valid_for_s is not None and age_s > conditions.valid_for_s:
        remarks.append(
            f"the calibration record is {age_s / 3600:.1f} h old and was to be checked after "
            f"{conditions.valid_for_s / 3600:.1f} h"
        )
    passed_c = _passed(use.temperature_c, conditions.temperature_valid_c)
    if passed_c is not None:
        remarks.append(
            f"the chip is at {use.temperature_c:.2f} °C, and the calibration record holds only to {passed_c:.2f} °C"
        )
    for remark in remarks:
        if policy == "refuse":
            raise CalibrationError(remark, hint="Re-fit it with `lumion-calibrate drift`, or calibrate again.")
        warnings.warn(remark, CalibrationWarning, stacklevel=2)
    return tuple(remarks)


def _passed(value: float | None, interval: tuple[float, float] | None) -> float | None:
    """Return the end of an interval that a value has passed; ``None`` inside, or without value or interval."""
    if value is None or interval is None or interval[0] <= value <= interval[1]:
        return None
    return interval[0] if value < interval[0] else interval[1]


def _age_s(record: CalibrationRecord, use: UseConditions) -> float | None:
    """Return the age of a record at the time of use."""
    if use.age_s is not None or use.now_utc is None:
        return use.age_s
    now, made = (datetime.fromisoformat(text) for text in (use.now_utc, record.created_utc))
    now, made = (when if when.tzinfo else when.replace(tzinfo=UTC) for when in (now, made))
    return (now - made).total_seconds()
