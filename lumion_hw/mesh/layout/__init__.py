"""Mesh layouts, their JSON form, and faults of a mesh."""
