"""How a mesh is measured: from light at its ports alone to heater laws, phases, couplers, losses and crosstalk.

The flow of a calibration, which :class:`calibration.run.procedure.Calibration` runs (docs/calibration.md, 5):

1. survey         which sources and monitors are alive, and how noisy readings are        measure/survey.py
2. sweeps         every heater once, on whatever background: its law                      measure/heater_sweeps.py
3. random         a few hundred random settings, the raw material of all that follows     measure/design.py, Walk
4. search         all passive and loop phases at once, roughly: a start for the fit       fit/phase_search.py
5. global fit     all parameters from all readings, by maximum likelihood                 fit/global_fit.py
6. diagnosis      what broke, drifted, or is physics of its own, and all fitted again     fit/diagnosed_fit.py
7. measuring on   settings that tell most per second, until the goal is reached           run/planning.py
8. fibres         losses from the mesh into its fibres, further wavelengths if asked for  measure/fibre_levels.py
9. verification   light on settings that no fit has seen, compared with the prediction    run/verification.py
10. record        parameters, covariance, faults and costs in one document                record/conversion.py

Rooms, each importing only those before it: ``model`` (the physics), ``measure``, ``diagnose``, ``fit``, ``record``,
``run`` (the procedure), ``report``. The procedure never sees the emulator's hidden truth; it drives a controller and
reads monitors through the same interfaces as any lab script. ``lumion-calibrate`` is its command line.

Scripts import what they need from here: ``from calibration import BenchProbe, Calibration``.
Everything else is private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lumion_hw.public_names import public_names

if TYPE_CHECKING:
    from calibration.measure.bench_probe import BenchProbe
    from calibration.measure.probe import Probe, tune_to_record
    from calibration.model.device_under_test import DeviceUnderTest
    from calibration.model.parameters import MeshParameters
    from calibration.model.space import ParameterSpace, space_of
    from calibration.record.comparison import Comparison, compare_records
    from calibration.record.conversion import Origin, covariance_of, parameters_of, record_from
    from calibration.record.export import write_npz, write_tables
    from calibration.record.raw_data import load_raw
    from calibration.report.summary import write_report
    from calibration.run.dry_run import DryRun, dry_run
    from calibration.run.journaled_run import calibrate
    from calibration.run.many_benches import BenchOutcome, calibrate_many, jobs_for
    from calibration.run.planning import Goal
    from calibration.run.procedure import Calibration
    from calibration.run.renewal import DriftRun
    from calibration.run.verification import out_of_tolerance, verify, verify_at

__all__ = [
    "BenchOutcome",
    "BenchProbe",
    "Calibration",
    "Comparison",
    "DeviceUnderTest",
    "DriftRun",
    "DryRun",
    "Goal",
    "MeshParameters",
    "Origin",
    "ParameterSpace",
    "Probe",
    "calibrate",
    "calibrate_many",
    "compare_records",
    "covariance_of",
    "dry_run",
    "jobs_for",
    "load_raw",
    "out_of_tolerance",
    "parameters_of",
    "record_from",
    "space_of",
    "tune_to_record",
    "verify",
    "verify_at",
    "write_npz",
    "write_report",
    "write_tables",
]
if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names(
        __name__,
        {
            "measure.bench_probe": ("BenchProbe",),
            "measure.probe": ("Probe", "tune_to_record"),
            "model.device_under_test": ("DeviceUnderTest",),
            "model.parameters": ("MeshParameters",),
            "model.space": ("ParameterSpace", "space_of"),
            "record.comparison": ("Comparison", "compare_records"),
            "record.conversion": ("Origin", "covariance_of", "parameters_of", "record_from"),
            "record.export": ("write_npz", "write_tables"),
            "record.raw_data": ("load_raw",),
            "report.summary": ("write_report",),
            "run.dry_run": ("DryRun", "dry_run"),
            "run.journaled_run": ("calibrate",),
            "run.many_benches": ("BenchOutcome", "calibrate_many", "jobs_for"),
            "run.planning": ("Goal",),
            "run.procedure": ("Calibration",),
            "run.renewal": ("DriftRun",),
            "run.verification": ("out_of_tolerance", "verify", "verify_at"),
        },
    )
