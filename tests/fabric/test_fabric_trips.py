"""A mesh controller switches its heaters off under a fabric: no server is blamed, and the jobs are restored."""

from pathlib import Path

import pytest

from firmware_protocol import FaultSource
from lumion_hw import Bench
from lumion_hw.bench.controller_faults import clear_faults
from lumion_hw.errors import CircuitError, SafetyError
from lumion_hw.fabric import FabricManager, read_fabric
from tests.fabric.managed_fabric import known_of, managed

A_TO_B = ["sfp-a:sfp-b", "sfp-b:sfp-a", "sfp-c:sfp-c"]


def trip(bench: Bench, source: FaultSource) -> None:
    """Make the controller switch off; the cause ends at once, and the fault stays latched."""
    bench.emulated.faults.inject("mesh0", "trip", source=int(source))
    bench.emulated.faults.end("mesh0", "trip", source=int(source))


def standing(manager: FabricManager) -> list[str]:
    return sorted(circuit.name for circuit in manager.service.state.circuits)


def is_well(manager: FabricManager) -> bool:
    """Return whether nothing counts as failed or refused, and every circuit of the jobs has light."""
    manager.check_job_circuits()
    return not (manager.state.failed or manager.state.refused or manager.state.open)


@pytest.mark.parametrize(
    "delay_s", [0.0, *(pytest.param(delay_s, marks=pytest.mark.long) for delay_s in (0.004, 0.3)), 0.5]
)
def test_after_a_silence_of_the_host_every_circuit_is_back_and_no_server_is_blamed(
    manager: FabricManager, tmp_path: Path, delay_s: float
) -> None:
    manager.bench.emulated.faults.after(delay_s, lambda: trip(manager.bench, FaultSource.WATCHDOG))
    assert manager.run(3.0) == []
    assert is_well(manager)
    assert standing(manager) == A_TO_B
    assert not any(entry["entry"] == "begun" for entry in read_fabric(tmp_path)[1])


def test_another_fault_ends_the_watch_and_the_jobs_come_back_once_it_is_cleared(manager: FabricManager) -> None:
    trip(manager.bench, FaultSource.ESTOP)
    with pytest.raises(SafetyError, match=r"mesh0: .*switched its heaters off: ESTOP"):
        manager.run(3.0)
    assert not manager.state.failed
    clear_faults(manager.bench, "ESTOP", "ada")
    manager.begin()
    assert is_well(manager)
    assert manager.run(1.0) == []
    assert standing(manager) == A_TO_B


def test_a_fault_that_is_cleared_at_once_blames_no_server_either(manager: FabricManager) -> None:
    trip(manager.bench, FaultSource.ESTOP)
    clear_faults(manager.bench, "ESTOP", "ada")
    assert manager.run(3.0) == []
    assert is_well(manager)


@pytest.mark.parametrize("cause", ["light", pytest.param("process", marks=pytest.mark.long)])
def test_a_trip_in_the_middle_of_a_recovery_is_survived(bench: Bench, tmp_path: Path, cause: str) -> None:
    trips = iter([FaultSource.WATCHDOG])

    def tell(what: str, told: object) -> None:
        if what == "spare" and (source := next(trips, None)) is not None:
            trip(bench, source)

    with managed(bench, tmp_path, on_event=tell) as manager:
        manager.begin()
        if cause == "light":
            bench.emulated.faults.kill_modules(["sfp-b"])
        else:
            with pytest.raises(SafetyError):
                manager.mark_failed("b")
        recoveries = manager.run(6.0)
        manager.check_job_circuits()
        assert [recovery.failed for recovery in recoveries] == ["b"]
        assert manager.state.places == {"b": "c"}


def test_a_refused_job_is_tried_again_until_its_reason_is_gone(bench: Bench, tmp_path: Path) -> None:
    known_of(bench)
    access_loss_db = bench.emulated.world.truth.access_loss_db.copy()
    for module in ("sfp-b", "sfp-c"):
        bench.emulated.faults.kill_port(next(path.port for path in bench.wiring.inputs if path.transponder == module))
    with managed(bench, tmp_path) as manager:
        manager.begin()
        assert list(manager.state.refused) == ["a-b"]
        with pytest.raises(CircuitError, match=r"do not carry light: a-b is refused: "):
            manager.check_job_circuits()
        bench.emulated.world.truth.access_loss_db[:] = access_loss_db  # the fibre is plugged in again
        bench.emulated.world.disturb()
        manager.run(40.0)
        assert manager.state.refused == {}
        assert standing(manager) == A_TO_B
