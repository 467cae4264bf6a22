"""SVG pictures of the mesh."""
