"""Whether a calibration record still holds for the bench it is to be used on: now, at its temperature, for its light.

Ages are told by the clock the record was made by. A record of an emulated bench says how old that bench was; it is
compared with the age of the emulated bench that it is used on, and tells nothing about age anywhere else, as days pass
there without any passing here.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lumion_hw.errors import LumionError
from lumion_hw.interfaces.wiring import InputPath
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.record.validity import Policy, UseConditions, check_validity
from lumion_hw.quantities import wavelength_m_from_frequency_hz

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench


def record_age_s(bench: Bench, record: CalibrationRecord) -> float | None:
    """Return the time since a record was made, by the bench's own time; ``None`` where clocks cannot be compared."""
    made_at_s = record.conditions.emulated_age_s
    if bench.is_emulated:
        now_s = bench.emulated_age_s
        return None if made_at_s is None or now_s is None else max(now_s - made_at_s, 0.0)
    if made_at_s is not None:
        return None
    made = datetime.fromisoformat(record.created_utc)
    return max((datetime.now(UTC) - (made if made.tzinfo else made.replace(tzinfo=UTC))).total_seconds(), 0.0)


def check_use(bench: Bench, record: CalibrationRecord, policy: Policy = "warn") -> tuple[str, ...]:
    """Judge a record against age, chip temperature and wavelengths of the bench it is to be used on.

    Only what the record states a range for is asked of the bench.

    Args:
        bench: The bench.
        record: Its calibration.
        policy: What becomes of age and temperature out of range, as for
            :func:`~lumion_hw.mesh.record.validity.check_validity`.

    Returns:
        What is out of range, one sentence each.

    Raises:
        LimitError: The wavelength of a source is outside the range the record holds for.
        CalibrationError: Age or temperature is, and the policy is to refuse.
    """
    conditions = record.conditions
    if conditions.wavelength_range_nm is not None:
        for wavelength_nm in source_wavelengths_nm(bench):
            check_validity(record, UseConditions(wavelength_nm=wavelength_nm), policy)
    temperature_c = None if conditions.temperature_valid_c is None else bench.mesh.chip_temperature_c()
    return check_validity(record, UseConditions(age_s=record_age_s(bench, record), temperature_c=temperature_c), policy)


def source_wavelengths_nm(bench: Bench) -> tuple[float, ...]:
    """Return the wavelengths of what lights the mesh, as modules and lasers tell them; silent ones are left out."""
    found: set[float] = set()
    for path in bench.wiring.inputs:
        with contextlib.suppress(LumionError):
            wavelength_nm = _wavelength_nm(bench, path)
            if wavelength_nm:
                found.add(round(wavelength_nm, 6))
    return tuple(sorted(found))


def _wavelength_nm(bench: Bench, path: InputPath) -> float | None:
    if path.transponder is not None:
        module = bench.transponders.get(path.transponder)
        return None if module is None else float(module.identify().wavelength_nm)
    laser = bench.lasers.get(path.source)
    return None if laser is None else wavelength_m_from_frequency_hz(laser.state().frequency_thz * 1e12) * 1e9
