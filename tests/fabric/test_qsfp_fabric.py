"""A fabric of QSFP28 modules: each circuit carries the four wavelengths of 100GBASE-LR4."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from lumion_hw import Bench
from lumion_hw.circuits import BenchLock, CircuitJournal, CircuitService
from lumion_hw.fabric import FabricJournal, FabricManager
from tests.circuits.known_mesh import SMALL
from tests.circuits.test_multiplexed import LAN_WDM_NM, dispersive_record

MIDDLE_NM = 1302.35


@contextlib.contextmanager
def fabric_of_lr4(directory: Path, gain_db: float, seed: int) -> Iterator[FabricManager]:
    """Manage the small bench with LR4 modules in place of SFP+ modules."""
    text = SMALL.read_text(encoding="utf-8").replace("kind: sfp-8472", "kind: qsfp-8636, profile: 100g-lr4")
    text = text.replace("gain_db: 9.0", f"gain_db: {gain_db}").replace(
        "wavelength_nm: 1550.0", "wavelength_nm: 1302.35"
    )
    path = directory / "bench.yaml"
    path.write_text(text, encoding="utf-8")
    with Bench.emulate(path, seed=seed) as bench:
        record = dispersive_record(bench, MIDDLE_NM, (LAN_WDM_NM[0] - 1.0, LAN_WDM_NM[-1] + 1.0))
        with (
            BenchLock(directory, "test") as lock,
            CircuitJournal(directory, bench.model.name, bench.mesh.topology.sha256) as circuits,
            FabricJournal(directory, bench.model.name) as fabric,
        ):
            service = CircuitService(bench, record, circuits, lock)
            service.restore()
            with FabricManager(service, fabric) as manager:
                manager.begin()
                yield manager


def test_a_lost_server_is_replaced_with_all_four_wavelengths(tmp_path: Path) -> None:
    with fabric_of_lr4(tmp_path, gain_db=8.0, seed=4) as manager:
        standing = sorted(circuit.name for circuit in manager.service.state.circuits)
        assert standing[:2] == ["sfp-a:sfp-b", "sfp-b:sfp-a"], manager.state.refused
        manager.bench.emulated.faults.kill_modules(["sfp-b"])
        recovery = manager.step(3.0)
        assert recovery is not None
        assert (recovery.failed, recovery.spare) == ("b", "c")
        assert all(proof.proven and not proof.los for proof in recovery.proofs)
        assert [lane.lane for proof in recovery.proofs for lane in proof.lanes] == [1, 2, 3, 4] * 2


def test_too_much_light_for_the_monitors_is_a_reason_and_no_program_error(tmp_path: Path) -> None:
    with fabric_of_lr4(tmp_path, gain_db=13.0, seed=5) as manager:
        assert "the monitor at port 13 is missing or saturated" in manager.state.refused["a-b"]
