"""Time of two rounds of the global fit of a record's mesh, with one BLAS thread and with one per core.

``env -u OPENBLAS_NUM_THREADS python benchmarks/blas_threads.py record.json``
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

sys.path.pop(0)  # this folder has a module of the same name as the package calibration

import numpy as np
from threadpoolctl import threadpool_info

from calibration.fit.drift import DriftModel, prior_after_time
from calibration.fit.global_fit import GlobalFit
from calibration.measure.design import IncrementalSettings
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel, Observations
from calibration.model.space import space_from_record
from calibration.run.blas_threads import one_blas_thread
from calibration.run.renewal import RecordPosterior
from lumion_hw.storage import load_record

SETTINGS = 200


def main(path: str) -> None:
    record = load_record(Path(path))
    posterior, space = RecordPosterior.of(record), space_from_record(record)
    model = MeshModel(space.mesh, space.sources, space.monitors, record.heater_ohm)
    rng = np.random.default_rng(1)
    plan = IncrementalSettings(
        np.full(2 * space.mesh.n_pucs, 2.0), space.sources, space.monitors, settings_per_source=12
    ).random(SETTINGS, rng)
    predicted = model.predict(posterior.parameters, plan)
    reading = predicted * (1.0 + 0.005 * rng.standard_normal(predicted.shape))
    observations = Observations(
        plan.currents_ma, plan.source, plan.monitors, reading, np.zeros(predicted.shape, dtype=np.bool_)
    )
    likelihood = Likelihood(observations, NoiseModel(0.0064, 2e-5))
    prior = prior_after_time(space, posterior, DriftModel(), 1.0)
    for limit in (one_blas_thread, contextlib.nullcontext) * 2:
        with limit():
            threads = max(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
            began_s, began_cpu_s = time.monotonic(), time.process_time()
            GlobalFit(model, likelihood, prior, posterior.free).run(posterior.parameters, rounds=2)
            wall_s, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
            print(f"{threads} BLAS threads: {wall_s:.1f} s, {cpu_s:.1f} s of CPU time")


if __name__ == "__main__":
    main(sys.argv[1])
