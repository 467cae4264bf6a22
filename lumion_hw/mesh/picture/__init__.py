"""The mesh as an SVG picture."""
