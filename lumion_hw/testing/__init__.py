"""For those who test: an emulated bench as a pytest fixture, and the promises of every interface as test suites.

The fixture ``bench`` comes with the package and needs no import. Drivers of new instruments subclass a contract;
:func:`wired` puts an emulated device behind a wire that can be cut and disturbed. The modules inside are private: users
import from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lumion_hw.public_names import public_names

if TYPE_CHECKING:
    from lumion_hw.testing.contracts.amplifier import OpticalAmplifierContract
    from lumion_hw.testing.contracts.attenuator import VariableAttenuatorContract
    from lumion_hw.testing.contracts.breakout import BreakoutTransponderContract
    from lumion_hw.testing.contracts.coherent import CoherentTransponderContract
    from lumion_hw.testing.contracts.common import DeviceContract
    from lumion_hw.testing.contracts.mesh_controller import MeshControllerContract
    from lumion_hw.testing.contracts.mesh_states import MeshStatesContract
    from lumion_hw.testing.contracts.optical_switch import OpticalSwitchContract
    from lumion_hw.testing.contracts.over_its_wire import OverItsWire
    from lumion_hw.testing.contracts.polarimeter import PolarimeterContract
    from lumion_hw.testing.contracts.polarization import PolarizationControllerContract
    from lumion_hw.testing.contracts.polarization_optimizer import PolarizationOptimizerContract
    from lumion_hw.testing.contracts.power_meter import PowerMeterContract
    from lumion_hw.testing.contracts.spectrum_analyzer import SpectrumAnalyzerContract
    from lumion_hw.testing.contracts.temperature import TemperatureControllerContract
    from lumion_hw.testing.contracts.transponder import TransponderContract
    from lumion_hw.testing.contracts.tunable_laser import TunableLaserContract
    from lumion_hw.testing.wires import TRANSPORTS, DisturbedLink, WireUnderTest, clock_for, wired

__all__ = [
    "TRANSPORTS",
    "BreakoutTransponderContract",
    "CoherentTransponderContract",
    "DeviceContract",
    "DisturbedLink",
    "MeshControllerContract",
    "MeshStatesContract",
    "OpticalAmplifierContract",
    "OpticalSwitchContract",
    "OverItsWire",
    "PolarimeterContract",
    "PolarizationControllerContract",
    "PolarizationOptimizerContract",
    "PowerMeterContract",
    "SpectrumAnalyzerContract",
    "TemperatureControllerContract",
    "TransponderContract",
    "TunableLaserContract",
    "VariableAttenuatorContract",
    "WireUnderTest",
    "clock_for",
    "wired",
]
if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names(
        __name__,
        {
            "contracts.amplifier": ("OpticalAmplifierContract",),
            "contracts.attenuator": ("VariableAttenuatorContract",),
            "contracts.optical_switch": ("OpticalSwitchContract",),
            "contracts.spectrum_analyzer": ("SpectrumAnalyzerContract",),
            "contracts.temperature": ("TemperatureControllerContract",),
            "contracts.breakout": ("BreakoutTransponderContract",),
            "contracts.coherent": ("CoherentTransponderContract",),
            "contracts.common": ("DeviceContract",),
            "contracts.mesh_controller": ("MeshControllerContract",),
            "contracts.mesh_states": ("MeshStatesContract",),
            "contracts.over_its_wire": ("OverItsWire",),
            "contracts.polarimeter": ("PolarimeterContract",),
            "contracts.polarization": ("PolarizationControllerContract",),
            "contracts.polarization_optimizer": ("PolarizationOptimizerContract",),
            "contracts.power_meter": ("PowerMeterContract",),
            "contracts.transponder": ("TransponderContract",),
            "contracts.tunable_laser": ("TunableLaserContract",),
            "wires": ("TRANSPORTS", "DisturbedLink", "WireUnderTest", "clock_for", "wired"),
        },
    )
