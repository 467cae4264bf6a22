"""Physical model of a mesh: parameters, predicted readings, likelihood of measured readings.

``parameters.py`` has the parameters, ``mesh_model.py`` the photocurrents, ``likelihood.py`` the comparison with
readings.
"""
