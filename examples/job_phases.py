"""Switch circuits by the phases of a training job.

Run: python examples/job_phases.py JOB BENCH RECORD [--emulate] [--plot PICTURE].

The phases are read from a file. The circuits of each phase are routed, checked, set up once and proven, and then
switched by tag for ten iterations. The script prints the dark time of ports, the waiting time of an iteration, the
prediction of the model, and the heater power. examples/job_phases.yaml is such a file for tests/data/small.yaml.
"""

import argparse

from lumion_hw import Bench, load_record
from lumion_hw.circuits import PathSetup
from lumion_hw.schedules import (
    PhaseSwitch,
    load_phases,
    measured_iteration,
    model_with_measured_dark_times,
    plot_iteration,
    prepare,
)


def main():
    parser = argparse.ArgumentParser(description="Switch circuits by the phases of a training job.")
    for name in ("job", "bench", "record"):
        parser.add_argument(name)
    parser.add_argument("--emulate", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--plot")
    given = parser.parse_args()

    plan, record = load_phases(given.job), load_record(given.record)
    opened = Bench.emulate(given.bench, seed=given.seed) if given.emulate else Bench.open(given.bench)
    with opened as bench:
        prepared = prepare(bench.model, record, plan)
        for tag, phase in prepared.items():
            print(
                f"{tag}: {len(phase.circuits)} circuits, {len(phase.kept)} unchanged, "
                f"{phase.plan.heat_mw:.1f} mW of heat"
            )

        switch = PhaseSwitch(PathSetup(bench, record), prepared)
        proofs = switch.rehearse()
        print(f"{sum(map(len, proofs.values()))} circuits proven")
        for tag, change in switch.measure().items():
            print(f"to {tag}: {1e3 * change.light_s:.2f} ms to light, {1e3 * change.receivers_s:.1f} ms to receivers")

        phases = switch.run(plan, iterations=given.iterations)
        for phase in phases[-len(plan.phases) :]:
            dark = phase.switched.dark_s if phase.switched else {}
            ports = ", ".join(f"{a} to {b} {1e3 * seconds:.2f} ms" for (a, b), seconds in dark.items())
            print(f"{phase.tag}: waited {1e3 * phase.wait_s:.2f} ms, dark: {ports or 'none'}, {phase.heat_mw:.1f} mW")

        measured = measured_iteration(phases, given.iterations - 1, plan)
        modelled = model_with_measured_dark_times(phases, prepared, plan)
        print(f"iteration {1e3 * measured.total_s:.2f} ms, model {1e3 * modelled.total_s:.2f} ms")
        print(f"waiting for circuits: {100 * measured.waiting_share:.2f} %")
        energy_mj = sum((phase.end_s - phase.start_s) * phase.heat_mw for phase in phases)
        busy_s = sum(phase.end_s - phase.start_s for phase in phases)
        print(f"heaters: {energy_mj / busy_s:.1f} mW on average over {given.iterations} iterations")
        if given.plot:
            plot_iteration(plan, measured, given.plot, overwrite="any")


if __name__ == "__main__":
    main()
