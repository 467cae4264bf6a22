"""Light in a mesh: unit cells, scattering matrices with derivatives, heaters and thermal crosstalk."""
