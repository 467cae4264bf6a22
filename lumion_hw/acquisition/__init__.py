"""Acquisition: what can be logged on a bench, reading it at a steady rate, and keeping every acknowledged row.

:class:`Reader` reads the chosen columns, :func:`record` keeps them in a journal, :func:`read_journal`, :func:`plot` and
:func:`write_hdf5` take them from there, :class:`Latest` shows them live. The modules inside are private: users import
from here.
"""

from lumion_hw.acquisition.columns import Column, Reader, State, Value
from lumion_hw.acquisition.documents import bluesky_documents, write_documents
from lumion_hw.acquisition.hdf5 import write_hdf5
from lumion_hw.acquisition.journal import LogHeader, LogJournal, LogRow, log_header, read_journal
from lumion_hw.acquisition.latest import Latest, LatestValue
from lumion_hw.acquisition.plotting import plot
from lumion_hw.acquisition.recorder import Recording, record
from lumion_hw.acquisition.recording import RecordedColumn, RecordedLog, read_recording
from lumion_hw.acquisition.settings import Setting, SettingKind, Settings, SettingValue
from lumion_hw.acquisition.snapshot import (
    Restoration,
    SettingChange,
    Snapshot,
    differences,
    load_snapshot,
    restore,
    save_snapshot,
    snapshot_yaml,
    take_snapshot,
)

__all__ = [
    "Column",
    "Latest",
    "LatestValue",
    "LogHeader",
    "LogJournal",
    "LogRow",
    "Reader",
    "RecordedColumn",
    "RecordedLog",
    "Recording",
    "Restoration",
    "Setting",
    "SettingChange",
    "SettingKind",
    "SettingValue",
    "Settings",
    "Snapshot",
    "State",
    "Value",
    "bluesky_documents",
    "differences",
    "load_snapshot",
    "log_header",
    "plot",
    "read_journal",
    "read_recording",
    "record",
    "restore",
    "save_snapshot",
    "snapshot_yaml",
    "take_snapshot",
    "write_documents",
    "write_hdf5",
]
