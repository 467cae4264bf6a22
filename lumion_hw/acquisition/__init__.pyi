from .columns import Column as Column, Reader as Reader, State as State, Value as Value
from .documents import bluesky_documents as bluesky_documents, write_documents as write_documents
from .fits import (
    BerFit as BerFit,
    FringeFit as FringeFit,
    HopLossFit as HopLossFit,
    ber_of_snr as ber_of_snr,
    fit_ber as fit_ber,
    fit_fringe as fit_fringe,
    fit_loss_per_hop as fit_loss_per_hop,
    snr_of_ber as snr_of_ber,
)
from .fitted import FittedCurve as FittedCurve
from .hdf5 import write_hdf5 as write_hdf5
from .journal import (
    LogHeader as LogHeader,
    LogJournal as LogJournal,
    LogRow as LogRow,
    log_header as log_header,
    read_journal as read_journal,
)
from .latest import Latest as Latest, LatestValue as LatestValue
from .plotting import plot as plot
from .recorder import Recording as Recording, record as record
from .recording import RecordedColumn as RecordedColumn, RecordedLog as RecordedLog, read_recording as read_recording
from .ring.fit import RingFit as RingFit, RingResonance as RingResonance, fit_ring as fit_ring
from .scan_data import ScanData as ScanData, load_scan as load_scan
from .scan_plan import ScanAxis as ScanAxis, ScanPlan as ScanPlan, SweptSetting as SweptSetting
from .scanning import ScanProgress as ScanProgress, scan as scan
from .settings import Setting as Setting, SettingKind as SettingKind, Settings as Settings, SettingValue as SettingValue
from .snapshot import (
    Restoration as Restoration,
    SettingChange as SettingChange,
    Snapshot as Snapshot,
    differences as differences,
    load_snapshot as load_snapshot,
    restore as restore,
    save_snapshot as save_snapshot,
    snapshot_yaml as snapshot_yaml,
    take_snapshot as take_snapshot,
)
