"""Sweeps that an instrument runs by itself, without a command from the host at each point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from lumion_hw.acquisition.columns import Reader, State, Value
from lumion_hw.acquisition.lambda_scan import lambda_scan
from lumion_hw.acquisition.scan_moves import Moves
from lumion_hw.acquisition.swept_points import SweptPoint
from lumion_hw.bench.bench import Bench
from lumion_hw.bench.mesh_access import MeshAccess
from lumion_hw.errors import ConfigError

_MAX_POINTS_PER_SWEEP = 1000  # so many points are lost if the sweep is interrupted


class InstrumentSweep(Protocol):
    """A sweep that an instrument runs by itself.

    Attributes:
        description: Text that names the instruments.
        points_in_pass: Number of points in one pass of the swept axes. Each call of :meth:`run` may contain points of
            one pass only, in the order of the scan.
        max_points_per_sweep: Largest number of points in one call of :meth:`run`.
    """

    description: str
    points_in_pass: int
    max_points_per_sweep: int

    def run(self, positions: Sequence[tuple[int, ...]]) -> list[SweptPoint] | str:
        """Run the given points; return the results, or the reason why the instrument cannot run them."""


def own_sweep(bench: Bench, moves: Moves, reader: Reader) -> InstrumentSweep | str:
    """Return a sweep that an instrument runs by itself, or the reason why the host must set the points.

    The reason is empty if the scan contains nothing that an instrument can sweep.
    """
    return _board_sweep(bench, moves, reader) or lambda_scan(bench, moves, reader)


def _board_sweep(bench: Bench, moves: Moves, reader: Reader) -> InstrumentSweep | None:
    section = bench.model.mesh
    if section is None:
        return None
    try:
        mesh = bench.mesh
    except ConfigError:  # not open, or a mesh that is set by states
        return None
    controller = section.controller
    names = {f"{controller}.monitor.{index}": index for index in range(len(mesh.monitor_ports))}
    if mesh.meters or not mesh.controller.info.on_board_sweep or not reader.columns:
        return None
    if any(column.name not in names for column in reader.columns):
        return None
    all_heaters = f"{controller}.heaters_ma"
    n_axes = 0
    while n_axes < len(moves.plan.axes) and all(
        setting.part_of == all_heaters and setting.element is not None for setting in moves.of_axis(-1 - n_axes)
    ):
        n_axes += 1
    if not n_axes:
        return None
    return _BoardSweep(mesh, moves, all_heaters, n_axes, [names[column.name] for column in reader.columns])


class _BoardSweep:
    """Sweep that the mesh controller runs by itself: heater currents, with monitor readings."""

    description = "the mesh controller"

    def __init__(self, mesh: MeshAccess, moves: Moves, all_heaters: str, n_axes: int, monitors: Sequence[int]) -> None:
        self._mesh, self._moves, self._all_heaters, self._monitors = mesh, moves, all_heaters, list(monitors)
        # Groups stay within one pass of these axes, because other settings change between passes.
        self.points_in_pass = math.prod(moves.plan.shape[len(moves.plan.axes) - n_axes :])
        self.max_points_per_sweep = _MAX_POINTS_PER_SWEEP

    def run(self, positions: Sequence[tuple[int, ...]]) -> list[SweptPoint] | str:
        """Measure the points at these positions in one sweep of the board."""
        self._moves.move_to(positions[0])
        tables = [self._moves.arrays(position)[self._all_heaters] for position in positions]
        read_ma = self._mesh.sweep(np.array(tables))[:, self._monitors]
        self._moves.arrived(positions[-1], {self._all_heaters: tables[-1]})
        return [
            SweptPoint(
                self._moves.numbers(position),
                [Value(State.OVER_RANGE) if np.isnan(value) else Value(State.OK, value) for value in row],
            )
            for position, row in zip(positions, read_ma.tolist(), strict=True)
        ]
