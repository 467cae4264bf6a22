"""Mesh layouts: PUCs, ports and joints as a graph, their documents, and faults."""
