"""Bench files that come with the package, and the JSON Schema of bench files for editors."""
