"""Remaining error after every stage of the calibration, and the effect of its choices.

Run: .venv/bin/python benchmarks/calibration_method.py [first seed] [number of seeds]
Uses the emulated 72-PUC mesh with 28 fibre ports as sources and monitors, every non-ideality of the emulator, and noise
of 0.5 % and -60 dBm. The truth is used only to judge the results.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The simulated bench is that of the tests. This folder is removed from the path: it would hide the package calibration.
sys.path.pop(0)
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from calibration.fit.bound import plan_bound
from calibration.fit.global_fit import GlobalFit, Round
from calibration.fit.phase_search import PassiveGuess, PhaseSearch, SearchPlan, guess_passive_phases, mean_levels
from calibration.measure.design import IncrementalSettings
from calibration.measure.logbook import HardwareTimes, Logbook
from calibration.model.device_under_test import DeviceUnderTest
from calibration.model.gauge import loop_rms_rad, wrapped
from calibration.model.heating import Heating
from calibration.model.ideal_mesh import AmplitudeModel, MeanLight
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel
from calibration.model.parameters import MeshParameters
from calibration.model.priors import FREE_GROUPS, default_prior
from calibration.run.bootstrap import Bootstrap, Start
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_bench import SimulatedBench
from tests.calibration.simulated_mesh import FLOOR_MA, FULL_TURN_MA, RELATIVE, SimulatedMesh

WHOLE = HexMesh.smartlight()
NOISE = NoiseModel(RELATIVE, FLOOR_MA)
LAWS_KNOWN = ("passive_phase_rad", "loss_db", "loops")
SURE = 5.0


def table(title: str, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print(f"\n**{title}**\n\n| " + " | ".join(headers) + " |\n|" + "---|" * len(headers))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def passive_errors(simulated: SimulatedMesh, found_rad: np.ndarray) -> np.ndarray:
    return np.abs(wrapped(found_rad - simulated.truth.passive_phase))


def errors_mrad(simulated: SimulatedMesh, fitted: MeshParameters) -> str:
    passive = 1e3 * rms(passive_errors(simulated, fitted.passive_phase_rad))
    loops = 1e3 * loop_rms_rad(WHOLE, fitted.joint_phase_rad - simulated.truth.joint_phase)
    return f"{passive:.3g} / {loops:.3g}"


def law_errors(simulated: SimulatedMesh, start: Start) -> np.ndarray:
    """Return the phase error at a phase of one turn, in rad, per heater."""
    true, errors = simulated.laws(2.05), []
    for heater, fit in enumerate(start.heaters):
        if fit.law is not None:
            square = 2.0 * np.pi / true[heater, 0]
            errors.append(fit.law.phase_rad(float(np.sqrt(square))) - true[heater] @ square ** np.arange(1, 4))
    return np.array(errors)


def stages(seed: int) -> list[object]:
    """Run the whole calibration and print the remaining errors after every stage."""
    bench = SimulatedBench.draw(WHOLE, seed)
    logbook = Logbook(bench)
    channels = tuple(range(2 * WHOLE.n_pucs))
    device = DeviceUnderTest("S-1", "simulated", "1.0", channels, 1550.0, 1000.0, (1.2, 2.0), 0.8)
    bootstrap = Bootstrap(logbook, device, seed)
    start = bootstrap.run()
    simulated, laws = bench.simulated, law_errors(bench.simulated, start)
    random, survey, light = start.random, start.survey, MeanLight.of(WHOLE)
    heated = Heating(WHOLE, device.heater_ohm).phases(
        bootstrap.nominal(survey.sources, survey.monitors), random.currents_ma
    )
    levels = mean_levels(random, survey.sources, light)
    first = guess_passive_phases(random, heated.arm_rad, survey.sources, light, levels)
    guess, sure = passive_errors(simulated, first.passive_rad), first.strength > SURE
    model = MeshModel(WHOLE, start.survey.sources, start.survey.monitors)
    rounds: list[Round] = []
    began = time.process_time()
    fit = GlobalFit(
        model,
        Likelihood(start.random, start.survey.noise),
        default_prior(model.space, start.parameters),
        on_round=rounds.append,
    ).run(start.parameters)
    seconds = time.process_time() - began
    discrepancies = [one.discrepancy for one in rounds]
    freed = next(
        (number for number, discrepancy in enumerate(discrepancies, 1) if discrepancy == 0.0), len(discrepancies)
    )
    return [
        seed,
        f"{len(start.random)} / {logbook.effort.settings}",
        f"{logbook.effort.hardware_s:.1f}",
        f"{1e3 * rms(laws):.0f} / {1e3 * np.abs(laws).max():.0f}",
        f"{sure.sum()} of {len(sure)}",
        f"{np.median(guess[sure]):.2f} / {np.median(guess[~sure]):.2f}",
        int((guess > 1.0).sum()),
        f"{start.search.starts} / {start.search.steps}",
        f"{100 * start.search.unexplained:.2f}",
        errors_mrad(simulated, start.parameters),
        f"{discrepancies[0]:.2g}, 0 after {freed}",
        f"{len(rounds)} / {seconds:.1f}",
        errors_mrad(simulated, fit.parameters),
        f"{fit.chi2_per_dof:.2f}",
    ]


STAGES = (
    "seed", "settings: random / in all", "hardware s", "laws: mrad at one turn, rms / worst",
    "lock-in above 5 σ",
    "their median error rad / of the others", "beyond 1 rad", "search: starts / steps", "unexplained %",
    "start: α / loops mrad rms", "discrepancy η", "fit: rounds / CPU s", "fitted: α / loops mrad rms", "χ²/dof",
)  # fmt: skip


def searched(simulated: SimulatedMesh, count: int, *, informed: bool) -> str:
    """Search once with the true heater laws, from the lock-in result or at random; return steps and residual."""
    sources, rng = np.array(simulated.ports), np.random.default_rng(8)
    currents, _ = simulated.random_settings(count)
    number = np.arange(count) * len(sources) // count
    readings = simulated.measure(currents, sources[number])
    light, heated = MeanLight.of(WHOLE), Heating(WHOLE).phases(simulated.parameters(), currents)
    levels = mean_levels(readings, simulated.ports, light)
    guess = guess_passive_phases(readings, heated.arm_rad, simulated.ports, light, levels)
    if not informed:
        guess = PassiveGuess(rng.uniform(0.0, 2.0 * np.pi, WHOLE.n_pucs), np.zeros(WHOLE.n_pucs))
    model = AmplitudeModel(WHOLE, simulated.ports, simulated.ports)
    plan = SearchPlan(starts=1)
    search = PhaseSearch(model, readings, number, heated.arm_rad, heated.joint_rad, NOISE, plan, rng)
    result = search.run(guess, levels, lambda step, share: None)
    home = result.unexplained < plan.unexplained
    return f"{100 * result.unexplained:.2f} % after {result.steps}{'' if home else ' (no)'}"


def walk_of(simulated: SimulatedMesh, **kind: float) -> IncrementalSettings:
    return IncrementalSettings(np.full(2 * WHOLE.n_pucs, FULL_TURN_MA), simulated.ports, simulated.ports, **kind)  # type: ignore[arg-type]


def bound_mrad(
    simulated: SimulatedMesh, walk: IncrementalSettings, count: int, free: Sequence[str]
) -> tuple[str, float]:
    """Return the Cramér-Rao bound of random settings with the prior, and their hardware time."""
    model, truth = MeshModel(WHOLE, simulated.ports, simulated.ports), simulated.parameters()
    plan = walk.random(count, np.random.default_rng(2))
    bound = plan_bound(model, truth, plan, NOISE, default_prior(model.space, truth), free)
    text = f"{1e3 * bound.rms('passive_phase_rad'):.2f} / {1e3 * bound.rms('loops'):.2f}"
    return text, HardwareTimes().plan_s(plan)


def choices(seed: int) -> list[list[object]]:
    """Print the bounds of several kinds of random settings."""
    simulated = SimulatedMesh.draw(WHOLE, seed)
    cases: tuple[tuple[str, dict[str, float], int, Sequence[str]], ...] = (
        ("all heaters warm", {"off_share": 0.0}, 700, FREE_GROUPS),
        ("a quarter off, as in the procedure", {"off_share": 0.25}, 700, FREE_GROUPS),
        ("half off", {"off_share": 0.5}, 700, FREE_GROUPS),
        ("a quarter off, laws, couplers and crosstalk known", {"off_share": 0.25}, 700, LAWS_KNOWN),
        ("a quarter off, without rho6", {"off_share": 0.25}, 700, [name for name in FREE_GROUPS if name != "rho6"]),
        ("a quarter off, all 144 heaters change", {"off_share": 0.25, "changed": 144}, 249, FREE_GROUPS),
    )
    rows: list[list[object]] = []
    for title, kind, count, free in cases:
        bound_text, seconds = bound_mrad(simulated, walk_of(simulated, **kind), count, free)
        rows.append([title, count, f"{seconds:.1f}", bound_text])
    return rows


def over(seeds: range, cases: Sequence[Callable[[SimulatedMesh], str]]) -> list[list[object]]:
    return [[seed, *(case(SimulatedMesh.draw(WHOLE, seed)) for case in cases)] for seed in seeds]


def main() -> None:
    given = [int(argument) for argument in sys.argv[1:3]]
    first, count = given + [0, 5][len(given) :]
    seeds = range(first, first + count)
    table("Stage by stage", STAGES, [stages(seed) for seed in seeds])
    counts = (50, 100, 200, 400, 700)
    headers = ("seed", *(f"{n} settings" for n in counts), "400, passive phases drawn")
    cases = [lambda mesh, n=n: searched(mesh, n, informed=True) for n in counts]
    cases.append(lambda mesh: searched(mesh, 400, informed=False))
    table("One start of the search, laws known", headers, over(seeds, cases))
    table("Bounds", ("random settings", "number", "hardware s", "α / loops mrad rms"), choices(first))


if __name__ == "__main__":
    main()
