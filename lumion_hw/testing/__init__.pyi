from .contracts.amplifier import OpticalAmplifierContract as OpticalAmplifierContract
from .contracts.attenuator import VariableAttenuatorContract as VariableAttenuatorContract
from .contracts.breakout import BreakoutTransponderContract as BreakoutTransponderContract
from .contracts.coherent import CoherentTransponderContract as CoherentTransponderContract
from .contracts.common import DeviceContract as DeviceContract
from .contracts.mesh_controller import MeshControllerContract as MeshControllerContract
from .contracts.mesh_states import MeshStatesContract as MeshStatesContract
from .contracts.optical_switch import OpticalSwitchContract as OpticalSwitchContract
from .contracts.polarimeter import PolarimeterContract as PolarimeterContract
from .contracts.polarization import PolarizationControllerContract as PolarizationControllerContract
from .contracts.polarization_optimizer import PolarizationOptimizerContract as PolarizationOptimizerContract
from .contracts.power_meter import PowerMeterContract as PowerMeterContract
from .contracts.spectrum_analyzer import SpectrumAnalyzerContract as SpectrumAnalyzerContract
from .contracts.temperature import TemperatureControllerContract as TemperatureControllerContract
from .contracts.transponder import TransponderContract as TransponderContract
from .contracts.tunable_laser import TunableLaserContract as TunableLaserContract
from .contracts.wire_fixtures import WireFixtures as WireFixtures
from .known_record import record_of_truth as record_of_truth
from .wires import (
    TRANSPORTS as TRANSPORTS,
    DisturbedLink as DisturbedLink,
    WireUnderTest as WireUnderTest,
    clock_for as clock_for,
    wired as wired,
)
