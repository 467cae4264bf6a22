"""Physics of a sensor on a Thorlabs PM100 console.

Photodiode, thermopile and pyroelectric sensors differ in native quantity (A or V), speed and response. Figures are
those of the families S15x, S40x and ES1xx; errors are random.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lumion_hw.emulator.optics.light import Light
from lumion_hw.quantities import ratio_from_db

SAMPLE_S = 3e-3
"""Duration of one sample in s."""
LOW_BANDWIDTH_HZ = 15.0
RANGE_CHANGE_S = 20e-3
ZEROING_S = 2.0
COUNTS = 20_000
AUTORANGE_LOWER = 0.09
TEMPERATURE_C = 24.0
PRESENCE_OHM = 10_000.0
DRIFT_PERIOD_S = 7200.0
RANGE_STEP_SIGMA_DB = 0.004
UPDATE_PERIOD_S = 0.02
"""Update period in s of a sensor with a slow response."""


class SensorKind(enum.Enum):
    """Type of sensor, with the type number in ``SYSTem:SENSor:IDN?`` as value."""

    PHOTODIODE = 1
    THERMOPILE = 2
    PYRO = 3


class SensorFlag(enum.IntFlag):
    """Abilities of a sensor, the last field of ``SYSTem:SENSor:IDN?``."""

    POWER = 1
    ENERGY = 2
    RESPONSE_SETTABLE = 16
    WAVELENGTH_SETTABLE = 32
    TAU_SETTABLE = 64
    TEMPERATURE = 256


@dataclass(frozen=True)
class SensorProfile:
    """Properties of one model of sensor.

    Attributes:
        name: Model, first field of ``SYSTem:SENSor:IDN?``.
        subtype: Fifth field of ``SYSTem:SENSor:IDN?``.
        flags: Sixth field of ``SYSTem:SENSor:IDN?``.
        response: Pairs of wavelength in nm and response in A/W, V/W or V/J, ascending.
        ranges: Full scales of the amplifier in A or V, ascending.
        noise_at_1_s: Standard deviation of a 1 s average, in W (of a pulse energy: in J).
        offset: Standard deviation of the offset before zeroing, in W or J.
        gain_sigma: Standard deviation of the relative error of the gain.
        tau_s: Time constant of the sensor itself.
        default_nm: Wavelength after ``*RST``.
        dark_limit: Power in W above which zeroing fails.
        calibrated: Calibration message (a date) in ``SYSTem:SENSor:IDN?``.
    """

    name: str
    kind: SensorKind
    subtype: int
    flags: SensorFlag
    response: tuple[tuple[float, float], ...]
    ranges: tuple[float, ...]
    noise_at_1_s: float
    offset: float
    gain_sigma: float
    tau_s: float
    default_nm: float
    dark_limit: float
    serial: str = "000000001"
    calibrated: str = "01-Jan-2025"

    @property
    def limits_nm(self) -> tuple[float, float]:
        """Shortest and longest wavelength of the sensor in nm."""
        return self.response[0][0], self.response[-1][0]

    def response_at(self, wavelength_nm: float) -> float:
        """Return the nominal response at a wavelength, in A/W, V/W or V/J."""
        nm, values = zip(*self.response, strict=True)
        return float(np.interp(wavelength_nm, nm, values))


_PD_RANGES = (50e-9, 500e-9, 5e-6, 50e-6, 500e-6, 5e-3)
_INGAAS = ((800.0, 0.18), (900.0, 0.45), (1000.0, 0.72), (1310.0, 0.95), (1550.0, 1.03), (1620.0, 0.95), (1700.0, 0.35))

S154C = SensorProfile(
    "S154C",
    SensorKind.PHOTODIODE,
    2,
    SensorFlag.POWER | SensorFlag.WAVELENGTH_SETTABLE,
    _INGAAS,
    _PD_RANGES,
    noise_at_1_s=3e-12,
    offset=100e-12,
    gain_sigma=0.015,
    tau_s=0.0,
    default_nm=1550.0,
    dark_limit=1e-9,
)
"""InGaAs, 800 to 1700 nm, 100 pW to about 3 mW."""
PHOTODIODE_ADAPTER = SensorProfile(
    "Adapter",
    SensorKind.PHOTODIODE,
    1,
    SensorFlag.POWER | SensorFlag.RESPONSE_SETTABLE,
    ((200.0, 1.0), (2000.0, 1.0)),
    _PD_RANGES,
    noise_at_1_s=3e-12,
    offset=100e-12,
    gain_sigma=0.0,
    tau_s=0.0,
    default_nm=1550.0,
    dark_limit=1e-9,
)
"""A photodiode on the adapter, whose response the user sets."""
S405C = SensorProfile(
    "S405C",
    SensorKind.THERMOPILE,
    0x12,
    SensorFlag.POWER | SensorFlag.WAVELENGTH_SETTABLE | SensorFlag.TAU_SETTABLE | SensorFlag.TEMPERATURE,
    ((190.0, 0.098), (1064.0, 0.100), (1550.0, 0.100), (20_000.0, 0.097)),
    (1.6e-3, 16e-3, 160e-3, 1.0),
    noise_at_1_s=1e-6,
    offset=20e-6,
    gain_sigma=0.015,
    tau_s=1.1,
    default_nm=1064.0,
    dark_limit=100e-6,
)
"""Thermal, 190 nm to 20 µm, 100 µW to 5 W."""
ES111C = SensorProfile(
    "ES111C",
    SensorKind.PYRO,
    2,
    SensorFlag.ENERGY | SensorFlag.WAVELENGTH_SETTABLE,
    ((185.0, 95.0), (1064.0, 100.0), (25_000.0, 97.0)),
    (150e-3, 1.5, 15.0),
    noise_at_1_s=2e-8,
    offset=1e-7,
    gain_sigma=0.015,
    tau_s=0.0,
    default_nm=1064.0,
    dark_limit=1e-6,
)
"""Pyroelectric, 10 µJ to 150 mJ per pulse."""
SENSORS = {profile.name: profile for profile in (S154C, PHOTODIODE_ADAPTER, S405C, ES111C)}


@dataclass
class SensorSettings:
    """Settings of the console that affect the reading; the defaults are those after ``*RST``.

    Attributes:
        wavelength_nm: Wavelength whose response is used.
        response: Response of a photodiode on the adapter in A/W.
        averages: Number of samples per reading.
        automatic: Whether automatic ranging is on.
        low_bandwidth: Whether the bandwidth is 15 Hz instead of up to 100 kHz.
        accelerated: Whether the console predicts the final value of a thermopile.
        tau_s: Time constant for this prediction.
        loss_db: Attenuation before the sensor.
    """

    wavelength_nm: float
    response: float = 1.0
    averages: int = 1
    range_index: int = 0
    automatic: bool = True
    low_bandwidth: bool = False
    accelerated: bool = False
    tau_s: float = 1.0
    loss_db: float = 0.0
    beam_mm: float = 9.5


@dataclass(frozen=True)
class SensorSample:
    """One reading in A or V after zero correction; ``None`` above the range."""

    native: float | None
    repetition_hz: float


class Pm100Sensor:
    """A power sensor connected to the input amplifier of the meter console."""

    def __init__(
        self, profile: SensorProfile, light: Callable[[], Light], rng: np.random.Generator, now_s: Callable[[], float]
    ) -> None:
        self.profile = profile
        self._light = light
        self._rng = rng
        self._now_s = now_s
        self._gain = 1.0 + float(np.clip(rng.normal(0.0, profile.gain_sigma), -0.03, 0.03))
        self._offset = float(rng.normal(0.0, profile.offset))
        self._drift_phase = float(rng.uniform(0.0, 2.0 * math.pi))
        self._steps = [ratio_from_db(float(rng.normal(0.0, RANGE_STEP_SIGMA_DB))) for _ in profile.ranges]
        self._zero = 0.0
        self._last_light = Light(0.0)
        self._signal = self._target_signal()
        self._target = self._signal
        self._updated_s = now_s()
        self.settings = SensorSettings(profile.default_nm)
        self.reset()

    def reset(self) -> None:
        """Reset the settings. The stored zero stays valid."""
        top = len(self.profile.ranges) - 1
        self.settings = SensorSettings(
            self.profile.default_nm, range_index=top, automatic=self.profile.kind is not SensorKind.PYRO
        )

    # -- settings

    @property
    def response(self) -> float:
        """Response for converting signals to power, in A/W, V/W or V/J."""
        if SensorFlag.RESPONSE_SETTABLE in self.profile.flags:
            return self.settings.response
        return self.profile.response_at(self.settings.wavelength_nm)

    def full_scale(self, index: int | None = None) -> float:
        """Return the largest power or energy of an amplifier range; by default of the present range."""
        return self.profile.ranges[self.settings.range_index if index is None else index] / self.response

    def select_range(self, native: float) -> None:
        """Select the smallest amplifier range for a signal in A or V, without automatic ranging."""
        sufficient_ranges = [index for index, scale in enumerate(self.profile.ranges) if native <= scale * (1 + 1e-9)]
        self.settings.range_index = sufficient_ranges[0] if sufficient_ranges else len(self.profile.ranges) - 1
        self.settings.automatic = False

    # -- signal

    def _target_signal(self) -> float:
        light = self._light()
        if not math.isfinite(light.power_w):
            raise ValueError(f"the light at the sensor has no valid power: {light.power_w} W")
        self._last_light = light
        amount = light.power_w
        if self.profile.kind is SensorKind.PYRO:
            # A pyroelectric sensor detects changes only: light without pulses has no energy.
            amount = light.power_w / light.repetition_hz if light.repetition_hz > 0 else 0.0
        return amount * self.profile.response_at(light.wavelength_nm) * self._gain

    def _effective_tau_s(self) -> float:
        tau_s = self.profile.tau_s
        if self.profile.kind is SensorKind.PHOTODIODE and self.settings.low_bandwidth:
            tau_s = 1.0 / (2.0 * math.pi * LOW_BANDWIDTH_HZ)
        if self.profile.kind is SensorKind.THERMOPILE and self.settings.accelerated:
            # Own choice: the prediction is as good as its assumed time constant, and at best ten times faster.
            tau_s *= abs(self.settings.tau_s / self.profile.tau_s - 1.0) + 0.1
        return tau_s

    def update(self) -> float:
        """Advance the signal to now and return it."""
        now_s = self._now_s()
        tau_s = self._effective_tau_s()
        remaining = math.exp(-(now_s - self._updated_s) / tau_s) if tau_s > 0 else 0.0
        self._signal = self._target + (self._signal - self._target) * remaining
        # The present light applies from now on; before it, the light of the last update applied.
        self._updated_s, self._target = now_s, self._target_signal()
        if tau_s == 0:
            self._signal = self._target
        return self._signal

    def next_update_s(self) -> float | None:
        """Return the time of the next automatic update; ``None`` for a sensor that responds at once."""
        return self._updated_s + UPDATE_PERIOD_S if self._effective_tau_s() > 0 else None

    # -- readings

    @property
    def averaging_s(self) -> float:
        """Duration of one reading in seconds."""
        return self.settings.averages * SAMPLE_S

    def _sigma(self, averaging_s: float) -> float:
        # A low-pass of bandwidth B averages over about 1/(2B).
        filter_s = 0.5 / LOW_BANDWIDTH_HZ if self.settings.low_bandwidth else 0.0
        return self.profile.noise_at_1_s * self._nominal / math.sqrt(max(averaging_s, filter_s))

    @property
    def _nominal(self) -> float:
        return self.profile.response_at(self.profile.default_nm)

    def _present_offset(self) -> float:
        angle = 2.0 * math.pi * self._now_s() / DRIFT_PERIOD_S + self._drift_phase
        return (self._offset + 0.1 * self.profile.offset * math.sin(angle)) * self._nominal

    def settle_range(self) -> bool:
        """Apply automatic ranging to the latest signal. Return whether the range has changed."""
        settings, before = self.settings, self.settings.range_index
        if not settings.automatic:
            return False
        # A margin of four sigma, as in photodiode_head.
        displayed = abs(self._signal) + 4.0 * self._sigma(SAMPLE_S)
        ranges = self.profile.ranges
        if not AUTORANGE_LOWER * ranges[before] <= displayed <= ranges[before]:
            sufficient_ranges = [index for index, scale in enumerate(ranges) if displayed <= scale]
            settings.range_index = sufficient_ranges[0] if sufficient_ranges else len(ranges) - 1
        return settings.range_index != before

    def sample(self, start_signal: float) -> SensorSample:
        """Return a reading: the mean of the signals at start and end, with noise."""
        mean = 0.5 * (start_signal + self.update())
        self.settle_range()
        scale = self.profile.ranges[self.settings.range_index]
        displayed = mean * self._steps[self.settings.range_index] + self._present_offset() - self._zero
        displayed += float(self._rng.normal(0.0, self._sigma(self.averaging_s)))
        repetition_hz = self._last_light.repetition_hz
        if displayed > scale:
            return SensorSample(None, repetition_hz)
        count = scale / COUNTS
        return SensorSample(round(displayed / count) * count, repetition_hz)

    # -- zeroing

    @property
    def zero(self) -> float:
        """Offset that is subtracted from readings, in A or V."""
        return self._zero

    def is_dark(self) -> bool:
        """Return whether the light is weak enough for zeroing."""
        return self._light().power_w <= self.profile.dark_limit

    def store_zero(self) -> None:
        """Store the present offset as the sensor's zero."""
        self._zero = self._present_offset() + float(self._rng.normal(0.0, self._sigma(ZEROING_S)))
