"""What a device can do: one ``typing.Protocol`` per kind of device, with its value types.

Drivers implement these structurally; nothing here imports a driver. Every value carries its unit in its name, and a
reading is a number or an error, never a sentinel. The modules inside are private: users import from here. Each kind has
a suite in :mod:`lumion_hw.testing.contracts` that a lab's own driver is held to.
"""

from lumion_hw.interfaces.mesh_controller import (
    ControllerInfo,
    ControllerLimits,
    Fault,
    Generation,
    LightState,
    LightThreshold,
    LightWatcher,
    MeshController,
    MonitorReading,
    SweepPlan,
    SweepResult,
    TelemetrySample,
)
from lumion_hw.interfaces.mesh_states import MeshStates, MeshStatesInfo, PucState, Submission
from lumion_hw.interfaces.polarization import (
    ActuatorInfo,
    Polarimeter,
    PolarizationController,
    PolarizationOptimizer,
    PolarizationReading,
)
from lumion_hw.interfaces.power_meter import PowerLog, PowerMeter, PowerReading, RangeState
from lumion_hw.interfaces.quality import Quality
from lumion_hw.interfaces.transponder import (
    Application,
    CoherentTransponder,
    LinkQuantity,
    LockReport,
    LockStage,
    Monitors,
    Performance,
    Reading,
    SignalStatus,
    StickyFlag,
    Transponder,
    TransponderCapabilities,
    TransponderIdentity,
    TuningRange,
    TuningResult,
)
from lumion_hw.interfaces.tunable_laser import (
    LaserCapabilities,
    LaserRanges,
    LaserState,
    LaserSweep,
    SweepLog,
    TunableLaser,
)

__all__ = [
    "ActuatorInfo",
    "Application",
    "CoherentTransponder",
    "ControllerInfo",
    "ControllerLimits",
    "Fault",
    "Generation",
    "LaserCapabilities",
    "LaserRanges",
    "LaserState",
    "LaserSweep",
    "LightState",
    "LightThreshold",
    "LightWatcher",
    "LinkQuantity",
    "LockReport",
    "LockStage",
    "MeshController",
    "MeshStates",
    "MeshStatesInfo",
    "MonitorReading",
    "Monitors",
    "Performance",
    "Polarimeter",
    "PolarizationController",
    "PolarizationOptimizer",
    "PolarizationReading",
    "PowerLog",
    "PowerMeter",
    "PowerReading",
    "PucState",
    "Quality",
    "RangeState",
    "Reading",
    "SignalStatus",
    "StickyFlag",
    "Submission",
    "SweepLog",
    "SweepPlan",
    "SweepResult",
    "TelemetrySample",
    "Transponder",
    "TransponderCapabilities",
    "TransponderIdentity",
    "TunableLaser",
    "TuningRange",
    "TuningResult",
]
