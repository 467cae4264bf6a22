"""Mesh layouts: PUCs, ports and joints as a graph, the JSON form of a mesh, and its faults."""
