"""Attenuators, switches and amplifiers in the fibres of an emulated bench.

An amplifier with noise figure F and gain G adds the noise density F·hν·G (hν: photon energy) in both polarizations
together. One amplifier gives an OSNR in 0.1 nm of 58 dB + input power in dBm - noise figure in dB (P. Becker, N.
Olsson, J. Simpson, Erbium-Doped Fiber Amplifiers, 1999). The noise is flat over the C band (assumed).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.interfaces.wiring import InlineDevice
from lumion_hw.quantities import OSNR_OF_0_DBM_DB

OSNR_BAND_HZ = 12.5e9
"""Reference bandwidth of OSNR in Hz: 0.1 nm at 1550 nm."""
AMPLIFIED_HZ = (191.5e12, 196.2e12)
"""Frequency range of amplifiers in Hz: the C band."""
AMPLIFIED_BAND_HZ = AMPLIFIED_HZ[1] - AMPLIFIED_HZ[0]
_PHOTON_W_PER_HZ = 1e-3 * 10.0 ** (-OSNR_OF_0_DBM_DB / 10.0) / OSNR_BAND_HZ


@dataclass(frozen=True)
class Beam:
    """Light in one fibre.

    Attributes:
        powers_w: Power from each of n sources, shape ``(n,)``.
        noise_w_per_hz: Density of the amplifier noise in the C band, both polarizations together.
        gain: Power relative to the beginning of the fibre.
    """

    powers_w: NDArray[np.float64]
    noise_w_per_hz: float = 0.0
    gain: float = 1.0

    @property
    def noise_w(self) -> float:
        """Amplifier noise power in watts."""
        return self.noise_w_per_hz * AMPLIFIED_BAND_HZ

    @property
    def total_w(self) -> float:
        """Total power of light and noise in watts."""
        return float(self.powers_w.sum()) + self.noise_w

    def times(self, gain: float) -> Beam:
        """Return the beam after a power gain or loss without noise."""
        if gain == 1.0:
            return self
        return Beam(self.powers_w * gain, self.noise_w_per_hz * gain, self.gain * gain)


@dataclass(frozen=True)
class Amplification:
    """Gain and noise figure of an amplifier.

    Attributes:
        gain: Output power per input power, without noise; 0 for an amplifier that is off.
    """

    gain: float
    noise_figure_db: float

    @property
    def noise_w_per_hz(self) -> float:
        """Noise density at the amplifier's output in W/Hz, both polarizations together."""
        return float(10.0 ** (self.noise_figure_db / 10.0) * self.gain * _PHOTON_W_PER_HZ)


class InlineDevices:
    """Attenuators, switches and amplifiers in the fibres. A device that was not added passes all light."""

    def __init__(self) -> None:
        self._attenuators: dict[tuple[str, int], Callable[[], float]] = {}
        self._switches: dict[str, Callable[[], Mapping[int, int]]] = {}
        self._switch_losses: dict[str, float] = {}
        self._amplifiers: dict[str, Callable[[float], Amplification]] = {}
        self._recorded: dict[tuple[str, int], tuple[float, float]] | None = None

    def add_attenuator(self, device: str, channel: int, transmission: Callable[[], float]) -> None:
        """Add an attenuator channel; ``transmission`` returns the transmitted fraction."""
        self._attenuators[device, channel] = transmission

    def add_switch(self, device: str, connections: Callable[[], Mapping[int, int]], loss_db: float) -> None:
        """Add a switch; ``connections`` returns the connected ports, with both directions of each connection."""
        self._switches[device] = connections
        self._switch_losses[device] = 10.0 ** (-loss_db / 10.0)

    def add_amplifier(self, device: str, amplification: Callable[[float], Amplification]) -> None:
        """Add an amplifier; ``amplification`` is called with the total input power in watts."""
        self._amplifiers[device] = amplification

    def has_amplifier(self, devices: Iterable[InlineDevice]) -> bool:
        """Return whether one of the devices is an amplifier."""
        return any(inline.device in self._amplifiers for inline in devices)

    @contextlib.contextmanager
    def record_powers(self) -> Iterator[Mapping[tuple[str, int], tuple[float, float]]]:
        """Record the power in W before and after every passed device while the ``with`` block runs."""
        recorded: dict[tuple[str, int], tuple[float, float]] = {}
        self._recorded = recorded
        try:
            yield recorded
        finally:
            self._recorded = None

    def transmit(self, beam: Beam, devices: Iterable[InlineDevice]) -> Beam:
        """Return the beam behind the given devices, in order."""
        for inline in devices:
            before_w = beam.total_w
            beam = self._transmit_one(beam, inline, before_w)
            if self._recorded is not None:
                self._recorded[inline.device, inline.channel] = before_w, beam.total_w
        return beam

    def _transmit_one(self, beam: Beam, inline: InlineDevice, before_w: float) -> Beam:
        if inline.device in self._switches:
            is_connected = self._switches[inline.device]().get(inline.channel) == inline.exit_port
            return beam.times(self._switch_losses[inline.device] if is_connected else 0.0)
        if inline.device in self._amplifiers:
            amplification = self._amplifiers[inline.device](before_w)
            amplified = beam.times(amplification.gain)
            return replace(amplified, noise_w_per_hz=amplified.noise_w_per_hz + amplification.noise_w_per_hz)
        transmission = self._attenuators.get((inline.device, inline.channel))
        return beam if transmission is None else beam.times(transmission())
