"""Calibration procedure: stages, journal, verification and renewal.

``procedure.py`` is one run from survey to record. ``bootstrap.py`` has the stages before the fit, ``planning.py`` the
measurements after it, then ``wavelengths.py`` and ``verification.py``; ``conclusions.py`` lists the faults.
``journaled_run.py`` runs the procedure with a journal (``journal.py``), from which an interrupted run continues.
``many_benches.py`` and ``cluster.py`` run several benches, ``dry_run.py`` plans without a bench, ``renewal.py`` renews
a record.
"""
