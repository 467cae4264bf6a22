"""lumion-hw: drivers, calibration, path set-up, recovery and an emulator for photonic-fabric benches.

``Bench.open(path)`` opens a bench of real devices, ``Bench.emulate(path, seed=...)`` the same file without hardware.
Everything it raises is a ``LumionError``. What else users import is in docs/api.md; all other names are private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lumion_hw.public_names import public_names

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench
    from lumion_hw.clock import Clock, ClockEvent, SystemClock, Ticker, VirtualClock, deadline_after
    from lumion_hw.errors import (
        BadValueError,
        BusyError,
        CalibrationError,
        CircuitError,
        ConfigError,
        ConfigRejectedError,
        ConnectError,
        DeviceError,
        DeviceTimeoutError,
        ForkError,
        FrameError,
        IdentityError,
        InUseError,
        LimitError,
        LinkError,
        LinkLost,
        LinkTimeout,
        LumionError,
        NoPathError,
        NotSupportedError,
        OutOfRangeError,
        RoutingError,
        SafetyError,
        UndecidedError,
        UnknownNameError,
        VerifyError,
        exit_code,
    )
    from lumion_hw.mesh.record import CalibrationRecord
    from lumion_hw.quantities import (
        SPEED_OF_LIGHT_M_PER_S,
        db_from_ratio,
        dbm_from_w,
        frequency_hz_from_wavelength_m,
        ratio_from_db,
        w_from_dbm,
        wavelength_m_from_frequency_hz,
    )
    from lumion_hw.storage.record_files import load_record, save_record

__version__ = "0.1.0"
__all__ = [
    "SPEED_OF_LIGHT_M_PER_S",
    "BadValueError",
    "Bench",
    "BusyError",
    "CalibrationError",
    "CalibrationRecord",
    "CircuitError",
    "Clock",
    "ClockEvent",
    "ConfigError",
    "ConfigRejectedError",
    "ConnectError",
    "DeviceError",
    "DeviceTimeoutError",
    "ForkError",
    "FrameError",
    "IdentityError",
    "InUseError",
    "LimitError",
    "LinkError",
    "LinkLost",
    "LinkTimeout",
    "LumionError",
    "NoPathError",
    "NotSupportedError",
    "OutOfRangeError",
    "RoutingError",
    "SafetyError",
    "SystemClock",
    "Ticker",
    "UndecidedError",
    "UnknownNameError",
    "VerifyError",
    "VirtualClock",
    "__version__",
    "db_from_ratio",
    "dbm_from_w",
    "deadline_after",
    "exit_code",
    "frequency_hz_from_wavelength_m",
    "load_record",
    "ratio_from_db",
    "save_record",
    "w_from_dbm",
    "wavelength_m_from_frequency_hz",
]
if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names(
        __name__,
        {
            "bench.bench": ("Bench",),
            "clock": ("Clock", "ClockEvent", "SystemClock", "Ticker", "VirtualClock", "deadline_after"),
            "errors": (
                "BadValueError",
                "BusyError",
                "CalibrationError",
                "CircuitError",
                "ConfigError",
                "ConfigRejectedError",
                "ConnectError",
                "DeviceError",
                "DeviceTimeoutError",
                "ForkError",
                "FrameError",
                "IdentityError",
                "InUseError",
                "LimitError",
                "LinkError",
                "LinkLost",
                "LinkTimeout",
                "LumionError",
                "NoPathError",
                "NotSupportedError",
                "OutOfRangeError",
                "RoutingError",
                "SafetyError",
                "UndecidedError",
                "UnknownNameError",
                "VerifyError",
                "exit_code",
            ),
            "mesh.record": ("CalibrationRecord",),
            "quantities": (
                "SPEED_OF_LIGHT_M_PER_S",
                "db_from_ratio",
                "dbm_from_w",
                "frequency_hz_from_wavelength_m",
                "ratio_from_db",
                "w_from_dbm",
                "wavelength_m_from_frequency_hz",
            ),
            "storage.record_files": ("load_record", "save_record"),
        },
    )
