from .layout.faults import MeshFaults as MeshFaults
from .layout.hexagonal import HexMesh as HexMesh
from .layout.rectangular import RectangularMesh as RectangularMesh
from .layout.topologies import mesh_from_dict as mesh_from_dict, mesh_of_label as mesh_of_label
from .layout.topology import MeshTopology as MeshTopology, State as State, Trace as Trace
from .picture.drawing import PicturePath as PicturePath, mesh_svg as mesh_svg
from .programming.heater_currents import (
    HeaterLimits as HeaterLimits,
    Programmed as Programmed,
    PucTarget as PucTarget,
    program as program,
)
from .programming.known_mesh import KnownMesh as KnownMesh
from .programming.prediction import (
    PathPrediction as PathPrediction,
    Prediction as Prediction,
    predict as predict,
    predict_path as predict_path,
)
from .programming.unitary import (
    UnitarySetting as UnitarySetting,
    fidelity as fidelity,
    fidelity_up_to_port_phases as fidelity_up_to_port_phases,
    predicted_fidelities as predicted_fidelities,
    program_unitary as program_unitary,
)
from .record.validity import (
    CalibrationWarning as CalibrationWarning,
    Policy as Policy,
    Use as Use,
    check_validity as check_validity,
)
from .routing.leakage import DarkRouting as DarkRouting, route_dark as route_dark
from .routing.matchings import (
    AllToAll as AllToAll,
    Configuration as Configuration,
    all_to_all as all_to_all,
    fewest_configurations as fewest_configurations,
)
from .routing.parking import Parking as Parking, park as park
from .routing.request import RouteRequest as RouteRequest
from .routing.result import Path as Path, Routing as Routing, standing_states as standing_states
from .routing.router import route as route
from .waves.adjoint import CellGradient as CellGradient, gradient as gradient
from .waves.cell import UnitCells as UnitCells
from .waves.crosstalk import ThermalCrosstalk as ThermalCrosstalk
from .waves.facets import entering_fraction as entering_fraction
from .waves.heater import HeaterLaw as HeaterLaw
from .waves.scattering import Solver as Solver
from .waves.sweep import SweepSolver as SweepSolver
