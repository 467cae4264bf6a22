"""The variable attenuator, one or several channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class AttenuatorSettings:
    """What is set on one channel.

    Attributes:
        attenuation_db: Attenuation as the instrument counts it, with what it takes at its least or without.
        wavelength_nm: Wavelength that the attenuation is meant for; ``None`` if the instrument is made for one.
        passing: Light passes; ``False`` while a shutter holds it back. Always ``True`` without a shutter.
    """

    attenuation_db: float
    wavelength_nm: float | None
    passing: bool


@dataclass(frozen=True)
class AttenuatorLimits:
    """Lowest and highest settings of one channel, both ends included.

    Attributes:
        attenuation_db: Attenuations.
        attenuation_step_db: Attenuations are rounded to multiples of this step.
        wavelength_nm: Wavelengths; ``None`` if it cannot be set.
        shutter: The light can be held back by :meth:`VariableAttenuator.disable`.
    """

    attenuation_db: tuple[float, float]
    attenuation_step_db: float
    wavelength_nm: tuple[float, float] | None
    shutter: bool


class VariableAttenuator(Protocol):
    """An optical attenuator whose loss is set. Thread-safe; every set is read back.

    A set returns once the light has followed. Opening and closing leave light and settings as they are.
    """

    @property
    def channels(self) -> tuple[int, ...]:
        """Channel numbers, from 1."""

    @property
    def model(self) -> str:
        """Model as the instrument says it."""

    @property
    def serial(self) -> str:
        """Serial number as the instrument says it."""

    def set_attenuation_db(self, channel: int, attenuation_db: float) -> None:
        """Set the attenuation.

        Raises:
            LimitError: Outside the instrument's limits; nothing was changed.
            DeviceError: The instrument refuses.
            DeviceTimeoutError: It does not get there.
            VerifyError: The instrument keeps another attenuation.
        """

    def set_wavelength_nm(self, channel: int, wavelength_nm: float) -> None:
        """Set the wavelength that the attenuation is meant for. Raises as :meth:`set_attenuation_db`.

        Raises:
            NotSupportedError: The instrument is made for one wavelength.
        """

    def enable(self, channel: int) -> None:
        """Let the light pass. Nothing to do without a shutter."""

    def disable(self, channel: int) -> None:
        """Hold the light back. Raises ``NotSupportedError`` without a shutter."""

    def settings(self, channel: int) -> AttenuatorSettings:
        """Ask for the settings in force."""

    def limits(self, channel: int) -> AttenuatorLimits:
        """Ask for the limits of the settings."""

    def close(self) -> None:
        """Release the link; idempotent. The settings stay."""
