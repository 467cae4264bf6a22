"""Fit of the mesh parameters to the readings, with errors; ``global_fit.py`` has the fit by maximum likelihood."""
