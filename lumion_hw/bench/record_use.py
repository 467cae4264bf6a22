"""Checks whether a calibration record is still valid for a bench: age, chip temperature and wavelengths."""

from __future__ import annotations

import contextlib
import warnings
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lumion_hw.errors import CalibrationError, LumionError
from lumion_hw.interfaces.wiring import InputPath
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.record.validity import CalibrationWarning, Policy, UseConditions, check_validity
from lumion_hw.quantities import wavelength_m_from_frequency_hz

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench


def record_age_s(bench: Bench, record: CalibrationRecord) -> float | None:
    """Return the age of a calibration record in seconds; ``None`` if it cannot be known.

    It is known only if both the record and the bench are real, or both are emulated.
    """
    recorded_at_s = record.conditions.emulated_age_s
    if bench.is_emulated:
        now_s = bench.emulated_age_s
        return None if recorded_at_s is None or now_s is None else max(now_s - recorded_at_s, 0.0)
    if recorded_at_s is not None:
        return None
    created = datetime.fromisoformat(record.created_utc)
    created = created if created.tzinfo else created.replace(tzinfo=UTC)
    return max((datetime.now(UTC) - created).total_seconds(), 0.0)


def check_use(bench: Bench, record: CalibrationRecord, policy: Policy = "warn") -> tuple[str, ...]:
    """Compare the age of a record, the chip temperature and the wavelengths with the valid ranges of the record.

    Args:
        bench: The bench.
        record: The calibration record of the bench.
        policy: Whether an age, temperature or lane wavelength out of range gives a warning or an error, as for
            :func:`~lumion_hw.mesh.record.validity.check_validity`.

    Returns:
        The warnings, one sentence each.

    Raises:
        LimitError: The wavelength of a source is outside the range of the record.
        CalibrationError: The age, temperature or wavelength of a lane is out of range, and the policy is ``refuse``.
    """
    conditions = record.conditions
    if conditions.wavelength_range_nm is not None:
        for wavelength_nm in source_wavelengths_nm(bench):
            check_validity(record, UseConditions(wavelength_nm=wavelength_nm), policy)
    unpredicted = _lanes_out_of_range(bench, record)
    for problem in unpredicted:
        if policy == "refuse":
            raise CalibrationError(problem, hint="Extend the record: `lumion-calibrate run --wavelengths`.")
        warnings.warn(problem, CalibrationWarning, stacklevel=2)
    temperature_c = None if conditions.temperature_valid_c is None else bench.mesh.chip_temperature_c()
    use = UseConditions(age_s=record_age_s(bench, record), temperature_c=temperature_c)
    return (*unpredicted, *check_validity(record, use, policy))


def _lanes_out_of_range(bench: Bench, record: CalibrationRecord) -> list[str]:
    """Return a sentence for each module with lanes at wavelengths outside the range of the record."""
    if record.conditions.wavelength_range_nm is None:
        return []
    low_nm, high_nm = record.conditions.wavelength_range_nm
    problems = []
    for name in dict.fromkeys(path.transponder for path in bench.wiring.inputs if path.transponder is not None):
        device = bench.model.devices.get(name)
        optics = None if device is None else device.optics
        lanes_nm = () if optics is None else optics.lanes_nm
        outside_nm = ", ".join(f"{nm:g}" for nm in lanes_nm if not low_nm <= nm <= high_nm)
        if outside_nm:
            problems.append(
                f"lanes of {name} are at {outside_nm} nm; the calibration record is valid only from {low_nm:g} to "
                f"{high_nm:g} nm, so the loss of these lanes is not predicted"
            )
    return problems


def source_wavelengths_nm(bench: Bench) -> tuple[float, ...]:
    """Return the wavelengths that the modules and lasers at the inputs report. Sources that fail are omitted."""
    wavelengths: set[float] = set()
    for path in bench.wiring.inputs:
        with contextlib.suppress(LumionError):
            wavelength_nm = _wavelength_nm(bench, path)
            if wavelength_nm:
                wavelengths.add(round(wavelength_nm, 6))
    return tuple(sorted(wavelengths))


def _wavelength_nm(bench: Bench, path: InputPath) -> float | None:
    if path.transponder is not None:
        module = bench.transponders.get(path.transponder)
        return None if module is None else float(module.identify().wavelength_nm)
    laser = bench.lasers.get(path.source)
    return None if laser is None else wavelength_m_from_frequency_hz(laser.state().frequency_thz * 1e12) * 1e9
