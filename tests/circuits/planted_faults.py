"""Faults planted in an emulated bench for the tests of proof, diagnosis and rollback."""

from pathlib import Path

import yaml

from lumion_hw import Bench
from lumion_hw.bench.bench import load
from lumion_hw.circuits import CircuitRequest, PathSetup, plan_circuits
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.programming.inverse import heater_currents_ma
from lumion_hw.mesh.routing.request import opposite_state
from tests.circuits.known_mesh import SMALL


def stick(setup: PathSetup, puc: int, state: State) -> None:
    """Fix both heaters of a PUC permanently at the currents for this state."""
    currents_ma = heater_currents_ma(setup.record, {puc: state})
    for arm in (0, 1):
        setup.bench.emulated.faults.stick_heater(puc, arm, float(currents_ma[2 * puc + arm]))


def stick_on_the_way(setup: PathSetup, source: str, target: str, hop: int) -> int:
    """Make the PUC at a hop of the path that would be planned now stick in the other state; return it."""
    standing = setup.active.circuits if setup.active else ()
    plan = plan_circuits(setup.bench, setup.record, [CircuitRequest(source, target)], active=standing)
    puc = plan.circuits[0].path.pucs[hop]
    stick(setup, puc, opposite_state(plan.states[puc]))
    return puc


def with_fibres_swapped(bench: Bench, directory: Path, side: str, one: str, two: str) -> None:
    """Exchange the ports of two modules in the bench file, but not in the emulated optics."""
    document = yaml.safe_load(SMALL.read_text(encoding="utf-8"))
    fibres = {path["transponder"]: path for path in document["wiring"][side]}
    fibres[one]["port"], fibres[two]["port"] = fibres[two]["port"], fibres[one]["port"]
    path = directory / "swapped.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    bench.model = load(path)
    bench.wiring = bench.model.to_wiring()
