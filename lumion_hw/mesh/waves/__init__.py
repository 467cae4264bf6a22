"""Light in a mesh: unit cells, scattering matrices, heaters and thermal crosstalk."""
