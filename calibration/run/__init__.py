"""The procedure, stage by stage: planned, measured, kept in a journal, verified, renewed.

Begin in ``procedure.py``: one run from survey to record. ``bootstrap.py`` holds its stages before the global fit,
``planning.py`` those after it, then ``wavelengths.py`` and ``verification.py``; ``conclusions.py`` says what was found
wrong. ``journaled_run.py`` runs it on a bench with a journal (``journal.py``) that an interrupted run goes on from;
``many_benches.py`` and ``cluster.py`` run several. ``dry_run.py`` plans without a bench, ``renewal.py`` re-fits later.
"""
