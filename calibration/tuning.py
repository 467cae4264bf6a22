"""Light that can be tuned: to the reference of a calibration, to further wavelengths, and for their verification."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from calibration.probe import Probe
from calibration.subject import Subject
from calibration.verification import SETTINGS, Verification, verify
from lumion_hw.errors import ConfigError, LimitError
from lumion_hw.mesh.record import CalibrationRecord
from lumion_hw.mesh.record_validity import Use, check_validity
from lumion_hw.quantities import frequency_hz_from_wavelength_m, wavelength_m_from_frequency_hz

TUNING_ERROR_HZ = 0.2e9
"""How far a source may be from where it was found at the reference, once it is tuned elsewhere: 1.6 pm (assumption)."""


def tune_sources(probe: Probe, frequency_hz: float, ports: Iterable[int]) -> dict[int, float]:
    """Tune sources as near as they go, and return the frequency each says it then has, by port.

    Raises:
        LimitError: It is out of the range of one of them.
    """
    return {port: probe.tune(port, frequency_hz) for port in ports}


def tune_to_reference(probe: Probe, subject: Subject) -> dict[int, float]:
    """Tune what can be tuned to where a calibration begins, and return where it is then, by port.

    Polarization is best aligned at the wavelength it is used at.

    Raises:
        LimitError: A source cannot make it.
    """
    return tune_sources(probe, frequency_hz_from_wavelength_m(subject.wavelength_nm * 1e-9), subject.tunable_hz)


def tune_to_record(probe: Probe, record: CalibrationRecord) -> None:
    """Tune what can be tuned to the wavelength of a record.

    Raises:
        LimitError: A source cannot make it.
    """
    tune_sources(probe, record.reference_hz, [port for port in probe.sources if probe.tunable_hz(port) is not None])


def verify_at(
    probe: Probe,
    record: CalibrationRecord,
    wavelength_nm: float,
    seed: int,
    done: Callable[[int, int], None] = lambda step, total: None,
    settings: int = SETTINGS,
) -> Verification:
    """Tune the light to a wavelength and compare it there with what a record predicts; then tune it back.

    Light that cannot be tuned is used at the record's own wavelength only. Where it fails, light stays where it is.

    Args:
        probe: Access to the mesh.
        record: The record to judge.
        wavelength_nm: Wavelength, in the range the record holds for.
        seed: Seed of the settings; not that of the calibration.
        done: Told of every setting.
        settings: Number of settings.

    Raises:
        LimitError: The record does not hold there, or a source cannot make it.
        ConfigError: No source can be tuned.
    """
    check_validity(record, Use(wavelength_nm=wavelength_nm))
    asked_hz = frequency_hz_from_wavelength_m(wavelength_nm * 1e-9)
    elsewhere = abs(asked_hz - record.reference_hz) > TUNING_ERROR_HZ
    ports = [port for port in probe.sources if probe.tunable_hz(port) is not None]
    if elsewhere and not ports:
        raise ConfigError("no light of this bench can be tuned", hint="It can be verified at the record's wavelength.")
    reached_hz = tune_sources(probe, asked_hz, ports)
    detuning_hz = float(np.median(list(reached_hz.values()))) - record.reference_hz if elsewhere else 0.0
    found = verify(probe, _lit_by(record, ports) if elsewhere else record, seed, done, settings, detuning_hz)
    if elsewhere:
        tune_sources(probe, record.reference_hz, ports)
    return found


def check_wavelengths(wavelengths_nm: Sequence[float], subject: Subject) -> None:
    """Refuse wavelengths that cannot be measured, before anything is.

    Raises:
        ConfigError: No source can be tuned.
        LimitError: One of them cannot make a wavelength.
    """
    if wavelengths_nm and not subject.tunable_hz:
        raise ConfigError(
            "further wavelengths need light that can be tuned, and no source can",
            hint="Wire a tunable laser or a coherent module to the mesh, see 'wiring.inputs' in the bench file.",
        )
    for nm in wavelengths_nm:
        for port, (low_hz, high_hz) in subject.tunable_hz.items():
            asked_hz = frequency_hz_from_wavelength_m(nm * 1e-9)
            if not low_hz <= asked_hz <= high_hz:
                limit_hz = low_hz if asked_hz < low_hz else high_hz
                limit_nm = wavelength_m_from_frequency_hz(limit_hz) * 1e9
                raise LimitError(f"wavelength of the source at port {port}", asked=nm, limit=limit_nm, unit="nm")


def _lit_by(record: CalibrationRecord, ports: Sequence[int]) -> CalibrationRecord:
    """Return a record that knows these sources only."""
    entries = [
        entry
        if (entry.port if entry.lit_with is None else entry.lit_with) in ports
        else replace(entry, source_dbm=None, input_loss_db=None, lit_with=None)
        for entry in record.ports
    ]
    return replace(record, ports=tuple(entries))
