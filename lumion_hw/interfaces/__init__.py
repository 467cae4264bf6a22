"""What a device can do: one ``typing.Protocol`` per kind of device, with its value types.

Drivers implement these structurally; nothing here imports a driver. Every value carries its unit in its name, and a
reading is a number or an error, never a sentinel. The modules inside are private: users import from here. Each kind has
a suite in :mod:`lumion_hw.testing.contracts` that a lab's own driver is held to.
"""

from lumion_hw.interfaces.amplifier import (
    AmplifierLimits,
    AmplifierMode,
    AmplifierSettings,
    AmplifierState,
    OpticalAmplifier,
)
from lumion_hw.interfaces.attenuator import AttenuatorLimits, AttenuatorSettings, VariableAttenuator
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
from lumion_hw.interfaces.optical_switch import OpticalSwitch, SwitchPorts
from lumion_hw.interfaces.polarization import (
    ActuatorInfo,
    Polarimeter,
    PolarizationController,
    PolarizationOptimizer,
    PolarizationReading,
)
from lumion_hw.interfaces.power_meter import PowerLog, PowerMeter, PowerReading, RangeState
from lumion_hw.interfaces.quality import Quality
from lumion_hw.interfaces.spectrum_analyzer import Spectrum, SpectrumAnalyzer, SpectrumLimits, SpectrumSettings
from lumion_hw.interfaces.temperature import (
    TemperatureController,
    TemperatureLimits,
    TemperatureSettings,
    TemperatureState,
)
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
    "AmplifierLimits",
    "AmplifierMode",
    "AmplifierSettings",
    "AmplifierState",
    "Application",
    "AttenuatorLimits",
    "AttenuatorSettings",
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
    "OpticalAmplifier",
    "OpticalSwitch",
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
    "Spectrum",
    "SpectrumAnalyzer",
    "SpectrumLimits",
    "SpectrumSettings",
    "StickyFlag",
    "Submission",
    "SweepLog",
    "SweepPlan",
    "SweepResult",
    "SwitchPorts",
    "TelemetrySample",
    "TemperatureController",
    "TemperatureLimits",
    "TemperatureSettings",
    "TemperatureState",
    "Transponder",
    "TransponderCapabilities",
    "TransponderIdentity",
    "TunableLaser",
    "TuningRange",
    "TuningResult",
    "VariableAttenuator",
]
