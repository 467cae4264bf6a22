"""What is wrong with elements of a mesh, or changed while it was measured."""
