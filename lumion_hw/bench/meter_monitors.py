"""Power meters at the mesh outputs as monitors, if the chip has no photodiodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError, OutOfRangeError
from lumion_hw.interfaces import PowerMeter, PowerReading, RangeState
from lumion_hw.interfaces.wiring import BLOCKED_DB, OutputPath

_RESPONSIVITY_A_PER_W = 1.0


class MeterMonitors:
    """Monitors of a mesh that are power meters at its outputs.

    Readings are the light at the chip facet: losses between facet and meter are compensated. They are returned as
    photocurrents with 1 A/W, so that 1 mA is 1 mW.

    Args:
        meters: The open meters by device name.
        outputs: The outputs of the mesh; an output with a tap serves as a monitor.
        access_loss_db: Typical loss between mesh and fibre, in dB.
        add_losses: Returns the given outputs with the present losses of the devices in their fibres.

    Attributes:
        ports: Port of each monitor, in the order of the outputs.
        responsivity_a_per_w: Nominal photocurrent per optical power on the chip, in A/W.
        moved_to: Port that a meter moved by hand is connected to; ``None`` if unknown.
    """

    def __init__(
        self,
        meters: Mapping[str, PowerMeter],
        outputs: Sequence[OutputPath],
        access_loss_db: float,
        add_losses: Callable[[Sequence[OutputPath]], Sequence[OutputPath]],
    ) -> None:
        self._outputs = tuple(
            output for output in outputs if output.meter is not None and output.meter_channel is not None
        )
        self._has_devices_in_fibres = any(output.through for output in self._outputs)
        self._add_losses = add_losses
        self._meters = {str(output.meter): meters.get(str(output.meter)) for output in self._outputs}
        self.ports = tuple(output.port for output in self._outputs)
        self.moved_to: int | None = None
        self.responsivity_a_per_w = _RESPONSIVITY_A_PER_W * 10.0 ** (-access_loss_db / 10.0)

    def photocurrent_ma(self, n_avg: int = 1) -> NDArray[np.float64]:
        """Read every meter ``n_avg`` times; return mean photocurrents in mA, shape ``(n_outputs,)``, 0 if too dark.

        NaN for a port whose meter is moved by hand and is connected elsewhere.

        Raises:
            OutOfRangeError: A meter is overloaded, or a device in its fibre blocks the light.
            ConfigError: A meter was not opened.
            LumionError: A device in a fibre could not be read.
        """
        outputs = self._add_losses(self._outputs) if self._has_devices_in_fibres else self._outputs
        facet_ma_per_w = np.array([_facet_ma_per_w(output) for output in outputs])
        mean_w = np.mean([self._scan_w() for _ in range(n_avg)], axis=0)
        return np.asarray(facet_ma_per_w * mean_w, dtype=np.float64)

    def _scan_w(self) -> list[float]:
        readings: dict[tuple[str | None, int | None], PowerReading] = {}
        for name, meter in self._meters.items():
            if meter is None:
                hint = "Add it to 'only', or leave out 'only'."
                raise ConfigError(
                    "this power meter is a monitor of the mesh, but was not opened", device=name, hint=hint
                )
            readings |= {(name, reading.channel): reading for reading in meter.read_all()}
        return [
            math.nan
            if output.by_hand and output.port != self.moved_to
            else _power_w(readings[output.meter, output.meter_channel], str(output.meter))
            for output in self._outputs
        ]


def _facet_ma_per_w(output: OutputPath) -> float:
    """Return the photocurrent at the facet over the power at the meter, in mA/W."""
    for part, loss_db in zip(output.through, output.inline_losses_db, strict=False):
        if loss_db >= 0.5 * BLOCKED_DB:
            raise OutOfRangeError(
                f"this device blocks the light from port {output.port} to its meter {output.meter}",
                device=part.device,
                hint="Open its shutter, switch it on, or connect the ports given in the bench file.",
            )
    return float(_RESPONSIVITY_A_PER_W * 1e3 * 10.0 ** (output.loss_db / 10.0) / output.tap_fraction)


def _power_w(reading: PowerReading, meter: str) -> float:
    if reading.state is RangeState.UNDER:
        return 0.0
    try:
        return reading.power_w
    except OutOfRangeError as error:
        error.device = meter
        raise
