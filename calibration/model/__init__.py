"""Physical model of a mesh: parameters, predicted readings, likelihood of measured readings.

``parameters.py`` has the parameters, ``mesh_model.py`` the photocurrents with derivatives, and ``likelihood.py`` the
comparison with readings. ``space.py`` arranges the parameters as a vector, ``gauge.py`` separates observable from
unobservable joint phases, ``priors.py`` has published means and spreads, and ``normal_equations.py`` sums the equations
of a fit. ``ideal_mesh.py`` has simple models for the search.
"""
