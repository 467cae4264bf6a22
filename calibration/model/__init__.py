"""Physical model of a mesh: parameters, predicted monitor readings, and the likelihood of measured readings.

Start reading in ``parameters.py`` (the parameters of a mesh), then ``mesh_model.py`` (photocurrents and their
derivatives) and ``likelihood.py`` (comparison with readings). ``space.py`` arranges the parameters as a vector,
``gauge.py`` separates observable joint phases from unobservable ones, ``priors.py`` holds published means and spreads,
and ``normal_equations.py`` sums the normal equations of a fit. ``ideal_mesh.py`` has simple models for the search.
"""
