from .amplifier import (
    AmplifierLimits as AmplifierLimits,
    AmplifierMode as AmplifierMode,
    AmplifierSettings as AmplifierSettings,
    AmplifierState as AmplifierState,
    OpticalAmplifier as OpticalAmplifier,
)
from .attenuator import (
    AttenuatorLimits as AttenuatorLimits,
    AttenuatorSettings as AttenuatorSettings,
    VariableAttenuator as VariableAttenuator,
)
from .mesh_controller import (
    ControllerInfo as ControllerInfo,
    ControllerLimits as ControllerLimits,
    Fault as Fault,
    Generation as Generation,
    LightState as LightState,
    LightThreshold as LightThreshold,
    LightWatcher as LightWatcher,
    MeasuresOutputs as MeasuresOutputs,
    MeshController as MeshController,
    MonitorReading as MonitorReading,
    OutputReadings as OutputReadings,
    SweepPlan as SweepPlan,
    SweepResult as SweepResult,
    TelemetrySample as TelemetrySample,
)
from .mesh_states import (
    MeshStates as MeshStates,
    MeshStatesInfo as MeshStatesInfo,
    PucState as PucState,
    Submission as Submission,
)
from .optical_switch import OpticalSwitch as OpticalSwitch, SwitchPorts as SwitchPorts
from .polarization import (
    ActuatorInfo as ActuatorInfo,
    Polarimeter as Polarimeter,
    PolarimeterLimits as PolarimeterLimits,
    PolarimeterSettings as PolarimeterSettings,
    PolarizationController as PolarizationController,
    PolarizationOptimizer as PolarizationOptimizer,
    PolarizationReading as PolarizationReading,
)
from .power_meter import (
    LoggingMeter as LoggingMeter,
    LogRun as LogRun,
    MeterLimits as MeterLimits,
    MeterSettings as MeterSettings,
    PowerLog as PowerLog,
    PowerMeter as PowerMeter,
    PowerReading as PowerReading,
    RangeState as RangeState,
)
from .quality import Quality as Quality
from .spectrum_analyzer import (
    Spectrum as Spectrum,
    SpectrumAnalyzer as SpectrumAnalyzer,
    SpectrumLimits as SpectrumLimits,
    SpectrumSettings as SpectrumSettings,
)
from .temperature import (
    TemperatureController as TemperatureController,
    TemperatureLimits as TemperatureLimits,
    TemperatureSettings as TemperatureSettings,
    TemperatureState as TemperatureState,
)
from .transponder import (
    Application as Application,
    BreakoutTransponder as BreakoutTransponder,
    CoherentTransponder as CoherentTransponder,
    LanedTransponder as LanedTransponder,
    LaneMonitoring as LaneMonitoring,
    LaneMonitors as LaneMonitors,
    LinkQuantity as LinkQuantity,
    LockReport as LockReport,
    LockStage as LockStage,
    MonitorAdvertising as MonitorAdvertising,
    Monitors as Monitors,
    Performance as Performance,
    Reading as Reading,
    SignalStatus as SignalStatus,
    StickyFlag as StickyFlag,
    Transponder as Transponder,
    TransponderCapabilities as TransponderCapabilities,
    TransponderIdentity as TransponderIdentity,
    TransponderSettings as TransponderSettings,
    TuningRange as TuningRange,
    TuningResult as TuningResult,
)
from .tunable_laser import (
    LaserCapabilities as LaserCapabilities,
    LaserRanges as LaserRanges,
    LaserState as LaserState,
    LaserSweep as LaserSweep,
    SweepLog as SweepLog,
    TunableLaser as TunableLaser,
)
