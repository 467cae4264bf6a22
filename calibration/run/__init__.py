"""Calibration procedure: stages of a run, journal, verification and renewal.

Start reading in ``procedure.py`` (one run from survey to record). ``bootstrap.py`` contains the stages before the
global fit and ``planning.py`` the measurements after it, followed by ``wavelengths.py`` and ``verification.py``;
``conclusions.py`` lists the faults found. ``journaled_run.py`` runs the procedure on a bench with a journal
(``journal.py``), from which an interrupted run continues. ``many_benches.py`` and ``cluster.py`` run several benches,
``dry_run.py`` plans without a bench, and ``renewal.py`` renews a record later.
"""
