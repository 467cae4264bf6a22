"""From readings to parameters, and how well these are known.

Begin in ``global_fit.py``: all parameters by maximum likelihood. ``phase_search.py`` finds its start,
``frequencies.py`` where each source really is, ``diagnosed_fit.py`` what else happened if a fit does not explain its
readings. ``bound.py`` says what settings can tell at best, ``drift.py`` what is known some time later.
"""
