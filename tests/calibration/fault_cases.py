"""Faults of a bench, at places drawn from a seed, and the defects a calibration has to name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from calibration.measure.bench_probe import BenchProbe
from lumion_hw.bench.bench import Bench

Named = tuple[str, str, int]
"""Kind, element and number of a defect."""
Rng = np.random.Generator


@dataclass
class Moments:
    """What is to happen in the middle of a run.

    Attributes:
        due: Stage, share of it done, and what happens then.
    """

    due: list[tuple[str, float, Callable[[], None]]] = field(default_factory=list)

    def at(self, stage: str, share: float, action: Callable[[], None]) -> None:
        """Have something happen when so much of a stage is done."""
        self.due.append((stage, share, action))

    def reached(self, stage: str, done: int, total: int) -> None:
        """Let happen what is due."""
        ready = [entry for entry in self.due if entry[0] == stage and done >= entry[1] * total]
        self.due = [entry for entry in self.due if entry not in ready]
        for _, _, action in ready:
            action()


@dataclass(frozen=True)
class Case:
    """A fault.

    Attributes:
        inject: Injects it at a random place, at once or at moments of the run, and returns what has to be named.
        certified: Whether the rest can be calibrated at all.
    """

    inject: Injection
    certified: bool = True


Injection = Callable[[Bench, Rng, Moments], list[Named]]


def _puc(bench: Bench, rng: np.random.Generator) -> int:
    """Draw a PUC; every third time one at the rim that is a path of its own, or one next to a source."""
    mesh = bench.mesh.topology
    lit = [mesh.port_puc_port[path.port] // 4 for path in bench.wiring.inputs]
    rim = [puc for puc in range(mesh.n_pucs) if len(set(_ports_of(bench, puc))) >= 2]
    groups = [list(range(mesh.n_pucs)), rim, lit]
    broken = {heater // 2 for heater in bench.emulated.world.truth.stuck_current_ma}
    return int(rng.choice([puc for puc in groups[rng.integers(3)] if puc not in broken]))


def _ports_of(bench: Bench, puc: int) -> list[int]:
    return [port for port, at in enumerate(bench.mesh.topology.port_puc_port) if at // 4 == puc]


def _monitor(bench: Bench, rng: np.random.Generator) -> int:
    alive = [port for port in bench.mesh.monitor_ports if bench.emulated.world.truth.monitor_scale[port] > 0.0]
    return int(rng.choice(alive))


def _source(bench: Bench, rng: np.random.Generator) -> int:
    return int(rng.choice([path.port for path in bench.wiring.inputs]))


def nothing(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    return []


def dead_heater(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    puc, arm = _puc(bench, rng), int(rng.integers(2))
    bench.emulated.faults.stick_heater(puc, arm)
    return [("dead heater", "heater", 2 * puc + arm)]


def hot_heater(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    puc, arm = _puc(bench, rng), int(rng.integers(2))
    bench.emulated.faults.stick_heater(puc, arm, float(rng.uniform(0.3, 1.8)))
    return [("dead heater", "heater", 2 * puc + arm)]


def stuck_puc_defect(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    puc = _puc(bench, rng)
    for arm in (0, 1):
        bench.emulated.faults.stick_heater(puc, arm, float(rng.uniform(0.0, 1.5)) * float(rng.random() < 0.5))
    return [("stuck PUC", "puc", puc)]


def dead_monitor(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    port = _monitor(bench, rng)
    bench.emulated.faults.kill_monitor(port)
    return [("dead monitor", "monitor", port)]


def saturated_monitor(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    """A monitor whose amplifier is switched to a range so sensitive that it clips in part of the settings."""
    port = _monitor(bench, rng)
    bench.emulated.faults.scale_monitor(port, _clipping_factor(bench, port, rng))
    return [("saturated monitor", "monitor", port)]


def _clipping_factor(bench: Bench, port: int, rng: Rng) -> float:
    """Return the gain at which a monitor clips in about a fifth of random settings, by looking behind the scenes."""
    emulated = bench.emulated
    probe, seen = BenchProbe(bench), []
    for path in bench.wiring.inputs:
        probe.light_only_port(path.port)
        bench.clock.sleep(1.0)
        for _ in range(10):
            bench.mesh.program(rng.uniform(0.0, 2.0, 2 * bench.mesh.topology.n_pucs))
            seen.append(emulated.world.mesh_output_w()[port] * emulated.world.truth.monitor_scale[port])
    probe.switch_everything_off()
    return bench.mesh.monitor_full_scale_ma / (1e3 * bench.mesh.responsivity_a_per_w * float(np.quantile(seen, 0.8)))


def dead_port(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    port = _source(bench, rng)
    bench.emulated.faults.kill_port(port)
    return [("dead source", "source", port)]


def weak_heater(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    puc, arm = _puc(bench, rng), int(rng.integers(2))
    truth = bench.emulated.world.truth
    truth.p_pi_mw[2 * puc + arm] = 4.0  # 6.25 mW at most: 1.6 π, less than a fringe
    bench.emulated.world.disturb()
    return [("weak heater", "heater", 2 * puc + arm)]


def swapped_channels(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    one, other = sorted(int(heater) for heater in rng.choice(2 * bench.mesh.topology.n_pucs, 2, replace=False))
    bench.emulated.faults.swap_channels(one, other)
    return [("exchanged channels", "heater", one), ("exchanged channels", "heater", other)]


def shared_channel(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    one, other = (int(puc) for puc in rng.choice(bench.mesh.topology.n_pucs, 2, replace=False))
    heater, other_heater = 2 * one + int(rng.integers(2)), 2 * other + int(rng.integers(2))
    bench.emulated.faults.share_channel(heater, other_heater)
    return [("shared channel", "heater", heater)]


def unbalanced(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    puc = _puc(bench, rng)
    bench.emulated.faults.unbalance(puc, float(rng.choice([-1.0, 1.0])) * 0.12)
    return [("couplers off balance", "puc", puc)]


def temperature_ramp(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    slope = float(rng.choice([-1.0, 1.0])) * 0.15 / 15.0
    bench.emulated.faults.drift_temperature(lambda t: slope * t)
    return [("temperature drift", "chip", 0)]


def temperature_sine(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    phase = float(rng.uniform(0.0, 2.0 * math.pi))
    bench.emulated.faults.drift_temperature(lambda t: 0.05 * math.sin(2.0 * math.pi * t / 7.0 + phase))
    return [("temperature drift", "chip", 0)]


def laser_drift(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    port = _source(bench, rng)
    bench.emulated.faults.drift_power(port, lambda t: -0.6 * t / 15.0)
    return [("power drift", "source", port)]


def polarization_step(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    path = bench.wiring.inputs[int(rng.integers(len(bench.wiring.inputs)))]
    run.at("sweeps", 0.5, lambda: bench.emulated.faults.turn_polarization(path.transponder, 0.6))
    return [("power drift", "source", path.port)]


def mode_hop(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    port = _source(bench, rng)
    run.at("sweeps", 0.5, lambda: bench.emulated.faults.hop_mode(port, 3e9))
    return [("mode hop", "source", port)]


def resistance_walk(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    bench.emulated.faults.walk_resistances(1e-3 / math.sqrt(86400.0))
    return []  # within the model: nothing to be named


def heater_dies(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    puc, arm = _puc(bench, rng), int(rng.integers(2))
    faults, stage = bench.emulated.faults, ("sweeps", "random settings")[rng.integers(2)]
    run.at(stage, float(rng.uniform(0.1, 0.8)), lambda: faults.after(0.1, lambda: faults.stick_heater(puc, arm)))
    return [("dead heater", "heater", 2 * puc + arm)]


def monitor_dies(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
    port = _monitor(bench, rng)
    faults, stage = bench.emulated.faults, ("sweeps", "random settings")[rng.integers(2)]
    run.at(stage, float(rng.uniform(0.1, 0.8)), lambda: faults.after(0.1, lambda: faults.kill_monitor(port)))
    return [("dead monitor", "monitor", port)]


def _joined(*parts: Injection) -> Case:
    def inject(bench: Bench, rng: Rng, run: Moments) -> list[Named]:
        return [named for part in parts for named in part(bench, rng, run)]

    return Case(inject)


CASES: dict[str, Case] = {
    "none": Case(nothing),
    "dead heater": Case(dead_heater),
    "heater stuck at a current": Case(hot_heater),
    "stuck PUC": Case(stuck_puc_defect),
    "dead monitor": Case(dead_monitor),
    "saturated monitor": Case(saturated_monitor),
    "chip warms by 0.15 K": Case(temperature_ramp),
    "chip swings by 50 mK": Case(temperature_sine),
    "laser fades by 0.6 dB": Case(laser_drift),
    "polarization step": Case(polarization_step),
    "resistances walk": Case(resistance_walk),
    "heater dies in the run": Case(heater_dies),
    "monitor dies in the run": Case(monitor_dies),
    "all of the goal": _joined(
        dead_heater, stuck_puc_defect, dead_monitor, saturated_monitor, temperature_ramp, laser_drift
    ),
    "dead port": Case(dead_port),
    "weak heater": Case(weak_heater),
    "couplers off balance": Case(unbalanced),
    "mode hop of 3 GHz": Case(mode_hop),
    "channels exchanged": Case(swapped_channels, certified=False),
    "one channel heats two heaters": Case(shared_channel, certified=False),
}
