"""Light that can be tuned: to the reference of a calibration, to further wavelengths, and for their verification."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from calibration.measure.probe import Probe
from calibration.model.device_under_test import Subject
from lumion_hw.errors import ConfigError, LimitError
from lumion_hw.mesh.record import CalibrationRecord
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
