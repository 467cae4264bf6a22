"""A bench as an optical circuit switch: ports, changes as one commit, and tables in SONiC's form."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumion_hw.bench.bench import load
from lumion_hw.circuits import CircuitRequest
from lumion_hw.errors import ConfigError
from lumion_hw.serving.ocs.change import OcsSettings, parse_change, resolve
from lumion_hw.serving.ocs.ports import OcsPorts
from lumion_hw.serving.ocs.tables import config_tables, loss_table, state_tables
from lumion_hw.serving.owner import BenchOwner
from lumion_hw.serving.state import ServedJob, ServedPath
from lumion_hw.storage.record_files import load_record
from tests.recorded_calibration import RECORD, SMALL
from tests.serving.test_headline import a_circuit
from tests.serving.test_virtual_days import ADA, owned

# The small bench: sfp-a sends into port 1 and receives from port 3, sfp-b 6 and 8, sfp-c 11 and 13.
A_TO_B, B_TO_A, C_TO_C = "1A-8B", "6A-3B", "11A-13B"


@pytest.fixture(scope="module")
def ports() -> OcsPorts:
    return OcsPorts(load(SMALL).to_wiring())


def test_every_end_of_a_module_is_a_port_with_the_number_of_its_mesh_port(ports) -> None:
    assert {port.port_id: port.module for port in ports.values()} == {
        "1A": "sfp-a", "3B": "sfp-a", "6A": "sfp-b", "8B": "sfp-b", "11A": "sfp-c", "13B": "sfp-c",
    }  # fmt: skip
    coherent = OcsPorts(load("small-bench").to_wiring())
    assert all(len(port.mesh_ports) in (1, 2) for port in coherent.values())
    assert all(port.port_id == f"{min(port.mesh_ports)}{port.side}" for port in coherent.values())


def changed(
    ports: OcsPorts, settings: OcsSettings | None = None, active: tuple[str, ...] = (), **change: Any
) -> tuple[list[str], OcsSettings]:
    """Return the cross-connects and settings after a change."""
    requests = [CircuitRequest(*(port.module for port in ports.ends_of(name))) for name in active]
    updated, wanted = resolve(parse_change(change), ports, settings or OcsSettings(), requests)
    return [ports.name_of(request) for request in wanted], updated


def entries(*names: str) -> dict[str, dict[str, str]]:
    return {name: dict(zip(("a_side", "b_side"), name.split("-"), strict=True)) for name in names}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"OCS_CROSS_CONNECT": entries(B_TO_A)}, [A_TO_B, B_TO_A]),
        ({"OCS_CROSS_CONNECT": {B_TO_A: {}}}, [A_TO_B, B_TO_A]),
        ({"OCS_CROSS_CONNECT": entries("1A-3B")}, ["1A-3B"]),
        ({"OCS_CROSS_CONNECT": entries(B_TO_A), "mode": "overwrite"}, [B_TO_A]),
        ({"OCS_CROSS_CONNECT": entries(A_TO_B), "mode": "safe"}, [A_TO_B]),
        ({"OCS_CROSS_CONNECT": entries("6A-8B"), "delete": [A_TO_B], "mode": "safe"}, ["6A-8B"]),
        ({"delete": [A_TO_B]}, []),
        ({"mode": "overwrite"}, []),
        ({}, [A_TO_B]),
    ],
)
def test_a_change_gives_the_whole_set_of_wanted_cross_connects(ports, change, wanted) -> None:
    assert changed(ports, active=(A_TO_B,), **change)[0] == wanted


def test_a_blocked_port_holds_its_cross_connect_until_it_is_normal_again(ports) -> None:
    block = {"OCS_PORT": {"8B": {"state": "force_blocked", "label": "rack 4, fibre 7"}}}
    wanted, settings = changed(ports, active=(A_TO_B, B_TO_A), **block)
    assert (wanted, settings.held, settings.blocked) == ([B_TO_A], (A_TO_B,), ("8B",))
    wanted, settings = changed(ports, settings, (B_TO_A,), OCS_PORT={"8B": {"state": "normal"}})
    assert (sorted(wanted), settings.held) == ([A_TO_B, B_TO_A], ())
    assert settings.labels == {"8B": "rack 4, fibre 7"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"OCS_CROSS_CONNECT": {"1A-99B": {}}}, "there is no port '99B'"),
        ({"OCS_CROSS_CONNECT": {"1A-6A": {}}}, "port 6A is on side A, not on side B"),
        ({"OCS_CROSS_CONNECT": {"1A": {}}}, "'1A' is not a cross-connect"),
        ({"OCS_CROSS_CONNECT": {A_TO_B: {}, "1A-3B": {}}}, "port 1A is in two cross-connects, 1A-8B and 1A-3B"),
        ({"OCS_CROSS_CONNECT": {A_TO_B: {"a_side": "6A"}}}, "has a_side '6A', but its id names 1A"),
        ({"OCS_CROSS_CONNECT": {f"{n}A-{n}B": {} for n in range(10_000)}}, "10000 cross-connects, but this switch has "
         "ports for 3"),
        ({"OCS_CROSS_CONNECT": {"1A-3B": {}}, "mode": "safe"}, "port 1A of 1A-3B is in use by 1A-8B"),
        ({"OCS_PORT": {"2A": {"label": "x"}}}, "there is no port '2A'"),
        ({"OCS_PORT": {"1A": {"state": "open"}}}, r"OCS_PORT\.1A\.state: Input should be 'normal' or 'force_blocked'"),
        ({"OCS_PORT": {"1A": {"label": "x" * 129}}}, r"OCS_PORT\.1A\.label: String should have at most 128"),
        ({"delete": ["6A-3B"]}, "there is no cross-connect '6A-3B' to delete"),
        ({"delete": [A_TO_B], "OCS_CROSS_CONNECT": {A_TO_B: {}}}, "is to be added and deleted in the same change"),
        ({"mode": "fast"}, "mode: Input should be 'update', 'safe' or 'overwrite'"),
        ({"OCS_CROSSCONNECT": {}}, "OCS_CROSSCONNECT: Extra inputs are not permitted"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_by_name(ports, change, words) -> None:
    with pytest.raises(ConfigError, match=words):
        changed(ports, active=(A_TO_B,), **change)


def test_the_tables_show_labels_states_and_the_light(ports) -> None:
    circuits = [
        a_circuit("sfp-a:sfp-b"),
        a_circuit("sfp-b:sfp-a", fault="no light"),
    ]
    settings = OcsSettings(labels={"1A": "rack 4"}, blocked=("11A",), held=(C_TO_C,))
    config = config_tables(ports, settings, circuits)
    assert config["OCS_CROSS_CONNECT"] == entries(A_TO_B, B_TO_A, C_TO_C)
    assert config["OCS_PORT"]["1A"] == {"label": "rack 4", "state": "normal"}
    assert config["OCS_PORT"]["11A"] == {"label": "sfp-c", "state": "force_blocked"}
    path = ServedPath("sfp-a:sfp-b", 1, 8, (0, 5, 2), (None,) * 4)
    state = state_tables(ports, settings, circuits, [path])
    assert {port: (row["target_simplex_port_id"], row["status"]) for port, row in state["OCS_PORT"].items()} == {
        "1A": ("8B", "tuned"), "3B": ("6A", "failed"), "6A": ("3B", "failed"), "8B": ("1A", "tuned"),
        "11A": ("13B", "blocked"), "13B": ("11A", "blocked"),
    }  # fmt: skip
    assert state["OCS_CROSS_CONNECT"][B_TO_A]["a_side_status"] == "failed"
    paths = state["OCS_CROSS_CONNECT_PHYSICAL_PATH"]
    assert paths[A_TO_B]["physical_path"] == ["1A", "port 1", "PUC 0", "PUC 5", "PUC 2", "port 8", "8B"]
    unseen = [dataclasses.replace(circuits[0], unseen="not measured now")]
    assert state_tables(ports, OcsSettings(), unseen, [])["OCS_PORT"]["1A"]["status"] == "tuning"
    assert state_tables(ports, OcsSettings(), [], [])["OCS_PORT"]["1A"] == {
        "connector_pin": "1", "target_simplex_port_id": "", "status": "blocked",
    }  # fmt: skip


def test_losses_come_from_the_record_with_frequency_temperature_and_accuracy(ports) -> None:
    table = loss_table(load(SMALL), load_record(RECORD), ports, [A_TO_B])
    ((key, loss),) = table["OCS_FACTORY_INSERTION_LOSS"].items()
    assert key == f"{A_TO_B}|193.414|25.00"  # 299792.458 / 1550 THz
    assert float(loss["loss_dB"]) == pytest.approx(16.0, abs=0.5)  # docs/circuits.md: 15.64 dB on another chip
    assert 0.0 < float(loss["accuracy_dB"]) < 0.5
    assert table["unavailable"] == {}


def done(owner: BenchOwner, **change: Any) -> ServedJob:
    owner.start_job("cross_connect", {"change": change}, ADA)
    owner.step(0.1)
    assert owner.state.job is not None
    return owner.state.job


def test_a_bulk_change_is_one_commit_and_leaves_other_ports_alone(tmp_path: Path) -> None:
    with owned(tmp_path, fabric=False) as (_, owner):
        owner.step(0.0)
        owner.lease.take("ada", ADA, lasts_s=86400.0, bound=False)
        planned = done(owner, OCS_CROSS_CONNECT=entries(A_TO_B, C_TO_C), dry_run=True).result
        assert [each["circuit"] for each in planned["connected"]] == ["sfp-a:sfp-b", "sfp-c:sfp-c"]
        assert (planned["dry_run"], owner.state.circuits) == (True, ())
        assert done(owner, OCS_CROSS_CONNECT=entries(A_TO_B, C_TO_C)).error == ""
        assert [circuit.name for circuit in owner.state.circuits] == ["sfp-a:sfp-b", "sfp-c:sfp-c"]
        service = owner._keeper.require_service()
        (kept,) = [circuit for circuit in service.state.circuits if circuit.name == "sfp-c:sfp-c"]
        heaters = [2 * puc + arm for puc in kept.pucs for arm in (0, 1)]
        before_ma, begun = owner.bench.mesh.confirmed_currents_ma()[heaters], n_changes(tmp_path)
        swapped = done(owner, OCS_CROSS_CONNECT=entries("1A-3B", "6A-8B"), OCS_PORT={"1A": {"label": "rack 4"}}).result
        assert (swapped["kept"], swapped["removed"]) == (["sfp-c:sfp-c"], ["sfp-a:sfp-b"])
        assert n_changes(tmp_path) == begun + 1, "the change was not one commit"
        assert np.array_equal(owner.bench.mesh.confirmed_currents_ma()[heaters], before_ma)
        assert owner.ocs.labels == {"1A": "rack 4"}

        blocked = done(owner, OCS_PORT={"3B": {"state": "force_blocked"}}).result
        assert (blocked["removed"], owner.ocs.held) == (["sfp-a:sfp-a"], ("1A-3B",))
        with pytest.raises(ConfigError, match=r"port 3B \(sfp-a\) is blocked"):
            owner.start_job("connect", {"circuits": "sfp-b:sfp-a"}, ADA)
        assert OcsSettings.load(tmp_path) == owner.ocs
        assert done(owner, OCS_PORT={"3B": {"state": "normal"}}).result["connected"][0]["circuit"] == "sfp-a:sfp-a"
        with pytest.raises(ConfigError, match="there is no port '99B'"):
            done(owner, OCS_CROSS_CONNECT={"1A-99B": {}})
        assert done(owner, mode="overwrite").error == ""
        assert owner.state.circuits == ()


def n_changes(directory: Path) -> int:
    """Return the number of changes that the journal of circuits has recorded."""
    return (directory / "circuits.jsonl").read_text(encoding="utf-8").count('"entry":"begun"')


def test_a_change_that_is_impossible_changes_neither_circuits_nor_settings(tmp_path: Path) -> None:
    with owned(tmp_path, fabric=False) as (_, owner):
        owner.step(0.0)
        owner.lease.take("ada", ADA, lasts_s=86400.0, bound=False)
        owner.bench.emulated.faults.kill_modules(["sfp-b"])
        job = done(owner, OCS_CROSS_CONNECT=entries(A_TO_B), OCS_PORT={"1A": {"label": "rack 4"}})
        assert "sfp-b" in job.error
        assert owner.state.circuits == ()
        assert owner.ocs == OcsSettings() == OcsSettings.load(tmp_path)


def test_a_damaged_file_of_settings_is_named(tmp_path: Path) -> None:
    (tmp_path / "ocs.json").write_text('{"blocked": 7}')
    with pytest.raises(ConfigError, match=r"ocs\.json: blocked: Input should be a valid tuple"):
        OcsSettings.load(tmp_path)


def test_a_bench_whose_jobs_need_the_circuits_refuses_changes(tmp_path: Path) -> None:
    with owned(tmp_path, fabric=True) as (_, owner):
        owner.lease.take("ada", ADA, lasts_s=86400.0, bound=False)
        with pytest.raises(ConfigError, match="the jobs of the bench file control the circuits"):
            done(owner, OCS_CROSS_CONNECT=entries(A_TO_B))
