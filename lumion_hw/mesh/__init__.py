"""The photonic mesh as mathematics: topology, unit cell, scattering, routing, calibration record and its inverse.

The modules inside are private: users import from here (docs/mesh.md, docs/programming.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lumion_hw.public_names import public_names

if TYPE_CHECKING:
    from lumion_hw.mesh.layout.faults import MeshFaults
    from lumion_hw.mesh.layout.hexagonal import HexMesh
    from lumion_hw.mesh.layout.rectangular import RectangularMesh
    from lumion_hw.mesh.layout.topologies import mesh_from_dict, mesh_of_label
    from lumion_hw.mesh.layout.topology import MeshTopology, State, Trace
    from lumion_hw.mesh.picture.drawing import PicturePath, mesh_svg
    from lumion_hw.mesh.programming.heater_currents import HeaterLimits, Programmed, PucTarget, program
    from lumion_hw.mesh.programming.known_mesh import KnownMesh
    from lumion_hw.mesh.programming.prediction import PathPrediction, Prediction, predict, predict_path
    from lumion_hw.mesh.programming.unitary import (
        UnitarySetting,
        fidelity,
        fidelity_up_to_port_phases,
        predicted_fidelities,
        program_unitary,
    )
    from lumion_hw.mesh.record.validity import CalibrationWarning, Policy, Use, check_validity
    from lumion_hw.mesh.routing.leakage import DarkRouting, route_dark
    from lumion_hw.mesh.routing.matchings import AllToAll, Configuration, all_to_all, fewest_configurations
    from lumion_hw.mesh.routing.parking import Parking, park
    from lumion_hw.mesh.routing.request import RouteRequest
    from lumion_hw.mesh.routing.result import Path, Routing, standing_states
    from lumion_hw.mesh.routing.router import route
    from lumion_hw.mesh.waves.adjoint import CellGradient, gradient
    from lumion_hw.mesh.waves.cell import UnitCells
    from lumion_hw.mesh.waves.crosstalk import ThermalCrosstalk
    from lumion_hw.mesh.waves.facets import entering_fraction
    from lumion_hw.mesh.waves.heater import HeaterLaw
    from lumion_hw.mesh.waves.scattering import Solver
    from lumion_hw.mesh.waves.sweep import SweepSolver

__all__ = [
    "AllToAll",
    "CalibrationWarning",
    "CellGradient",
    "Configuration",
    "DarkRouting",
    "HeaterLaw",
    "HeaterLimits",
    "HexMesh",
    "KnownMesh",
    "MeshFaults",
    "MeshTopology",
    "Parking",
    "Path",
    "PathPrediction",
    "PicturePath",
    "Policy",
    "Prediction",
    "Programmed",
    "PucTarget",
    "RectangularMesh",
    "RouteRequest",
    "Routing",
    "Solver",
    "State",
    "SweepSolver",
    "ThermalCrosstalk",
    "Trace",
    "UnitCells",
    "UnitarySetting",
    "Use",
    "all_to_all",
    "check_validity",
    "entering_fraction",
    "fewest_configurations",
    "fidelity",
    "fidelity_up_to_port_phases",
    "gradient",
    "mesh_from_dict",
    "mesh_of_label",
    "mesh_svg",
    "park",
    "predict",
    "predict_path",
    "predicted_fidelities",
    "program",
    "program_unitary",
    "route",
    "route_dark",
    "standing_states",
]
if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names(
        __name__,
        {
            "adjoint": ("CellGradient", "gradient"),
            "cell": ("UnitCells",),
            "crosstalk": ("ThermalCrosstalk",),
            "facets": ("entering_fraction",),
            "faults": ("MeshFaults",),
            "heater": ("HeaterLaw",),
            "hexagonal": ("HexMesh",),
            "known_mesh": ("KnownMesh",),
            "matchings": ("AllToAll", "Configuration", "all_to_all", "fewest_configurations"),
            "picture": ("PicturePath", "mesh_svg"),
            "prediction": ("PathPrediction", "Prediction", "predict", "predict_path"),
            "programming": ("HeaterLimits", "Programmed", "PucTarget", "program"),
            "record_validity": ("CalibrationWarning", "Policy", "Use", "check_validity"),
            "rectangular": ("RectangularMesh",),
            "routing.leakage": ("DarkRouting", "route_dark"),
            "routing.parking": ("Parking", "park"),
            "routing.request": ("RouteRequest",),
            "routing.result": ("Path", "Routing", "standing_states"),
            "routing.router": ("route",),
            "scattering": ("Solver",),
            "sweep": ("SweepSolver",),
            "topologies": ("mesh_from_dict", "mesh_of_label"),
            "topology": ("MeshTopology", "State", "Trace"),
            "unitary": (
                "UnitarySetting",
                "fidelity",
                "fidelity_up_to_port_phases",
                "predicted_fidelities",
                "program_unitary",
            ),
        },
    )
