"""Check whether a calibration record is still valid: its age, and the temperature and wavelength of use."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from lumion_hw.errors import CalibrationError, LimitError
from lumion_hw.mesh.record.calibration_record import CalibrationRecord

Policy = Literal["refuse", "warn"]
"""Reaction to a record that is used outside its range: raise an error, or issue a warning."""


class CalibrationWarning(UserWarning):
    """Warning: a calibration record is used outside its range of validity."""


@dataclass(frozen=True)
class UseConditions:
    """Conditions in which a record is used; ``None`` where unknown.

    Attributes:
        now_utc: Time of use (ISO 8601 with zone).
        age_s: Age of the record, if known more accurately than from two dates.
    """

    now_utc: str | None = None
    temperature_c: float | None = None
    wavelength_nm: float | None = None
    age_s: float | None = None


def check_validity(record: CalibrationRecord, use: UseConditions, policy: Policy = "warn") -> tuple[str, ...]:
    """Check the conditions of use against the range of validity in the record.

    For age and temperature, ``policy`` decides: ``refuse`` raises an error, ``warn`` issues
    :class:`CalibrationWarning`.

    Returns:
        Everything that is out of range, one sentence each.

    Raises:
        LimitError: The wavelength is outside the range of the record.
        CalibrationError: Age or temperature is out of range, and the policy is ``refuse``.
    """
    conditions = record.conditions
    exceeded_nm = _exceeded_end(use.wavelength_nm, conditions.wavelength_range_nm)
    if use.wavelength_nm is not None and exceeded_nm is not None:
        raise LimitError(
            "the wavelength is outside the range of the calibration record",
            requested=use.wavelength_nm,
            limit=exceeded_nm,
            unit="nm",
        )
    problems = []
    age_s = _age_s(record, use)
    if age_s is not None and conditions.valid_for_s is not None and age_s > conditions.valid_for_s:
        problems.append(
            f"the calibration record is {age_s / 3600:.1f} h old and should have been checked after "
            f"{conditions.valid_for_s / 3600:.1f} h"
        )
    exceeded_c = _exceeded_end(use.temperature_c, conditions.temperature_valid_c)
    if exceeded_c is not None:
        problems.append(
            f"the chip is at {use.temperature_c:.2f} °C; the calibration record is valid only to {exceeded_c:.2f} °C"
        )
    for problem in problems:
        if policy == "refuse":
            raise CalibrationError(problem, hint="Renew the record with `lumion-calibrate drift`, or calibrate again.")
        # Attributed to the caller, who uses the record outside its range.
        warnings.warn(problem, CalibrationWarning, stacklevel=2)
    return tuple(problems)


def _exceeded_end(value: float | None, interval: tuple[float, float] | None) -> float | None:
    if value is None or interval is None or interval[0] <= value <= interval[1]:
        return None
    return interval[0] if value < interval[0] else interval[1]


def _age_s(record: CalibrationRecord, use: UseConditions) -> float | None:
    if use.age_s is not None or use.now_utc is None:
        return use.age_s
    used, created = (datetime.fromisoformat(text) for text in (use.now_utc, record.created_utc))
    # Times without a zone are in UTC, as everywhere in a record.
    used, created = (time if time.tzinfo else time.replace(tzinfo=UTC) for time in (used, created))
    return (used - created).total_seconds()
