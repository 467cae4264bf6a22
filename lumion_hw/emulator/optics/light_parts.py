"""What stands in the fibres of an emulated bench: attenuators, switches, amplifiers, and the light that passes them.

An amplifier adds F·hν·G per hertz in both polarizations together, F its noise figure and G its gain, so that one
amplifier leaves 58 dB + input power in dBm - noise figure in 0.1 nm (P. Becker, N. Olsson, J. Simpson, Erbium-Doped
Fiber Amplifiers, 1999). The spectrum of that noise is flat over the C band here (assumed).
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
"""0.1 nm at 1550 nm, in which signal to noise is told."""
AMPLIFIED_HZ = (191.5e12, 196.2e12)
"""Where amplifiers amplify, and where their noise is: the C band."""
AMPLIFIED_BAND_HZ = AMPLIFIED_HZ[1] - AMPLIFIED_HZ[0]
_PHOTON_W_PER_HZ = 1e-3 * 10.0 ** (-OSNR_OF_0_DBM_DB / 10.0) / OSNR_BAND_HZ


@dataclass(frozen=True)
class Beam:
    """Light in one fibre.

    Attributes:
        powers_w: Power of every source's light, shape ``(n,)``.
        noise_w_per_hz: Of amplifiers, both polarizations together, where they amplify.
        gain: Power of the light over what it was at the beginning of the fibre.
    """

    powers_w: NDArray[np.float64]
    noise_w_per_hz: float = 0.0
    gain: float = 1.0

    @property
    def noise_w(self) -> float:
        """Power of the noise."""
        return self.noise_w_per_hz * AMPLIFIED_BAND_HZ

    @property
    def total_w(self) -> float:
        """Power of all of it."""
        return float(self.powers_w.sum()) + self.noise_w

    def times(self, gain: float) -> Beam:
        """Return the light after a gain or loss that adds nothing."""
        if gain == 1.0:
            return self
        return Beam(self.powers_w * gain, self.noise_w_per_hz * gain, self.gain * gain)


@dataclass(frozen=True)
class Amplification:
    """What an amplifier does at some input.

    Attributes:
        gain: Output over input power, without noise; 0 for one that is off and absorbs.
        noise_figure_db: Noise figure.
    """

    gain: float
    noise_figure_db: float

    @property
    def noise_w_per_hz(self) -> float:
        """Noise at the output."""
        return float(10.0 ** (self.noise_figure_db / 10.0) * self.gain * _PHOTON_W_PER_HZ)


class LightParts:
    """The devices that light passes. A device that has not said what it does passes everything."""

    def __init__(self) -> None:
        self._attenuators: dict[tuple[str, int], Callable[[], float]] = {}
        self._switches: dict[str, Callable[[], Mapping[int, int]]] = {}
        self._switch_losses: dict[str, float] = {}
        self._amplifiers: dict[str, Callable[[float], Amplification]] = {}
        self._seen: dict[tuple[str, int], tuple[float, float]] | None = None

    def attenuates(self, device: str, channel: int, transmission: Callable[[], float]) -> None:
        """A channel of an attenuator passes this share of the power, asked each time."""
        self._attenuators[device, channel] = transmission

    def switches(self, device: str, connections: Callable[[], Mapping[int, int]], loss_db: float) -> None:
        """A switch passes light between these ports; both directions of each connection are in the mapping."""
        self._switches[device] = connections
        self._switch_losses[device] = 10.0 ** (-loss_db / 10.0)

    def amplifies(self, device: str, amplification: Callable[[float], Amplification]) -> None:
        """An amplifier does this at a total input power in watts."""
        self._amplifiers[device] = amplification

    def amplified(self, parts: Iterable[InlineDevice]) -> bool:
        """Tell whether there is an amplifier among some parts."""
        return any(part.device in self._amplifiers for part in parts)

    @contextlib.contextmanager
    def noting(self) -> Iterator[Mapping[tuple[str, int], tuple[float, float]]]:
        """Note the power before and behind every device and channel that light passes meanwhile, in watts."""
        seen: dict[tuple[str, int], tuple[float, float]] = {}
        self._seen = seen
        try:
            yield seen
        finally:
            self._seen = None

    def passed(self, beam: Beam, parts: Iterable[InlineDevice]) -> Beam:
        """Return the light behind some parts."""
        for part in parts:
            before_w = beam.total_w
            beam = self._through(beam, part, before_w)
            if self._seen is not None:
                self._seen[part.device, part.channel] = before_w, beam.total_w
        return beam

    def _through(self, beam: Beam, part: InlineDevice, before_w: float) -> Beam:
        if part.device in self._switches:
            meets = self._switches[part.device]().get(part.channel) == part.exit_port
            return beam.times(self._switch_losses[part.device] if meets else 0.0)
        if part.device in self._amplifiers:
            does = self._amplifiers[part.device](before_w)
            amplified = beam.times(does.gain)
            return replace(amplified, noise_w_per_hz=amplified.noise_w_per_hz + does.noise_w_per_hz)
        transmission = self._attenuators.get((part.device, part.channel))
        return beam if transmission is None else beam.times(transmission())
