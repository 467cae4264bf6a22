"""Acquisition: what can be logged on a bench, reading it at a steady rate, and keeping every acknowledged row.

:class:`Reader` reads the chosen columns, :func:`record` keeps them in a journal, :func:`read_journal`, :func:`plot` and
:func:`write_hdf5` take them from there, :class:`Latest` shows them live. The modules inside are private: users import
from here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
