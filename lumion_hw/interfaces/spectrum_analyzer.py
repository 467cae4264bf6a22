"""The optical spectrum analyser: power against wavelength, one sweep at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SpectrumSettings:
    """What is set on an analyser.

    Attributes:
        start_nm: First wavelength of a sweep, in vacuum.
        stop_nm: Last wavelength of a sweep.
        resolution_nm: Bandwidth in which the power is measured.
        sensitivity: One of the analyser's own names, of :attr:`SpectrumLimits.sensitivities`.
        n_points: Points of a sweep; ``None`` where the analyser chooses them.
    """

    start_nm: float
    stop_nm: float
    resolution_nm: float
    sensitivity: str
    n_points: int | None


@dataclass(frozen=True)
class SpectrumLimits:
    """What can be set.

    Attributes:
        wavelength_nm: Lowest and highest wavelength of a sweep, both included.
        resolutions_nm: Nominal bandwidths there are, in rising order.
        sensitivities: Names of the sensitivities, the fastest first.
        n_points: Smallest and largest number of points.
    """

    wavelength_nm: tuple[float, float]
    resolutions_nm: tuple[float, ...]
    sensitivities: tuple[str, ...]
    n_points: tuple[int, int]


@dataclass(frozen=True)
class Spectrum:
    """One sweep.

    Attributes:
        wavelength_nm: Wavelengths in vacuum, rising, shape ``(n,)``.
        power_dbm: Power within the resolution bandwidth, shape ``(n,)``; NaN wherever the analyser has no value, such
            as where its noise makes the power zero or negative.
        resolution_nm: Bandwidth in which the power was measured.
        started_s: Host clock when the sweep was started.
        ended_s: Host clock when it was seen to have ended.
    """

    wavelength_nm: NDArray[np.float64]
    power_dbm: NDArray[np.float64]
    resolution_nm: float
    started_s: float
    ended_s: float

    def __repr__(self) -> str:
        """Return one line: the arrays are long."""
        first_nm, last_nm = (float(self.wavelength_nm[end]) for end in (0, -1))
        return f"<Spectrum {first_nm:g} to {last_nm:g} nm, {len(self.wavelength_nm)} points, {self.resolution_nm:g} nm>"


class SpectrumAnalyzer(Protocol):
    """An optical spectrum analyser. Thread-safe; every set is read back. Wavelengths are those in vacuum."""

    @property
    def model(self) -> str:
        """Model as the instrument says it."""

    @property
    def serial(self) -> str:
        """Serial number as the instrument says it."""

    def set_span_nm(self, start_nm: float, stop_nm: float) -> None:
        """Set first and last wavelength of a sweep.

        Raises:
            LimitError: Outside the analyser's range, or not rising; nothing was changed.
            DeviceError: The analyser refuses.
            VerifyError: It keeps others.
        """

    def set_resolution_nm(self, resolution_nm: float) -> None:
        """Set the resolution bandwidth, one of those there are. Raises as :meth:`set_span_nm`."""

    def set_sensitivity(self, sensitivity: str) -> None:
        """Set the sensitivity. Raises as :meth:`set_span_nm`, and ``ConfigError`` for a name there is not."""

    def set_n_points(self, n_points: int | None) -> None:
        """Set the number of points of a sweep, or leave it to the analyser with ``None``. As :meth:`set_span_nm`."""

    def sweep(self, timeout_s: float) -> Spectrum:
        """Sweep once, wait for the end, at most ``timeout_s`` from now, and return what was measured.

        Raises:
            DeviceError: The analyser refuses.
            DeviceTimeoutError: The sweep does not end in time; it was stopped.
            FrameError: What came is not the sweep.
            LimitError: The time is negative or no number.
        """

    def settings(self) -> SpectrumSettings:
        """Ask for the settings in force."""

    def limits(self) -> SpectrumLimits:
        """Return what can be set."""

    def close(self) -> None:
        """Release the link; idempotent. The settings stay."""
