"""Hardware time that optimized settings save until the phases of a mesh reach a given standard error.

Usage: OPENBLAS_NUM_THREADS=1 python benchmarks/chosen_settings.py RECORD [--sigma-mrad 1]

RECORD is a calibration record, preferably of the 72-PUC bench (`lumion-calibrate run lumion-prototype --emulate`),
whose mesh is used as the truth. After the random settings of the phase search, three strategies are compared by their
expected information, until passive phases and loops have the requested standard error or 60 s have passed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.pop(0)  # this folder has a module of the same name as the package calibration

import numpy as np

from calibration.fit.bound import plan_bound
from calibration.measure.design import OFF_SHARE, TRIES, Designer, IncrementalSettings
from calibration.measure.logbook import HardwareTimes
from calibration.model.likelihood import SETTING_DRIFT, with_model_error
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel
from calibration.model.priors import FREE_GROUPS, FREE_WITH_MODULES, Prior, default_prior
from calibration.model.space import space_from_record
from calibration.record.conversion import parameters_from_record
from calibration.run.bootstrap import BootstrapPlan, first_settings
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.storage import load_record

_MOST_S = 60.0


def main() -> None:
    """Compare the three strategies and print a table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("record", type=Path)
    arguments.add_argument("--sigma-mrad", type=float, default=1.0)
    options = arguments.parse_args()
    record = load_record(options.record)
    parameters, space = parameters_from_record(record), space_from_record(record)
    model = MeshModel(space.mesh, space.sources, space.monitors, record.heater_ohm)
    floor_ma = 1e-6 * float(np.median(parameters.monitor_ma_per_mw))
    noise = with_model_error(NoiseModel(0.005, record.quality.get("monitor_noise_floor_ma", floor_ma)))
    own = np.ptp(parameters.source_detuning_hz) > 0.0
    free = space.mask(FREE_WITH_MODULES if own else FREE_GROUPS)
    prior = default_prior(space, parameters).moved({"monitor_db": 0.15}, space)
    max_ma = CalibratedMesh.from_record(record).max_ma
    count = first_settings(space.mesh, len(space.monitors))
    usual = BootstrapPlan().off_share
    first = IncrementalSettings(
        max_ma, space.sources, space.monitors, settings_per_source=-(-count // len(space.sources)), off_share=usual
    )
    bound = plan_bound(
        model, parameters, first.random(count, np.random.default_rng(1)), noise, prior, free, SETTING_DRIFT
    )
    precision = np.zeros((space.size, space.size))
    precision[np.ix_(free, free)] = bound.information + bound.prior_information
    known = Prior(space.pack(parameters), np.full(space.size, np.inf), precision)
    print(
        f"{space.mesh.n_pucs} PUCs, {len(space.sources)} sources, {len(space.monitors)} monitors, {count} random first"
    )
    print(f"{'then':<44} {'settings':>8} {'hardware s':>10} {'sigma mrad':>10} {'CPU s':>6}")
    for name, off_share, tries in (
        (f"random, {usual:.0%} of the heaters off", usual, 1),
        (f"random, {OFF_SHARE:.0%} of the heaters off", OFF_SHARE, 1),
        (f"chosen from {TRIES}, {OFF_SHARE:.0%} of the heaters off", OFF_SHARE, TRIES),
    ):
        began_s = time.process_time()
        designer = Designer(model, parameters, noise, known, free, HardwareTimes(), drift=SETTING_DRIFT)
        walk = IncrementalSettings(max_ma, space.sources, space.monitors, settings_per_source=20, off_share=off_share)
        design = designer.choose(walk, _MOST_S, 1e-3 * options.sigma_mrad, np.random.default_rng(2), tries)
        cpu_s, reached = time.process_time() - began_s, 1e3 * designer.sigma_rad()
        print(f"{name:<44} {len(design.plan):>8} {design.seconds:>10.1f} {reached:>10.2f} {cpu_s:>6.1f}")


if __name__ == "__main__":
    main()
