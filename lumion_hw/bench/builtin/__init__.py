"""Bench files that come with the package, and the JSON Schema for editors."""
