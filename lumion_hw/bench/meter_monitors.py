"""Power meters on the taps of a mesh's outputs, in the place of photodiodes on the chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError, OutOfRangeError
from lumion_hw.interfaces import PowerMeter, PowerReading, RangeState
from lumion_hw.interfaces.wiring import OutputPath

_RESPONSIVITY_A_PER_W = 1.0


@dataclass(frozen=True)
class _Tap:
    """One channel of a meter, and the power at the mesh facet per power it reads."""

    meter: str
    channel: int
    facet_mw_per_w: float
    port: int


class MeterMonitors:
    """What the meters see, referred to the fibre at the mesh facet and told as photocurrents of 1 A/W: 1 mA is 1 mW.

    Args:
        meters: Meters by device name, as far as they are open.
        outputs: The outputs that have a tap.
        access_loss_db: Typical loss between mesh and fibre.

    Attributes:
        ports: Port of each monitor, in the order of the outputs.
        responsivity_a_per_w: Nominal photocurrent per power on the chip.
    """

    def __init__(self, meters: Mapping[str, PowerMeter], outputs: Sequence[OutputPath], access_loss_db: float) -> None:
        taps = [
            _Tap(out.meter, out.meter_channel, 1e3 * 10.0 ** (out.loss_db / 10.0) / out.tap_fraction, out.port)
            for out in outputs
            if out.meter is not None and out.meter_channel is not None
        ]
        self._taps = tuple(taps)
        self._meters = {tap.meter: meters.get(tap.meter) for tap in taps}
        self.ports = tuple(tap.port for tap in taps)
        self.responsivity_a_per_w = _RESPONSIVITY_A_PER_W * 10.0 ** (-access_loss_db / 10.0)

    def photocurrent_ma(self, n_avg: int = 1) -> NDArray[np.float64]:
        """Read every meter ``n_avg`` times and return the means, shape ``(n_outputs,)``; 0 where it is too dark.

        Raises:
            OutOfRangeError: A meter is overloaded.
            ConfigError: A meter was not opened.
        """
        scans = [self._scan_ma() for _ in range(n_avg)]
        mean: NDArray[np.float64] = np.mean(scans, axis=0)
        return mean

    def _scan_ma(self) -> list[float]:
        readings: dict[tuple[str, int], PowerReading] = {}
        for name, meter in self._meters.items():
            if meter is None:
                hint = "Leave out 'only', or name it: this mesh is read with it."
                raise ConfigError("the power meter was not opened", device=name, hint=hint)
            readings |= {(name, reading.channel): reading for reading in meter.read_all()}
        return [
            _RESPONSIVITY_A_PER_W * tap.facet_mw_per_w * _power_w(readings[tap.meter, tap.channel], tap.meter)
            for tap in self._taps
        ]


def _power_w(reading: PowerReading, meter: str) -> float:
    if reading.state is RangeState.UNDER:
        return 0.0
    try:
        return reading.power_w
    except OutOfRangeError as error:
        error.device = meter
        raise
