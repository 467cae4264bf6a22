"""Physics that neither the emulated chip nor the calibration knows, planted in a bench behind their backs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.assembly import EmulatedBench

Real = NDArray[np.float64]
Plant = Callable[[EmulatedBench], None]


def backwards() -> Plant:
    """The photodiode at the last port reads less the more light there is."""

    def read(current: Real, ports: NDArray[np.int64]) -> Real:
        return np.asarray(np.where(ports == ports.max(), np.maximum(0.05 - current, 0.0), current))

    return _read_as(read)


def gain_by_another(share_per_ma: float) -> Plant:
    """Responsivity of each photodiode rises with the light at the one half the chip away: no row of the table."""

    def read(current: Real, ports: NDArray[np.int64]) -> Real:
        return np.asarray(current * (1.0 + share_per_ma * np.roll(current, len(current) // 2)))

    return _read_as(read)


def fibres_exchanged(one: int, other: int) -> Plant:
    """The fibres of two ports' monitors are exchanged."""

    def read(current: Real, ports: NDArray[np.int64]) -> Real:
        where = {int(port): index for index, port in enumerate(ports)}
        swapped = current.copy()
        if one in where and other in where:
            swapped[[where[one], where[other]]] = current[[where[other], where[one]]]
        return swapped

    return _read_as(read)


def _read_as(read: Callable[[Real, NDArray[np.int64]], Real]) -> Plant:
    def plant(bench: EmulatedBench) -> None:
        world = bench.world
        monitor_ma = world.monitor_ma

        def planted(ports: NDArray[np.int64], *rest: float | None) -> Real:
            return np.maximum(read(monitor_ma(ports, *rest), ports), 0.0)  # type: ignore[arg-type]

        world.monitor_ma = planted  # type: ignore[method-assign]

    return plant


def warmed_sibling(share: float) -> Plant:
    """Each heater warms the other arm of its PUC by a share of its own phase."""

    def plant(bench: EmulatedBench) -> None:
        truth = bench.world.truth
        heaters = np.arange(len(truth.p_pi_mw))
        truth.crosstalk.arm_rad_per_mw[heaters ^ 1, heaters] += share * np.pi / truth.p_pi_mw

    return plant


def one_sided_crosstalk(share: float) -> Plant:
    """Crosstalk to the right is stronger by a share, and to the left weaker."""

    def plant(bench: EmulatedBench) -> None:
        truth = bench.world.truth
        x = np.repeat(bench.world.mesh.corners.reshape(-1, 4, 2).mean(axis=1)[:, 0], 2)
        truth.crosstalk.arm_rad_per_mw[:] *= 1.0 + share * np.sign(x[:, None] - x[None, :])

    return plant


def sagging_supply(share: float, half_load_ma: float) -> Plant:
    """All currents fall by a share at half load, with the cube of the total current."""

    def plant(bench: EmulatedBench) -> None:
        heaters = bench.world.truth.variations.heaters
        carried_ma = heaters.carried_ma

        def sagging(currents_ma: Real) -> Real:
            return carried_ma(currents_ma * (1.0 - share * (currents_ma.sum() / half_load_ma) ** 3))

        object.__setattr__(heaters, "carried_ma", sagging)

    return plant


def range_step(share: float, above_ma: float = 0.02) -> Plant:
    """The amplifier of each monitor has another gain above a current."""

    def read(current: Real, ports: NDArray[np.int64]) -> Real:
        return np.asarray(np.where(current > above_ma, current * (1.0 + share), current))

    return _read_as(read)
