"""The monitor channels of the emulated board: photocurrents in, codes out (section 6.1)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import monitor_code
from lumion_hw.emulator.mesh.lumion.profile import BoardProfile


class BoardMonitors:
    """Converters of one board, all channels scanned together.

    A scan looks at the light when it starts.

    Args:
        profile: Resolution, full scale and scan time.
        sense_ma: Called with a number of scans and the instant of the first; returns mean photocurrents in mA, shape
            ``(n_adc,)``.
    """

    def __init__(self, profile: BoardProfile, sense_ma: Callable[[int, float], NDArray[np.float64]]) -> None:
        self._profile = profile
        self._sense_ma = sense_ma

    def scan(self, n_avg: int, at_s: float) -> NDArray[np.uint16]:
        """Return the codes of all channels, averaged over ``n_avg`` scans; shape ``(n_adc,)``, 65535 is saturated."""
        profile = self._profile
        current_na = np.asarray(self._sense_ma(n_avg, at_s), dtype=np.float64) * 1e6
        top = (1 << profile.adc_bits) - 1
        native = np.clip(np.rint(current_na / profile.adc_full_scale * top), 0, top).astype(np.uint16)
        return monitor_code(native, profile.adc_bits)

    def scan_s(self, n_avg: int) -> float:
        """Return the time ``n_avg`` scans take, s."""
        return n_avg * self._profile.adc_scan_us * 1e-6
