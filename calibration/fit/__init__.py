"""Fit of the mesh parameters to the readings, and the errors of the result.

Start reading in ``global_fit.py``: it fits all parameters by maximum likelihood. ``phase_search.py`` finds its start
point, ``frequencies.py`` finds the frequency of each source, and ``diagnosed_fit.py`` finds the causes when a fit does
not explain its readings. ``bound.py`` calculates the smallest possible errors for a set of settings, and ``drift.py``
how errors grow with time.
"""
