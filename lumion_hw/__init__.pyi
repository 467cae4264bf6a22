from . import (
    acquisition as acquisition,
    bench as bench,
    circuits as circuits,
    drivers as drivers,
    emulator as emulator,
    fabric as fabric,
    interfaces as interfaces,
    links as links,
    mesh as mesh,
    planning as planning,
    polarization as polarization,
    schedules as schedules,
    serving as serving,
    sessions as sessions,
    testing as testing,
)
from .bench.bench import Bench as Bench
from .clock import (
    Clock as Clock,
    ClockEvent as ClockEvent,
    Deadline as Deadline,
    SystemClock as SystemClock,
    Ticker as Ticker,
    VirtualClock as VirtualClock,
    deadline_after as deadline_after,
)
from .errors import (
    BadValueError as BadValueError,
    BusyError as BusyError,
    CalibrationError as CalibrationError,
    CircuitError as CircuitError,
    ConfigError as ConfigError,
    ConfigRejectedError as ConfigRejectedError,
    ConnectError as ConnectError,
    DeviceError as DeviceError,
    DeviceTimeoutError as DeviceTimeoutError,
    ForkError as ForkError,
    FrameError as FrameError,
    IdentityError as IdentityError,
    InUseError as InUseError,
    LimitError as LimitError,
    LinkError as LinkError,
    LinkLost as LinkLost,
    LinkTimeout as LinkTimeout,
    LumionError as LumionError,
    NoPathError as NoPathError,
    NotSupportedError as NotSupportedError,
    OutOfRangeError as OutOfRangeError,
    RoutingError as RoutingError,
    SafetyError as SafetyError,
    UndecidedError as UndecidedError,
    UnknownNameError as UnknownNameError,
    VerifyError as VerifyError,
    exit_code as exit_code,
)
from .mesh.record.calibration_record import CalibrationRecord as CalibrationRecord
from .quantities import (
    SPEED_OF_LIGHT_M_PER_S as SPEED_OF_LIGHT_M_PER_S,
    db_from_ratio as db_from_ratio,
    dbm_from_w as dbm_from_w,
    frequency_hz_from_wavelength_m as frequency_hz_from_wavelength_m,
    ratio_from_db as ratio_from_db,
    w_from_dbm as w_from_dbm,
    wavelength_m_from_frequency_hz as wavelength_m_from_frequency_hz,
)
from .storage.record_files import load_record as load_record, save_record as save_record

__version__: str
