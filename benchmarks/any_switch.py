"""Calibrate Benes switches from the powers at their edges, and set random permutations, judged by the hidden chip.

Run: .venv/bin/python benchmarks/any_switch.py [--ports 8 16] [--permutations 1000] [--connected 100]
         [--heated-arms 1 2]

For each size and number of heated arms one JSON document is printed: settings per element, the extinction of every
element beside the best that its couplers allow, and the time to route random permutations. On a fabric of modules,
``--connected`` of them are connected, and every circuit is proven by its light.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import yaml

# benchmarks/calibration.py would hide the package of that name.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.matrices import bench_of  # noqa: E402  # the path above


def fabric_of(ports: int) -> dict[str, Any]:
    """Return the bench file of a switch between SFP+ modules, one at each input and output."""
    modules: dict[str, Any] = {f"sfp{port}": {"kind": "sfp-8472", "serial": f"ER-{port}"} for port in range(ports)}
    modules |= {f"pol{port}": {"kind": "oz-epc04"} for port in range(ports)}
    driver = {"kind": "lumion-mesh", "serial": "BN-0001", "heater_max_ma": 2.5, "heater_ohm": 1000.0}
    return {
        "version": 1,
        "name": f"fabric-{ports}",
        "devices": {"driver": driver | {"total_power_mw": 800.0}, **modules},
        "mesh": {
            "controller": "driver",
            "topology": "benes",
            "ports": ports,
            "typical": {"p_pi_min_mw": 1.2, "p_pi_max_mw": 1.8, "puc_loss_db": 0.3, "access_loss_db": 1.5},
        },
        "wiring": {
            "inputs": [
                {"transponder": f"sfp{port}", "port": port, "polarization": f"pol{port}", "loss_db": 0.5}
                for port in range(ports)
            ],
            "outputs": [{"port": ports + port, "transponder": f"sfp{port}", "loss_db": 0.3} for port in range(ports)],
        },
    }


def calibrated(
    document: dict[str, Any], seed: int, folder: Path, random_settings: int | None = None, levels: int = 8
) -> tuple[Path, Path, float]:
    """Calibrate a bench; return its file, the record, and the number of settings."""
    from calibration.measure.bench_probe import BenchProbe
    from calibration.measure.heater_sweeps import HeaterSweepPlan
    from calibration.run.bootstrap import BootstrapPlan
    from calibration.run.procedure import Calibration
    from lumion_hw.bench.bench import Bench
    from lumion_hw.storage import save_record

    path, out = folder / f"{document['name']}.yaml", folder / f"{document['name']}.json"
    path.write_text(yaml.safe_dump(document))
    with Bench.emulate(path, seed=seed) as bench, bench.dark():
        probe = BenchProbe(bench)
        probe.align_all()
        plan = BootstrapPlan(sweeps=HeaterSweepPlan(levels=levels), random_settings=random_settings)
        run = Calibration(probe, probe.device_under_test(), seed, plan=plan)
        save_record(run.run(), out)
    return path, out, float(run.logbook.effort.settings)


def extinctions(path: Path, out: Path, seed: int, states: int) -> dict[str, Any]:
    """Return the leakage of elements in random states, beside the least that their couplers allow."""
    from lumion_hw.bench.bench import Bench
    from lumion_hw.mesh.layout.topology import State
    from lumion_hw.mesh.programming.inverse import heater_currents_ma
    from lumion_hw.storage import load_record

    record = load_record(out)
    mesh, rng = record.mesh, np.random.default_rng(seed)
    errors: list[float] = []
    limits: list[float] = []
    with Bench.emulate(path, seed=seed) as bench, bench.dark():
        for _ in range(states):
            bars = rng.random(mesh.n_pucs) < 0.5
            wanted: dict[int, State] = {puc: "bar" if bars[puc] else "cross" for puc in range(mesh.n_pucs)}
            bench.mesh.program(heater_currents_ma(record, wanted))
            cells = bench.emulated.world.cells()
            phases = cells.phase_upper - cells.phase_lower - np.where(bars, np.pi, 0.0)
            errors += (np.sin(0.5 * phases) ** 2).tolist()
            first, second = (np.arcsin(np.sqrt(eta)) for eta in (cells.eta_in, cells.eta_out))
            limits += np.where(bars, np.sin(first - second) ** 2, np.cos(first + second) ** 2).tolist()
    db = 10.0 * np.log10(np.maximum(np.array([errors, limits]), 1e-12))
    return {
        "worst leakage from phase errors, dB": round(float(db[0].max()), 1),
        "median leakage from couplers, dB": round(float(np.median(db[1])), 1),
        "elements within 1 dB of their best": round(
            float(np.mean(np.array(errors) < 0.26 * np.array(limits) + 1e-6)), 4
        ),
    }


def permutations(ports: int, count: int, seed: int) -> dict[str, Any]:
    """Return how many random permutations are routed, and the time to find all paths of one."""
    from lumion_hw.errors import NoPathError
    from lumion_hw.mesh.layout.topologies import build_mesh
    from lumion_hw.mesh.routing.request import RouteRequest
    from lumion_hw.mesh.routing.router import route

    mesh, rng = build_mesh("benes", (ports,)), np.random.default_rng(seed)
    times, routed = [], 0
    for _ in range(count):
        pairs = list(enumerate((ports + rng.permutation(ports)).tolist()))
        began = time.process_time()
        try:
            routed += len(route(mesh, RouteRequest(pairs)).paths) == ports
        except NoPathError:
            continue
        finally:
            times.append(time.process_time() - began)
    return {
        "permutations": count,
        "routed": routed,
        "planning, median ms": round(1e3 * float(np.median(times)), 2),
        "planning, worst ms": round(1e3 * max(times), 1),
    }


def connected(ports: int, count: int, seed: int, folder: Path) -> dict[str, Any]:
    """Connect random permutations of modules, each proven by its light; return how many stood."""
    from lumion_hw.bench.bench import Bench
    from lumion_hw.circuits import CircuitRequest, CircuitService
    from lumion_hw.errors import LumionError

    path, out, _ = calibrated(fabric_of(ports), seed, folder)
    rng, proven, margins = np.random.default_rng(seed), 0, list[float]()
    with CircuitService.open(lambda: Bench.emulate(path, seed=seed), out, folder / "state") as service:
        for number in range(count):
            requests = [
                CircuitRequest(f"sfp{source}", f"sfp{target}") for source, target in enumerate(rng.permutation(ports))
            ]
            try:
                # Inputs stay aligned: later permutations search the polarization only where light is missing.
                proofs = service.connect(requests, align=number == 0)
            except LumionError as error:
                print(f"not connected: {error}", flush=True)
                continue
            proven += len(proofs) == ports
            margins += [proof.margin_db for proof in proofs if proof.margin_db is not None]
            service.disconnect()
    return {"permutations connected": count, "proven": proven, "smallest margin, dB": round(min(margins), 1)}


def main() -> None:
    """Print one document per size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ports", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--heated-arms", type=int, nargs="+", choices=(1, 2), default=[1, 2])
    parser.add_argument("--random-settings", type=int, help="instead of the usual number, which serves any chip")
    parser.add_argument("--levels", type=int, default=8, help="currents per heater sweep")
    parser.add_argument("--permutations", type=int, default=1000)
    parser.add_argument("--connected", type=int, default=100)
    parser.add_argument("--states", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for ports, arms in product(given.ports, given.heated_arms):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            elements = ports // 2 * (2 * ports.bit_length() - 3)
            document = bench_of(ports, "benes", realistic=False)
            if arms == 1:
                document["mesh"]["heater_channels"] = {element: [element, None] for element in range(elements)}
            path, out, settings = calibrated(document, given.seed, folder, given.random_settings, given.levels)
            result = {"switch": f"benes {ports}", "heated arms": arms, "elements": elements}
            result["readings per element"] = round(settings / elements, 1)
            result |= extinctions(path, out, given.seed, given.states)
            result |= permutations(ports, given.permutations, given.seed)
            if given.connected and ports == min(given.ports) and arms == max(given.heated_arms):
                result |= connected(ports, given.connected, given.seed, folder)
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
