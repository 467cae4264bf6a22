from .measure.bench_probe import BenchProbe as BenchProbe
from .measure.probe import Probe as Probe, tune_to_record as tune_to_record
from .model.device_under_test import DeviceUnderTest as DeviceUnderTest
from .model.parameters import MeshParameters as MeshParameters
from .model.space import ParameterSpace as ParameterSpace, space_from_record as space_from_record
from .record.comparison import Comparison as Comparison, compare_records as compare_records
from .record.conversion import (
    Origin as Origin,
    build_record as build_record,
    covariance_from_record as covariance_from_record,
    parameters_from_record as parameters_from_record,
)
from .record.export import write_npz as write_npz, write_tables as write_tables
from .record.raw_data import load_raw as load_raw
from .report.summary import write_report as write_report
from .run.bench_jobs import BenchOutcome as BenchOutcome, calibrate_benches as calibrate_benches, jobs_for as jobs_for
from .run.dry_run import DryRun as DryRun, dry_run as dry_run
from .run.journaled_run import calibrate as calibrate
from .run.matrices import (
    Fidelity as Fidelity,
    MatrixMeasurement as MatrixMeasurement,
    heater_limits as heater_limits,
    measure_matrix as measure_matrix,
    refine_matrix as refine_matrix,
)
from .run.planning import Goal as Goal
from .run.procedure import Calibration as Calibration
from .run.renewal import DriftRun as DriftRun
from .run.verification import out_of_tolerance as out_of_tolerance, verify as verify, verify_at as verify_at
