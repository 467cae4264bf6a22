"""Acquisition: what can be logged on a bench, reading it at a steady rate, and keeping every acknowledged row.

:class:`Reader` reads the chosen columns, :func:`record` keeps them in a journal, :func:`read_journal`, :func:`plot` and
:func:`write_hdf5` take them from there, :class:`Latest` shows them live. The modules inside are private: users import
from here.
"""

from lumion_hw.acquisition.columns import Column, Reader, State, Value
from lumion_hw.acquisition.hdf5 import write_hdf5
from lumion_hw.acquisition.journal import LogHeader, LogJournal, LogRow, read_journal
from lumion_hw.acquisition.latest import Latest, LatestValue
from lumion_hw.acquisition.plotting import plot
from lumion_hw.acquisition.recorder import Recording, record
from lumion_hw.acquisition.settings import Setting, SettingKind, Settings, SettingValue

__all__ = [
    "Column",
    "Latest",
    "LatestValue",
    "LogHeader",
    "LogJournal",
    "LogRow",
    "Reader",
    "Recording",
    "Setting",
    "SettingKind",
    "SettingValue",
    "Settings",
    "State",
    "Value",
    "plot",
    "read_journal",
    "record",
    "write_hdf5",
]
