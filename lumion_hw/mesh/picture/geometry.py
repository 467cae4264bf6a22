"""Where the parts of a picture of the mesh lie: rails, joints, ports and names as points and curves on a page."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.layout.topology import MeshTopology

_Vector = NDArray[np.float64]

Curve = tuple[_Vector, _Vector, _Vector, _Vector]
"""Control points of a cubic Bézier curve, in px."""

HALF_BODY = 0.27
"""Half the length of the body of a PUC, in PUC lengths."""

HALF_HEIGHT = 0.15
"""Half the height of the body of a PUC, in PUC lengths."""

RAIL = 0.085
"""Distance of a rail from the axis of its PUC, in PUC lengths."""

PORT_RADIUS = 9.5
"""Radius of the disc of a port, in px."""

MARGIN = 28.0
"""Free space round the page, in px."""

TITLE_HEIGHT = 62.0
"""Space for the title, in px."""

WIDTH = 1200.0
"""Width of the page in px; large meshes take more."""

_SCALE_LIMITS = (62.0, 120.0)  # px per PUC length
_PORT_APART = 0.14  # the others in PUC lengths
_PORT_REACH = 0.48
_NAME_REACH = 0.63
_NUMBER_GAP = 7.0  # px


class PageLayout:
    """Where everything lies, in px with y down.

    Args:
        mesh: The mesh.
        names: Ports with a name beside them, each with the width of that name in px.

    Attributes:
        scale: Pixels per PUC length.
        width: Width of the page.
        mesh_bottom: Lower edge of the mesh with its ports and names.
    """

    def __init__(self, mesh: MeshTopology, names: Sequence[tuple[int, float]]) -> None:
        along = mesh.end_positions[:, 1] - mesh.end_positions[:, 0]
        left = np.stack([-along[:, 1], along[:, 0]], axis=1)
        self._mesh = mesh
        self._towards_b = along
        centres = mesh.puc_centres[:, None, None, :]
        end = HALF_BODY * np.array([-1.0, 1.0])[None, :, None, None] * along[:, None, None, :]
        side = RAIL * np.array([1.0, -1.0])[None, None, :, None] * left[:, None, None, :]
        self._rail_ends: _Vector = (centres + end + side).reshape(-1, 2)
        # Ports that share a place stand beside each other.
        places, corner = np.unique(mesh.port_positions, axis=0, return_inverse=True)
        self._shared = np.bincount(corner.reshape(-1), minlength=len(places))[corner.reshape(-1)] > 1
        self._outward = [self._open_direction(port) for port in range(mesh.n_ports)]
        self.scale = self._fitting_scale(names)
        low, high = self._bounds(names, self.scale)
        self.width = max(WIDTH, float(high[0] - low[0]) + 2 * MARGIN)
        self._origin: _Vector = np.array([(self.width - low[0] - high[0]) / 2, TITLE_HEIGHT + high[1]])
        self.mesh_bottom = float(TITLE_HEIGHT + high[1] - low[1])

    def _fitting_scale(self, names: Sequence[tuple[int, float]]) -> float:
        """Return the largest scale that fits the page: the width is convex in the scale, so its chord errs small."""
        small, large = _SCALE_LIMITS
        narrow, wide = (float(np.ptp([side[0] for side in self._bounds(names, scale)])) for scale in _SCALE_LIMITS)
        fitting = small + (WIDTH - 2 * MARGIN - narrow) * (large - small) / (wide - narrow)
        return min(max(fitting, small), large)

    def _open_direction(self, port: int) -> _Vector:
        """Return the unit vector out of the mesh at a port's open corner, y up.

        Where two PUCs meet it is sideways, up or down, so that the names along one side of the rim stand in parallel.
        """
        puc_port = int(self._mesh.port_puc_port[port])
        here = np.all(self._mesh.corners == self._mesh.corners[puc_port], axis=1).reshape(-1, 2, 2)
        ends = np.argwhere(here.any(axis=2)).tolist()
        away: _Vector = -sum((self._along(puc, end) for puc, end in ends), np.zeros(2))
        if len(ends) == 2:
            level = abs(away[0]) > abs(away[1])
            away = np.array([math.copysign(1.0, away[0]), 0.0] if level else [0.0, math.copysign(1.0, away[1])])
        unit: _Vector = away / np.linalg.norm(away)
        return unit

    def _along(self, puc: int, end: int) -> _Vector:
        """Return the unit vector from an end into its PUC, y up."""
        vector: _Vector = self._towards_b[puc] * (1 - 2 * end)
        return vector

    def _at_port(self, port: int, reach: float, scale: float) -> _Vector:
        """Return the point at some distance out from where a port lies, beside the other port of its corner if any."""
        outward = self._outward[port]
        across = np.array([-outward[1], outward[0]])
        puc_port = int(self._mesh.port_puc_port[port])
        place = self._mesh.port_positions[port]
        side = math.copysign(1.0, float((self._rail_ends[puc_port] - place) @ across)) * self._shared[port]
        apart = max(_PORT_APART, (PORT_RADIUS + 1.5) / scale)
        point: _Vector = place + reach * outward + side * apart * across
        return point

    def _bounds(self, names: Sequence[tuple[int, float]], scale: float) -> tuple[_Vector, _Vector]:
        """Return the lowest and highest coordinates of all that is drawn, in px with y up from the lattice origin."""
        ports = [self._at_port(port, _PORT_REACH, scale) * scale for port in range(self._mesh.n_ports)]
        far = [
            self._at_port(port, _NAME_REACH, scale) * scale + self._outward[port] * (width + 4) for port, width in names
        ]
        points = np.array([*ports, *far, *(self._mesh.corners * scale)])
        return points.min(axis=0) - PORT_RADIUS, points.max(axis=0) + PORT_RADIUS

    def px(self, point: _Vector) -> _Vector:
        """Return the place on the page of a lattice point."""
        place: _Vector = self._origin + self.scale * point * np.array([1.0, -1.0])
        return place

    def _curve(self, *points: _Vector) -> Curve:
        start, first, second, end = (self.px(point) for point in points)
        return start, first, second, end

    def centre(self, puc: int) -> tuple[_Vector, float]:
        """Return the centre of a PUC and the angle of its axis in degrees, clockwise as SVG counts."""
        along = self._towards_b[puc]
        return self.px(self._mesh.puc_centres[puc]), -math.degrees(math.atan2(along[1], along[0]))

    def number_place(self, puc: int) -> tuple[_Vector, bool]:
        """Return where the number of a PUC stands: centred above a level PUC, begun (the flag) beside a slanted one."""
        along = self._towards_b[puc]
        aside = np.array([-along[1], along[0]])
        slanted = abs(aside[0]) > 1e-9
        if aside[0] < 0 and slanted:
            aside = -aside
        away = aside * (HALF_HEIGHT + _NUMBER_GAP / self.scale)
        return self.px(self._mesh.puc_centres[puc] + away), slanted

    def through(self, entering: int, leaving: int) -> Curve:
        """Return the curve from rail end to rail end inside a PUC."""
        start, end = self._rail_ends[entering], self._rail_ends[leaving]
        inward = self._along(entering // 4, entering % 4 // 2) * HALF_BODY
        return self._curve(start, start + inward, end - inward, end)

    def joint(self, one: int, other: int) -> Curve:
        """Return the curve between two joined PUC-ports."""
        start, end = self._rail_ends[one], self._rail_ends[other]
        first, second = (-self._along(p // 4, p % 4 // 2) for p in (one, other))
        reach = _reaches(start, first, end, second)
        return self._curve(start, start + 0.75 * reach[0] * first, end + 0.75 * reach[1] * second, end)

    def port_lead(self, port: int) -> Curve:
        """Return the curve from a port to the rail end behind it."""
        puc_port = int(self._mesh.port_puc_port[port])
        start, end = self._at_port(port, _PORT_REACH, self.scale), self._rail_ends[puc_port]
        along = self._along(puc_port // 4, puc_port % 4 // 2)
        return self._curve(start, start - 0.22 * self._outward[port], end - 0.12 * along, end)

    def port_place(self, port: int) -> _Vector:
        """Return where a port's number stands."""
        return self.px(self._at_port(port, _PORT_REACH, self.scale))

    def name_place(self, port: int) -> tuple[_Vector, float, bool]:
        """Return where the name at a port begins (ends, if the flag is set), and its angle in degrees."""
        outward = self._outward[port]
        angle = -math.degrees(math.atan2(outward[1], outward[0]))
        flipped = outward[0] < -1e-9
        return self.px(self._at_port(port, _NAME_REACH, self.scale)), angle + 180 * flipped, flipped


def _reaches(start: _Vector, first: _Vector, end: _Vector, second: _Vector) -> tuple[float, float]:
    """Return how far two waveguides go on, each in its unit direction, until they meet.

    Those that run side by side or against each other never meet: they bend over within half of what is between them.
    """
    gap = end - start
    turn = float(first[0] * second[1] - first[1] * second[0])
    if abs(turn) > 0.1:
        one = float(gap[0] * second[1] - gap[1] * second[0]) / turn
        other = float(gap[0] * first[1] - gap[1] * first[0]) / turn
        if one > 0.0 and other > 0.0:
            return one, other
    half = 0.5 * float(np.linalg.norm(gap))
    return half, half
