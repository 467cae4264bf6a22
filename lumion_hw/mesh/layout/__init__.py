"""Mesh layouts: PUCs, ports and waveguide joints as a graph, the JSON form of a mesh, and the faults of a mesh."""
