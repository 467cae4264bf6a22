"""A bulk change of twenty cross-connects on a Benes switch of 32 ports: one commit, and only changed ports go dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from lumion_hw import Bench
from lumion_hw.circuits import BenchLock, CircuitJournal, CircuitService
from lumion_hw.serving.circuit_jobs import CircuitJobs
from tests.circuits.known_mesh import record_of_truth
from tests.serving.test_ocs import entries, n_changes

N_PORTS, N_CONNECTED = 32, 20


def bench_file(directory: Path) -> Path:
    """Write a bench file with one SFP+ module and polarization controller at each port of the switch."""
    modules = {f"sfp{i}": {"kind": "sfp-8472", "serial": f"ER-{i}"} for i in range(N_PORTS)}
    controllers = {f"pol{i}": {"kind": "oz-epc04"} for i in range(N_PORTS)}
    driver = {"kind": "lumion-mesh", "serial": "BN-1", "heater_max_ma": 2.5, "heater_ohm": 1e3, "total_power_mw": 8e3}
    typical = {"p_pi_min_mw": 1.2, "p_pi_max_mw": 1.8, "puc_loss_db": 0.2, "access_loss_db": 1.0}
    document = {
        "version": 1,
        "name": "benes-32",
        "devices": {"driver": driver, **modules, **controllers},
        "mesh": {"controller": "driver", "topology": "benes", "ports": N_PORTS, "typical": typical},
        "wiring": {
            "inputs": [
                {"transponder": f"sfp{i}", "port": i, "polarization": f"pol{i}", "loss_db": 2.0} for i in range(N_PORTS)
            ],
            "outputs": [{"port": N_PORTS + i, "transponder": f"sfp{i}", "loss_db": 0.3} for i in range(N_PORTS)],
        },
    }
    path = directory / "benes_32.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


@pytest.mark.long
def test_a_bulk_change_of_twenty_cross_connects_is_one_commit_and_only_changed_ports_go_dark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bench.emulate(bench_file(tmp_path), seed=3) as bench, BenchLock(tmp_path, "test") as lock:
        record = record_of_truth(bench)
        with CircuitJournal(tmp_path, bench.model.name, bench.mesh.topology.sha256) as journal:
            service = CircuitService(bench, record, journal, lock)
            service.restore()
            jobs = CircuitJobs(bench, tmp_path, lambda: service, lambda stage: None, lambda: None)
            names = [f"{i}A-{N_PORTS + i * 7 % N_PORTS}B" for i in range(N_CONNECTED)]
            connected = jobs.cross_connect({"OCS_CROSS_CONNECT": entries(*names)})()
            assert len(connected["connected"]) == N_CONNECTED
            assert n_changes(tmp_path) == 1

            # The last four exchange their B-side ports.
            a_sides, b_sides = zip(*(name.split("-") for name in names[-4:]), strict=True)
            exchanged = [f"{a}-{b}" for a, b in zip(a_sides, (*b_sides[1:], b_sides[0]), strict=True)]
            kept = [circuit for circuit in service.state.circuits if circuit.name not in changed_names(names[-4:])]
            heaters = sorted({2 * puc + arm for circuit in kept for puc in circuit.pucs for arm in (0, 1)})
            before_ma, driven_ma = bench.mesh.confirmed_currents_ma()[heaters], list[Any]()
            program = bench.mesh.program

            def note(currents_ma: Any, *arguments: Any, **named: Any) -> Any:
                driven_ma.append(np.array(currents_ma)[heaters])
                return program(currents_ma, *arguments, **named)

            monkeypatch.setattr(bench.mesh, "program", note)
            difference = jobs.cross_connect({"OCS_CROSS_CONNECT": entries(*exchanged)})()
            assert len(difference["kept"]) == len(kept) == N_CONNECTED - 4
            assert [each["circuit"] for each in difference["connected"]] == list(changed_names(exchanged))
            assert n_changes(tmp_path) == 2
            assert driven_ma
            for currents_ma in driven_ma:
                assert currents_ma == pytest.approx(before_ma, abs=1e-3), "a port that stays was switched"


def changed_names(cross_connects: list[str]) -> dict[str, None]:
    """Return the circuits of cross-connects of this bench, in their order."""
    ends = [name.replace("A", "").replace("B", "").split("-") for name in cross_connects]
    return dict.fromkeys(f"sfp{a}:sfp{int(b) - N_PORTS}" for a, b in ends)
