"""Type of any open device of a bench."""

from lumion_hw.interfaces.amplifier import OpticalAmplifier
from lumion_hw.interfaces.attenuator import VariableAttenuator
from lumion_hw.interfaces.mesh_controller import MeshController
from lumion_hw.interfaces.mesh_states import MeshStates
from lumion_hw.interfaces.optical_switch import OpticalSwitch
from lumion_hw.interfaces.polarization import Polarimeter, PolarizationController, PolarizationOptimizer
from lumion_hw.interfaces.power_meter import PowerMeter
from lumion_hw.interfaces.spectrum_analyzer import SpectrumAnalyzer
from lumion_hw.interfaces.temperature import TemperatureController
from lumion_hw.interfaces.transponder import Transponder
from lumion_hw.interfaces.tunable_laser import TunableLaser

OpenDevice = (
    MeshController
    | MeshStates
    | PowerMeter
    | Transponder
    | TunableLaser
    | PolarizationController
    | PolarizationOptimizer
    | Polarimeter
    | VariableAttenuator
    | OpticalSwitch
    | OpticalAmplifier
    | SpectrumAnalyzer
    | TemperatureController
)
