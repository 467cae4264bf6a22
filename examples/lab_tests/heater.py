"""A script of a lab: measure the Pπ of a heater of examples/mzi_bench.yaml (docs/cookbook/test.md)."""

import numpy as np

from lumion_hw import Bench
from lumion_hw.acquisition import fit_fringe, scan

DARK_W = 1e-9


def p_pi_mw(bench, heater, channel):
    """Return the heating power in mW for a phase of π, from the light at a channel of the meter.

    Raises:
        RuntimeError: No light arrives at the channel.
        LumionError: An instrument failed, or the heater does not change the light.
    """
    bench.switches["switch0"].connect({1: 5})  # laser to port 0
    sweep = {"laser0.enabled": [True], f"driver0.heater_ma.{heater}": np.sqrt(np.linspace(0.0, 2.2**2, 33))}
    data = scan(bench, sweep, [f"meter0.power.{channel}"])
    if data.value[f"meter0.power.{channel}"].max() < DARK_W:
        raise RuntimeError(f"channel {channel} of the meter is dark; check laser, switch and fibres")
    return fit_fringe(data, f"meter0.power.{channel}", f"driver0.heater_ma.{heater}").p_pi_mw


if __name__ == "__main__":
    with Bench.open("mzi_bench.yaml") as bench:
        print(f"Pπ of heater 0: {p_pi_mw(bench, 0, 3):.3f} mW")
