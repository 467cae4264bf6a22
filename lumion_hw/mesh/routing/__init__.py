"""Find paths through the mesh for one or many circuits that do not conflict.

Private: import from :mod:`lumion_hw.mesh`. Methods: docs/decisions/0004-proof-of-no-path.md.
"""

from lumion_hw.mesh.routing.request import RouteRequest
from lumion_hw.mesh.routing.result import Path, Routing, states_for_paths
from lumion_hw.mesh.routing.router import route

__all__ = ["Path", "RouteRequest", "Routing", "route", "states_for_paths"]
