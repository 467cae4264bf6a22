"""Physics that the calibration is not told of, planted in an emulated bench behind its back: one function per effect.

What the emulator's own chip does is its own affair; these are the effects of the first trial from outside, and some
that no row of the calibration's table knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.assembly import EmulatedBench
from lumion_hw.mesh.crosstalk import ThermalCrosstalk

Real = NDArray[np.float64]
Plant = Callable[[EmulatedBench], None]


def arm_losses(spread_db: float, seed: int = 0) -> Plant:
    """The two arms of every PUC lose differently: normal, with this spread."""

    def plant(bench: EmulatedBench) -> None:
        world = bench.world
        cells, rng = world.cells, np.random.default_rng(seed)
        difference_db = spread_db * rng.standard_normal(world.mesh.n_pucs)
        world.cells = lambda hz=None: replace(cells(hz), arm_difference_db=difference_db)  # type: ignore[method-assign]

    return plant


def crosstalk_scatter(spread: float, seed: int = 0) -> Plant:
    """Crosstalk of every heater on every arm and joint is off the curve by a factor of its own, lognormal."""

    def plant(bench: EmulatedBench) -> None:
        truth, rng = bench.world.truth, np.random.default_rng(seed)
        arm, joint = truth.crosstalk.arm_rad_per_mw, truth.crosstalk.joint_rad_per_mw
        truth.crosstalk = ThermalCrosstalk(
            arm * np.exp(spread * rng.standard_normal(arm.shape)),
            joint * np.exp(spread * rng.standard_normal(joint.shape)),
        )
        bench.world.disturb()

    return plant


def compression(per_ma: float) -> Plant:
    """Photodiodes read less than in proportion: by this share of the reading per mA of it."""
    return _read_as(lambda ma, ports: ma * (1.0 - per_ma * ma))


def offset(ma: float, seed: int = 0) -> Plant:
    """Photodiodes read something of their own in light, which the dark does not show: half normal, with this spread."""

    def read(current: Real, ports: NDArray[np.int64]) -> Real:
        own = ma * np.abs(np.random.default_rng(seed).standard_normal(64)[ports])
        return np.asarray(np.where(current.sum() > 1e-3, current + own, current))

    return _read_as(read)


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
