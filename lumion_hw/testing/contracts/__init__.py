"""Test suites (contracts) that every driver of an interface must pass.

To test a driver, subclass a contract, name the subclass ``Test...``, and define its required fixtures, such as
``driver``. Tests without their optional fixtures are skipped. :class:`WireFixtures` runs a contract on an emulated
device. Import from :mod:`lumion_hw.testing`.
"""

from lumion_hw.testing.contracts.amplifier import OpticalAmplifierContract
from lumion_hw.testing.contracts.attenuator import VariableAttenuatorContract
from lumion_hw.testing.contracts.breakout import BreakoutTransponderContract
from lumion_hw.testing.contracts.coherent import CoherentTransponderContract
from lumion_hw.testing.contracts.common import DeviceContract
from lumion_hw.testing.contracts.mesh_controller import MeshControllerContract
from lumion_hw.testing.contracts.mesh_states import MeshStatesContract
from lumion_hw.testing.contracts.optical_switch import OpticalSwitchContract
from lumion_hw.testing.contracts.polarimeter import PolarimeterContract
from lumion_hw.testing.contracts.polarization import PolarizationControllerContract
from lumion_hw.testing.contracts.polarization_optimizer import PolarizationOptimizerContract
from lumion_hw.testing.contracts.power_meter import PowerMeterContract
from lumion_hw.testing.contracts.spectrum_analyzer import SpectrumAnalyzerContract
from lumion_hw.testing.contracts.temperature import TemperatureControllerContract
from lumion_hw.testing.contracts.transponder import TransponderContract
from lumion_hw.testing.contracts.tunable_laser import TunableLaserContract
from lumion_hw.testing.contracts.wire_fixtures import WireFixtures

__all__ = [
    "BreakoutTransponderContract",
    "CoherentTransponderContract",
    "DeviceContract",
    "MeshControllerContract",
    "MeshStatesContract",
    "OpticalAmplifierContract",
    "OpticalSwitchContract",
    "PolarimeterContract",
    "PolarizationControllerContract",
    "PolarizationOptimizerContract",
    "PowerMeterContract",
    "SpectrumAnalyzerContract",
    "TemperatureControllerContract",
    "TransponderContract",
    "TunableLaserContract",
    "VariableAttenuatorContract",
    "WireFixtures",
]
