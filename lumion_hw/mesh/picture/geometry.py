"""Geometry of mesh pictures."""

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

RAIL = 0.085
"""Distance of a rail from the axis of its PUC, in PUC lengths."""

EDGE = 0.065
"""Distance from a rail to the edge of the body of a PUC, in PUC lengths."""

PORT_RADIUS = 9.5
"""Radius of the disc of a port, in px."""

MARGIN = 28.0
"""Margin of the page, in px."""

TITLE_HEIGHT = 62.0
"""Space for the title, in px."""

WIDTH = 1200.0
"""Smallest width of the page, in px."""

_SCALE_LIMITS = (62.0, 120.0)  # px per PUC length
_PORT_SPACING = 0.14  # this and the next two in PUC lengths
_PORT_REACH = 0.48
_NAME_REACH = 0.63
_NUMBER_GAP = 7.0  # px
_HEATER_GAP = 9.0  # px, where heaters are drawn on the upper rail
_NUMBERS_ABOVE = 14.0  # px; numbers of the top row are above the ports
_MAX_SLOPE = 0.8
"""Largest length of one bend of a waveguide, relative to the distance between its ends in the same direction."""


class PageLayout:
    """Positions of all picture elements, in px with y down.

    Args:
        names: Ports that have a name tag, each with the width of the tag in px.

    Attributes:
        rail: Distance of a rail from the axis of its PUC, in PUC lengths.
        scale: Pixels per PUC length.
        mesh_bottom: Lower edge of the mesh, including ports and names.
    """

    def __init__(self, mesh: MeshTopology, names: Sequence[tuple[int, float]]) -> None:
        mesh = mesh.drawing_mesh
        to_b = mesh.end_positions[:, 1] - mesh.end_positions[:, 0]
        left = np.stack([-to_b[:, 1], to_b[:, 0]], axis=1)
        pin_distance = np.linalg.norm(mesh.corners[0::4] - mesh.corners[1::4], axis=1)
        self.rail = max(RAIL, 0.5 * float(pin_distance.min(initial=np.inf))) if len(pin_distance) else RAIL
        self._mesh = mesh
        self._direction_to_b = to_b
        centres = mesh.puc_centres[:, None, None, :]
        end = HALF_BODY * np.array([-1.0, 1.0])[None, :, None, None] * to_b[:, None, None, :]
        side = self.rail * np.array([1.0, -1.0])[None, None, :, None] * left[:, None, None, :]
        self._rail_ends: _Vector = (centres + end + side).reshape(-1, 2)
        # Two ports at the same position are drawn side by side.
        positions, corner = np.unique(mesh.port_positions, axis=0, return_inverse=True)
        is_used = ~np.isin(np.arange(mesh.n_ports), list(mesh.unused_ports))
        shares = np.bincount(corner.reshape(-1)[is_used], minlength=len(positions))
        self._shared = shares[corner.reshape(-1)] > 1
        # The waveguide behind an unused port is not drawn, so it does not turn the other ports at its corner.
        self._is_end = np.ones(4 * mesh.n_pucs, dtype=np.bool_)
        self._is_end[mesh.port_puc_port[~is_used]] = False
        self._outward = [self._open_direction(port) for port in range(mesh.n_ports)]
        self.scale = self._fitting_scale(names)
        low, high = self._bounds(names, self.scale)
        self.width = max(WIDTH, float(high[0] - low[0]) + 2 * MARGIN)
        top = TITLE_HEIGHT + (_NUMBERS_ABOVE if self.rail > RAIL else 0.0)
        self._origin: _Vector = np.array([(self.width - low[0] - high[0]) / 2, top + high[1]])
        self.mesh_bottom = float(top + high[1] - low[1])

    def _fitting_scale(self, names: Sequence[tuple[int, float]]) -> float:
        small, large = _SCALE_LIMITS
        narrow, wide = (float(np.ptp([side[0] for side in self._bounds(names, scale)])) for scale in _SCALE_LIMITS)
        fitting = small + (WIDTH - 2 * MARGIN - narrow) * (large - small) / (wide - narrow)
        return min(max(fitting, small), large)

    def _open_direction(self, port: int) -> _Vector:
        """Return the unit vector that points out of the mesh at a port, y up."""
        puc_port = int(self._mesh.port_puc_port[port])
        is_same_corner = np.all(self._mesh.corners == self._mesh.corners[puc_port], axis=1) & self._is_end
        is_same_corner[puc_port] = True
        is_same_corner = is_same_corner.reshape(-1, 2, 2)
        ends = np.argwhere(is_same_corner.any(axis=2)).tolist()
        outwards: _Vector = -sum((self._direction_at(puc, end) for puc, end in ends), np.zeros(2))
        if len(ends) == 2:
            level = abs(outwards[0]) > abs(outwards[1])
            outwards = np.array(
                [math.copysign(1.0, outwards[0]), 0.0] if level else [0.0, math.copysign(1.0, outwards[1])]
            )
        unit: _Vector = outwards / np.linalg.norm(outwards)
        return unit

    def _direction_at(self, puc: int, end: int) -> _Vector:
        vector: _Vector = self._direction_to_b[puc] * (1 - 2 * end)
        return vector

    def _port_point(self, port: int, distance: float, scale: float) -> _Vector:
        outward = self._outward[port]
        across = np.array([-outward[1], outward[0]])
        puc_port = int(self._mesh.port_puc_port[port])
        position = self._mesh.port_positions[port]
        # Each of two ports at a corner lies on the side of its own rail, so their waveguides do not cross.
        side = math.copysign(1.0, float((self._rail_ends[puc_port] - position) @ across)) * self._shared[port]
        # At a small scale the discs of two ports would otherwise overlap.
        min_distance = max(_PORT_SPACING, (PORT_RADIUS + 1.5) / scale)
        point: _Vector = position + distance * outward + side * min_distance * across
        return point

    def _bounds(self, names: Sequence[tuple[int, float]], scale: float) -> tuple[_Vector, _Vector]:
        ports = [self._port_point(port, _PORT_REACH, scale) * scale for port in range(self._mesh.n_ports)]
        far = [
            self._port_point(port, _NAME_REACH, scale) * scale + self._outward[port] * (width + 4)
            for port, width in names
        ]
        points = np.array([*ports, *far, *(self._mesh.corners * scale)])
        return points.min(axis=0) - PORT_RADIUS, points.max(axis=0) + PORT_RADIUS

    def px(self, point: _Vector) -> _Vector:
        """Return the position in px of a point given in PUC lengths."""
        pixel: _Vector = self._origin + self.scale * point * np.array([1.0, -1.0])
        return pixel

    def _curve(self, *points: _Vector) -> Curve:
        start, first, second, end = (self.px(point) for point in points)
        return start, first, second, end

    def centre(self, puc: int) -> tuple[_Vector, float]:
        """Return the centre of a PUC, and the angle of its axis in degrees (clockwise, as in SVG)."""
        direction = self._direction_to_b[puc]
        return self.px(self._mesh.puc_centres[puc]), -math.degrees(math.atan2(direction[1], direction[0]))

    def number_position(self, puc: int, row: int = -1) -> tuple[_Vector, bool]:
        """Return the position of a PUC's number, and whether the text starts there (otherwise it is centred).

        The number is above the upper rail (``row`` -1) or between the rails, above the lower one (``row`` 1).
        """
        direction = self._direction_to_b[puc]
        normal = np.array([-direction[1], direction[0]])
        slanted = abs(normal[0]) > 1e-9
        if normal[0] < 0 and slanted:
            normal = -normal
        gap = _NUMBER_GAP if self.rail == RAIL else _HEATER_GAP
        offset = normal * (-row * self.rail + EDGE + gap / self.scale)
        return self.px(self._mesh.puc_centres[puc] + offset), slanted

    def puc_curve(self, entering: int, leaving: int) -> Curve:
        """Return the curve of light through a PUC.

        ``entering`` and ``leaving`` are PUC-ports.
        """
        start, end = self._rail_ends[entering], self._rail_ends[leaving]
        inward = self._direction_at(entering // 4, entering % 4 // 2) * HALF_BODY
        return self._curve(start, start + inward, end - inward, end)

    def joint_curve(self, first_port: int, second_port: int) -> Curve:
        """Return the curve between two joined PUC-ports."""
        start, end = self._rail_ends[first_port], self._rail_ends[second_port]
        first, second = (-self._direction_at(p // 4, p % 4 // 2) for p in (first_port, second_port))
        reach = _reaches(start, first, end, second)
        return self._curve(start, start + 0.75 * reach[0] * first, end + 0.75 * reach[1] * second, end)

    def port_curve(self, port: int) -> Curve:
        """Return the curve of the waveguide from a port to the rail of its PUC."""
        puc_port = int(self._mesh.port_puc_port[port])
        start, end = self._port_point(port, _PORT_REACH, self.scale), self._rail_ends[puc_port]
        direction = self._direction_at(puc_port // 4, puc_port % 4 // 2)
        return self._curve(start, start - 0.22 * self._outward[port], end - 0.12 * direction, end)

    def port_position(self, port: int) -> _Vector:
        """Return the position of the number written at a port."""
        return self.px(self._port_point(port, _PORT_REACH, self.scale))

    def name_position(self, port: int) -> tuple[_Vector, float, bool]:
        """Return position and angle in degrees of a port's name tag, and whether its text ends (not starts) there."""
        outward = self._outward[port]
        angle = -math.degrees(math.atan2(outward[1], outward[0]))
        # Text towards the left would stand on its head, so it is turned and ends at the port.
        flipped = outward[0] < -1e-9
        return self.px(self._port_point(port, _NAME_REACH, self.scale)), angle + 180 * flipped, flipped


def _reaches(start: _Vector, first: _Vector, end: _Vector, second: _Vector) -> tuple[float, float]:
    """Return how far two waveguides run straight, each in its unit direction, before they bend."""
    gap = end - start
    turn = float(first[0] * second[1] - first[1] * second[0])
    # Waveguides that are nearly parallel would meet far outside the gap.
    if abs(turn) > 0.1:
        first_port = float(gap[0] * second[1] - gap[1] * second[0]) / turn
        second_port = float(gap[0] * first[1] - gap[1] * first[0]) / turn
        if first_port > 0.0 and second_port > 0.0:
            return first_port, second_port
    half, along_first = 0.5 * float(np.linalg.norm(gap)), float(gap @ first)
    # Waveguides that cross many others on a short way must not swing out to the sides.
    half = min(half, _MAX_SLOPE * along_first) if along_first > 0.0 else half
    return half, half
