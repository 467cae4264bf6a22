"""Power meters on the taps of a mesh's outputs, in the place of photodiodes on the chip."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError, OutOfRangeError
from lumion_hw.interfaces import PowerMeter, PowerReading, RangeState
from lumion_hw.interfaces.wiring import BLOCKED_DB, OutputPath

_RESPONSIVITY_A_PER_W = 1.0


class MeterMonitors:
    """What the meters see, referred to the fibre at the mesh facet and told as photocurrents of 1 A/W: 1 mA is 1 mW.

    Args:
        meters: Meters by device name, as far as they are open.
        outputs: The outputs; those with a tap are monitors.
        access_loss_db: Typical loss between mesh and fibre.
        as_set: Counts in what the devices in the fibres of outputs take or give at the moment.

    Attributes:
        ports: Port of each monitor, in the order of the outputs.
        responsivity_a_per_w: Nominal photocurrent per power on the chip.
    """

    def __init__(
        self,
        meters: Mapping[str, PowerMeter],
        outputs: Sequence[OutputPath],
        access_loss_db: float,
        as_set: Callable[[Sequence[OutputPath]], Sequence[OutputPath]],
    ) -> None:
        self._outputs = tuple(out for out in outputs if out.meter is not None and out.meter_channel is not None)
        self._in_light = any(out.through for out in self._outputs)
        self._as_set = as_set
        self._meters = {str(out.meter): meters.get(str(out.meter)) for out in self._outputs}
        self.ports = tuple(out.port for out in self._outputs)
        self.responsivity_a_per_w = _RESPONSIVITY_A_PER_W * 10.0 ** (-access_loss_db / 10.0)

    def photocurrent_ma(self, n_avg: int = 1) -> NDArray[np.float64]:
        """Read every meter ``n_avg`` times and return the means, shape ``(n_outputs,)``; 0 where it is too dark.

        Raises:
            OutOfRangeError: A meter is overloaded, or a device in a fibre lets no light through to it.
            ConfigError: A meter was not opened.
            LumionError: What a device in a fibre raises that is asked how it is set.
        """
        outputs = self._as_set(self._outputs) if self._in_light else self._outputs
        facet_ma_per_w = np.array([_facet_ma_per_w(out) for out in outputs])
        mean_w = np.mean([self._scan_w() for _ in range(n_avg)], axis=0)
        return np.asarray(facet_ma_per_w * mean_w, dtype=np.float64)

    def _scan_w(self) -> list[float]:
        """Return what the meters read, in watts, in the order of the outputs."""
        readings: dict[tuple[str | None, int | None], PowerReading] = {}
        for name, meter in self._meters.items():
            if meter is None:
                hint = "Leave out 'only', or name it: this mesh is read with it."
                raise ConfigError("the power meter was not opened", device=name, hint=hint)
            readings |= {(name, reading.channel): reading for reading in meter.read_all()}
        return [_power_w(readings[out.meter, out.meter_channel], str(out.meter)) for out in self._outputs]


def _facet_ma_per_w(out: OutputPath) -> float:
    """Return the photocurrent that stands for the light at the facet, per power at the meter."""
    for part, loss_db in zip(out.through, out.inline_losses_db, strict=False):
        if loss_db >= 0.5 * BLOCKED_DB:
            raise OutOfRangeError(
                f"the light of port {out.port} does not reach {out.meter}, by which it is read",
                device=part.device,
                hint="Open its shutter, switch it on, or join the ports that the bench file names.",
            )
    return float(_RESPONSIVITY_A_PER_W * 1e3 * 10.0 ** (out.loss_db / 10.0) / out.tap_fraction)


def _power_w(reading: PowerReading, meter: str) -> float:
    if reading.state is RangeState.UNDER:
        return 0.0
    try:
        return reading.power_w
    except OutOfRangeError as error:
        error.device = meter
        raise
