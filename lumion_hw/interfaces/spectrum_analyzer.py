"""Interface of an optical spectrum analyser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SpectrumSettings:
    """Settings of a spectrum analyser.

    Attributes:
        start_nm: First wavelength of a sweep, in vacuum.
        stop_nm: Last wavelength of a sweep, in vacuum.
        resolution_nm: Resolution bandwidth.
        sensitivity: One of :attr:`SpectrumLimits.sensitivities`.
        n_points: Number of points per sweep; ``None`` if the analyser chooses it.
    """

    start_nm: float
    stop_nm: float
    resolution_nm: float
    sensitivity: str
    n_points: int | None


@dataclass(frozen=True)
class SpectrumLimits:
    """Available settings of a spectrum analyser.

    Attributes:
        wavelength_nm: Lowest and highest wavelength of a sweep, both included.
        resolutions_nm: Nominal resolution bandwidths, ascending.
        sensitivities: Names of the sensitivities, fastest first.
        n_points: Smallest and largest number of points.
    """

    wavelength_nm: tuple[float, float]
    resolutions_nm: tuple[float, ...]
    sensitivities: tuple[str, ...]
    n_points: tuple[int, int]


@dataclass(frozen=True)
class Spectrum:
    """Optical spectrum measured by one sweep.

    Attributes:
        wavelength_nm: Wavelengths in vacuum, ascending, shape ``(n,)``.
        power_dbm: Power within the resolution bandwidth, shape ``(n,)``; NaN where the analyser has no value.
        resolution_nm: Resolution bandwidth.
        started_s: Host clock at the start of the sweep.
        ended_s: Host clock at the end of the sweep.
    """

    wavelength_nm: NDArray[np.float64]
    power_dbm: NDArray[np.float64]
    resolution_nm: float
    started_s: float
    ended_s: float

    def __repr__(self) -> str:
        first_nm, last_nm = (float(self.wavelength_nm[end]) for end in (0, -1))
        return f"<Spectrum {first_nm:g} to {last_nm:g} nm, {len(self.wavelength_nm)} points, {self.resolution_nm:g} nm>"


class SpectrumAnalyzer(Protocol):
    """An optical spectrum analyser. Thread-safe; every setting is read back. Wavelengths are in vacuum."""

    @property
    def model(self) -> str:
        """Model name that the instrument reports."""

    @property
    def serial(self) -> str:
        """Serial number that the instrument reports."""

    def set_span_nm(self, start_nm: float, stop_nm: float) -> None:
        """Set the first and last wavelength of a sweep.

        Raises:
            LimitError: The wavelengths are out of range or not ascending; nothing was changed.
            DeviceError: The analyser refuses the command.
            VerifyError: The wavelengths read back differ.
        """

    def set_resolution_nm(self, resolution_nm: float) -> None:
        """Set the resolution bandwidth to one of the available values. Raises the errors of :meth:`set_span_nm`."""

    def set_sensitivity(self, sensitivity: str) -> None:
        """Set the sensitivity. Raises the errors of :meth:`set_span_nm`, and ``ConfigError`` for an unknown name."""

    def set_n_points(self, n_points: int | None) -> None:
        """Set the number of points per sweep; ``None`` lets the analyser choose.

        Raises the errors of :meth:`set_span_nm`.
        """

    def sweep(self, timeout_s: float) -> Spectrum:
        """Make one wavelength sweep and return the spectrum.

        Args:
            timeout_s: Longest wait for the end of the sweep.

        Raises:
            DeviceError: The analyser refuses the command.
            DeviceTimeoutError: The sweep did not end in time and was stopped.
            FrameError: The data received do not belong to the sweep.
            LimitError: ``timeout_s`` is negative or not a number.
        """

    def settings(self) -> SpectrumSettings:
        """Return the present settings."""

    def limits(self) -> SpectrumLimits:
        """Return the available settings of the analyser."""

    def close(self) -> None:
        """Release the link; idempotent. The settings stay."""
