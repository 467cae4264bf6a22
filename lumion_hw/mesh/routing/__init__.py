"""Find paths through the mesh for one or many circuits, with consistent states and one circuit per waveguide joint.

Negotiated congestion runs first. Constraint programming (an optional dependency) solves or certifies the rest. Every
result is traced again before it is returned (docs/decisions/0004-no-means-proven.md). This package is private: import
from :mod:`lumion_hw.mesh`.
"""

from lumion_hw.mesh.routing.request import RouteRequest
from lumion_hw.mesh.routing.result import Path, Routing, states_for_paths
from lumion_hw.mesh.routing.router import route

__all__ = ["Path", "RouteRequest", "Routing", "route", "states_for_paths"]
