"""Interface of a variable optical attenuator with one or several channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class AttenuatorSettings:
    """Settings of one attenuator channel.

    Attributes:
        attenuation_db: Attenuation as the instrument reports it, with or without its insertion loss.
        wavelength_nm: Wavelength to which the attenuation applies; ``None`` if the instrument has a fixed wavelength.
        passing: Whether the shutter is open; ``True`` without a shutter.
    """

    attenuation_db: float
    wavelength_nm: float | None
    passing: bool


@dataclass(frozen=True)
class AttenuatorLimits:
    """Lowest and highest settings of one attenuator channel, both included.

    Attributes:
        attenuation_step_db: Attenuations are rounded to multiples of this step.
        wavelength_nm: Wavelength; ``None`` if it cannot be set.
        shutter: Whether the channel has a shutter.
    """

    attenuation_db: tuple[float, float]
    attenuation_step_db: float
    wavelength_nm: tuple[float, float] | None
    shutter: bool


class VariableAttenuator(Protocol):
    """A variable optical attenuator. Thread-safe; every setting is read back.

    Calls return when the light has settled. Opening and closing do not change the settings.
    """

    @property
    def channels(self) -> tuple[int, ...]:
        """Channel numbers, from 1."""

    @property
    def model(self) -> str:
        """Model name that the instrument reports."""

    @property
    def serial(self) -> str:
        """Serial number that the instrument reports."""

    def set_attenuation_db(self, channel: int, attenuation_db: float) -> None:
        """Set the attenuation of a channel.

        Raises:
            LimitError: The attenuation is outside the instrument's limits; nothing was changed.
            DeviceError: The instrument refuses the command.
            DeviceTimeoutError: The attenuation was not reached in time.
            VerifyError: The attenuation read back differs.
        """

    def set_wavelength_nm(self, channel: int, wavelength_nm: float) -> None:
        """Set the wavelength to which attenuations apply. Raises the errors of :meth:`set_attenuation_db`.

        Raises:
            NotSupportedError: The instrument has a fixed wavelength.
        """

    def enable(self, channel: int) -> None:
        """Open the shutter. Does nothing without a shutter."""

    def disable(self, channel: int) -> None:
        """Close the shutter. Raises ``NotSupportedError`` without a shutter."""

    def settings(self, channel: int) -> AttenuatorSettings:
        """Return the present settings."""

    def limits(self, channel: int) -> AttenuatorLimits:
        """Return the limits of the settings."""

    def close(self) -> None:
        """Release the link; idempotent. The settings stay."""
