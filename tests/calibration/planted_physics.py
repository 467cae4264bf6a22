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
