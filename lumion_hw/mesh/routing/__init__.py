"""Finding paths through the mesh: one circuit or many, with consistent states and exclusive joints.

Negotiated congestion first, constraint programming (an extra) to rescue and to certify, every result traced again
before it is handed out (docs/decisions/0004-no-means-proven.md).
Private: users import from :mod:`lumion_hw.mesh`.
"""

from lumion_hw.mesh.routing.request import RouteRequest
from lumion_hw.mesh.routing.result import Path, Routing, states_for_paths
from lumion_hw.mesh.routing.router import route

__all__ = ["Path", "RouteRequest", "Routing", "route", "states_for_paths"]
