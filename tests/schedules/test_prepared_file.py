"""Prepared configurations as a file: read back exactly, switched from the file alone, refused for another bench."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.bench import load_bench
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.circuits import PathSetup
from lumion_hw.errors import ConfigError
from lumion_hw.mesh.record.canonical import content_hash
from lumion_hw.schedules import (
    JobPhase,
    PhasePlan,
    PhaseSwitch,
    load_prepared,
    phases as phases_module,
    prepare,
    save_prepared,
)
from tests.circuits.known_mesh import SMALL, path_setup

PLAN = PhasePlan(
    "small",
    (
        JobPhase("data", 0.05, (("sfp-a", "sfp-b"), ("sfp-b", "sfp-c"), ("sfp-c", "sfp-a"))),
        JobPhase("compute", 0.02, ()),
        JobPhase("pipeline", 0.03, (("sfp-a", "sfp-b"), ("sfp-b", "sfp-a"))),
    ),
    3,
)


@pytest.fixture(scope="module")
def setup() -> Iterator[PathSetup]:
    with Bench.emulate(SMALL, seed=5) as bench:
        yield path_setup(bench)


@pytest.fixture(scope="module")
def saved(setup: PathSetup, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prepared") / "prepared.json"
    model = load_bench(SMALL)
    save_prepared(prepare(model, setup.record, PLAN), PLAN, model, setup.record, path)
    return path


def changed(saved: Path, directory: Path, change: object, *, hashed: bool = True) -> Path:
    """Return a copy of the file with a change in its document and a correct hash."""
    document = json.loads(saved.read_text(encoding="utf-8"))
    change(document)  # type: ignore[operator]
    if hashed:
        header = ("schema", "schema_version", "content_sha256")
        document["content_sha256"] = content_hash({k: v for k, v in document.items() if k not in header})
    path = directory / "changed.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_what_is_read_is_what_was_prepared_to_the_last_bit(setup: PathSetup, saved: Path) -> None:
    prepared = prepare(setup.bench.model, setup.record, PLAN)
    plan, read = load_prepared(saved, setup.bench.model, setup.record)
    assert plan == PLAN
    assert list(read) == ["data", "compute", "pipeline"]
    for tag, each in prepared.items():
        assert np.array_equal(each.plan.currents_ma, read[tag].plan.currents_ma)
        bare = [replace(one, plan=replace(one.plan, currents_ma=np.empty(0))) for one in (each, read[tag])]
        assert repr(bare[0]) == repr(bare[1])
    document = json.loads(saved.read_text(encoding="utf-8"))
    assert document["software"]
    assert document["record_sha256"] == setup.record.content_sha256
    assert document["mesh_sha256"] == setup.bench.mesh.topology.sha256


def test_a_bench_switches_by_tag_from_the_file_alone(
    setup: PathSetup, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("nothing is to be planned anew")

    monkeypatch.setattr(phases_module, "plan_circuits", forbidden)
    plan, prepared = load_prepared(saved, setup.bench.model, setup.record)
    switch = PhaseSwitch(setup, prepared)
    assert all(proof.proven for proofs in switch.rehearse().values() for proof in proofs)
    assert set(switch.switch("data").dark_s) == {("sfp-b", "sfp-c"), ("sfp-c", "sfp-a")}
    assert [each.tag for each in switch.run(plan, iterations=1)] == ["data", "compute", "pipeline"]


def test_how_a_bench_file_is_laid_out_and_how_long_heaters_stay_on_does_not_matter(
    setup: PathSetup, saved: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again.yaml"
    again.write_text("# a comment\n" + SMALL.read_text(encoding="utf-8"), encoding="utf-8")
    model = load_bench(again)
    name = model.mesh_section.controller
    stays_on = model.devices[name].model_copy(update={"leave_on_s": 600.0})
    for each in (model, model.model_copy(update={"devices": {**model.devices, name: stays_on}})):
        assert load_prepared(saved, each, setup.record)[0] == PLAN


def other_bench(directory: Path) -> BenchModel:
    text = SMALL.read_text(encoding="utf-8")
    (directory / "other.yaml").write_text(text.replace("loss_db: 0.3", "loss_db: 0.4"), encoding="utf-8")
    return load_bench(directory / "other.yaml")


def test_another_bench_mesh_or_record_is_refused_by_name(setup: PathSetup, saved: Path, tmp_path: Path) -> None:
    model, record = setup.bench.model, setup.record
    with pytest.raises(ConfigError, match=r"prepared for another bench file \(small, hash \w{12}, given small, hash"):
        load_prepared(saved, other_bench(tmp_path), record)
    newer = replace(record, created_utc="2026-02-01T00:00:00+00:00")
    with pytest.raises(ConfigError, match=r"another calibration record \(SMALL-0001-20260101.*given SMALL-0001-202602"):
        load_prepared(saved, model, newer)
    with pytest.raises(ConfigError, match=r"another mesh .* and another calibration record"):
        load_prepared(saved, model, replace(record, mesh_sha256="0" * 64))


def test_damaged_edited_and_foreign_files_are_refused(setup: PathSetup, saved: Path, tmp_path: Path) -> None:
    def refused(path: Path, message: str) -> None:
        with pytest.raises(ConfigError, match=message) as caught:
            load_prepared(path, setup.bench.model, setup.record)
        assert path.name in str(caught.value)

    def heat(document: dict) -> None:
        document["configurations"][0]["currents_ma"][3] = 2.4

    refused(
        changed(saved, tmp_path, heat, hashed=False),
        "content does not match its hash, so the file was edited or damaged",
    )
    refused(
        changed(saved, tmp_path, lambda d: d.update(schema_version=2)),
        "schema version 2, but this software reads version 1",
    )
    refused(changed(saved, tmp_path, lambda d: d.update(schema="lumion-lease")), "not a file with")
    half = tmp_path / "half.json"
    half.write_bytes(saved.read_bytes()[:5000])
    refused(half, "is not JSON")
    half.write_text("[]", encoding="utf-8")
    refused(half, "not a file with prepared configurations")
    refused(tmp_path / "none.json", "cannot read prepared configurations")
    # A file written by another program: hash and form are right, but the content is wrong.
    refused(changed(saved, tmp_path, lambda d: d.pop("job")), "job: ")
    refused(changed(saved, tmp_path, lambda d: d["configurations"][2]["currents_ma"].pop()), "phase pipeline: states")

    def detour(document: dict) -> None:
        document["configurations"][1]["planned"][0]["arms"][0]["path"]["pucs"].reverse()

    refused(changed(saved, tmp_path, detour), "phase compute: light cannot go from port")

    def request(document: dict) -> None:
        document["configurations"][0]["planned"][0]["request"]["max_hops"] = -1

    refused(changed(saved, tmp_path, request), "max_hops is -1")

    def flipped(document: dict) -> None:
        states = document["configurations"][0]["routing"]["states"]
        puc, state = next(iter(states.items()))
        states[puc] = "bar" if state == "cross" else "cross"

    refused(changed(saved, tmp_path, flipped), "phase data: states, paths and currents do not match")


def test_only_files_of_this_program_are_written_over(setup: PathSetup, saved: Path, tmp_path: Path) -> None:
    model, record = setup.bench.model, setup.record
    plan, prepared = load_prepared(saved, model, record)
    target = tmp_path / "again.json"
    for _ in range(2):
        save_prepared(prepared, plan, model, record, target)
    assert target.read_bytes() == saved.read_bytes()
    target.write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not from this program"):
        save_prepared(prepared, plan, model, record, target)
    assert target.read_text(encoding="utf-8") == "{}"
