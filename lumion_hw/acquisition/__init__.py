"""Acquisition of data on a bench: logs at a fixed rate, scans of settings, snapshots of all settings, and data files.

:class:`Reader` reads columns, :func:`record` writes them to a journal, and :class:`Latest` shows live values. The
modules of this package are private.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
