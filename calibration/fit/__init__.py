"""Fit of the mesh parameters to the readings, with errors.

``global_fit.py`` fits all parameters by maximum likelihood. ``phase_search.py`` finds the start of the fit,
``frequencies.py`` the source frequencies, and ``diagnosed_fit.py`` the causes of misfit. ``bound.py`` calculates the
smallest possible errors for given settings, and ``drift.py`` the growth of errors with time.
"""
