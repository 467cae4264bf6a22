from .layout.faults import MeshFaults as MeshFaults
from .layout.hexagonal import HexMesh as HexMesh
from .layout.rectangular import RectangularMesh as RectangularMesh
from .layout.topologies import mesh_from_dict as mesh_from_dict, mesh_from_label as mesh_from_label
from .layout.topology import MeshTopology as MeshTopology, State as State, Trace as Trace
from .picture.drawing import PicturePath as PicturePath, mesh_svg as mesh_svg
from .programming.calibrated_mesh import CalibratedMesh as CalibratedMesh
from .programming.heater_currents import (
    HeaterLimits as HeaterLimits,
    ProgrammedCurrents as ProgrammedCurrents,
    PucTarget as PucTarget,
    program_pucs as program_pucs,
)
from .programming.matrix import (
    MatrixSetting as MatrixSetting,
    amplitude_fidelity as amplitude_fidelity,
    fidelity as fidelity,
    fidelity_up_to_port_phases as fidelity_up_to_port_phases,
    predicted_fidelities as predicted_fidelities,
    program_matrix as program_matrix,
    reachable_phases as reachable_phases,
    source_detunings_hz as source_detunings_hz,
)
from .programming.prediction import (
    PathPrediction as PathPrediction,
    Prediction as Prediction,
    predict_path as predict_path,
    predict_pucs as predict_pucs,
)
from .record.validity import (
    CalibrationWarning as CalibrationWarning,
    Policy as Policy,
    UseConditions as UseConditions,
    check_validity as check_validity,
)
from .routing.leakage import LowCrosstalkRouting as LowCrosstalkRouting, route_low_crosstalk as route_low_crosstalk
from .routing.matchings import (
    AllToAll as AllToAll,
    Configuration as Configuration,
    all_to_all as all_to_all,
    min_configurations as min_configurations,
)
from .routing.parking import Parking as Parking, park_unused_pucs as park_unused_pucs
from .routing.request import RouteRequest as RouteRequest
from .routing.result import Path as Path, Routing as Routing, states_for_paths as states_for_paths
from .routing.router import route as route
from .waves.adjoint import CellGradient as CellGradient, gradient as gradient
from .waves.cell import UnitCells as UnitCells
from .waves.crosstalk import ThermalCrosstalk as ThermalCrosstalk
from .waves.facets import entering_fraction as entering_fraction
from .waves.heater import HeaterLaw as HeaterLaw
from .waves.scattering import Solver as Solver
from .waves.sweep import SweepSolver as SweepSolver
