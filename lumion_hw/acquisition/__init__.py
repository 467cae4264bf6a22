"""Acquisition: what can be logged on a bench, reading it at a steady rate, and keeping every acknowledged row.

:class:`Reader` reads the chosen columns, :func:`record` keeps them in a journal, :func:`read_journal`, :func:`plot` and
:func:`write_hdf5` take them from there, :class:`Latest` shows them live. The modules inside are private: users import
from here.
"""

from lumion_hw.acquisition.columns import Column, Reader, State, Value
from lumion_hw.acquisition.documents import bluesky_documents, write_documents
from lumion_hw.acquisition.fits import (
    BerFit,
    FringeFit,
    HopLossFit,
    ber_of_snr,
    fit_ber,
    fit_fringe,
    fit_loss_per_hop,
    snr_of_ber,
)
from lumion_hw.acquisition.fitted import FittedCurve
from lumion_hw.acquisition.hdf5 import write_hdf5
from lumion_hw.acquisition.journal import LogHeader, LogJournal, LogRow, log_header, read_journal
from lumion_hw.acquisition.latest import Latest, LatestValue
from lumion_hw.acquisition.plotting import plot
from lumion_hw.acquisition.recorder import Recording, record
from lumion_hw.acquisition.recording import RecordedColumn, RecordedLog, read_recording
from lumion_hw.acquisition.ring_fit import RingFit, RingResonance, fit_ring
from lumion_hw.acquisition.scan_data import ScanData, load_scan
from lumion_hw.acquisition.scan_plan import ScanAxis, ScanPlan, SweptSetting
from lumion_hw.acquisition.scanning import ScanProgress, scan
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
    "BerFit",
    "Column",
    "FittedCurve",
    "FringeFit",
    "HopLossFit",
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
    "RingFit",
    "RingResonance",
    "ScanAxis",
    "ScanData",
    "ScanPlan",
    "ScanProgress",
    "Setting",
    "SettingChange",
    "SettingKind",
    "SettingValue",
    "Settings",
    "Snapshot",
    "State",
    "SweptSetting",
    "Value",
    "ber_of_snr",
    "bluesky_documents",
    "differences",
    "fit_ber",
    "fit_fringe",
    "fit_loss_per_hop",
    "fit_ring",
    "load_scan",
    "load_snapshot",
    "log_header",
    "plot",
    "read_journal",
    "read_recording",
    "record",
    "restore",
    "save_snapshot",
    "scan",
    "snapshot_yaml",
    "snr_of_ber",
    "take_snapshot",
    "write_documents",
    "write_hdf5",
]
