"""Faults as data: per state, not per PUC."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.faults import MeshFaults
from lumion_hw.mesh.layout.hexagonal import HexMesh


def test_a_puc_stuck_in_one_state_loses_only_the_other() -> None:
    assert MeshFaults(stuck={3: "bar", 5: "cross"}).unusable_states() == {(3, "cross"), (5, "bar")}


def test_a_puc_stuck_in_between_loses_both_states_unless_the_split_is_accepted() -> None:
    faults = MeshFaults(stuck={3: 0.02, 5: 0.5, 7: 1.0})
    assert faults.unusable_states() == {(3, "bar"), (3, "cross"), (5, "bar"), (5, "cross"), (7, "bar")}
    assert faults.unusable_states(split_tolerance=0.05) == {(3, "cross"), (5, "bar"), (5, "cross"), (7, "bar")}


def test_excess_loss_deletes_no_state() -> None:
    faults = MeshFaults(excess_loss_db={4: 3.0})
    assert faults.unusable_states() == frozenset()
    loss_db = faults.loss_db(HexMesh.rings(1))
    np.testing.assert_array_equal(loss_db, [0, 0, 0, 0, 3, 0])


def test_faults_come_back_from_json_as_they_were() -> None:
    faults = MeshFaults({1: "bar", 2: 0.25}, {3: 1.5}, frozenset({0, 11}))
    assert MeshFaults.from_dict(json.loads(json.dumps(faults.to_dict()))) == faults
    assert MeshFaults.from_dict({}) == MeshFaults()


@pytest.mark.parametrize("document", [{"broken": {}}, {"stuck": {"x": "bar"}}, {"stuck": [1]}, {"dead_ports": ["p"]}])
def test_a_document_that_is_none_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"(unknown keys|the faults cannot be read)"):
        MeshFaults.from_dict(document)


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        (MeshFaults(stuck={6: "bar"}), r"faulty PUCs \[6\]"),
        (MeshFaults(excess_loss_db={-1: 1.0}), r"faulty PUCs \[-1\]"),
        (MeshFaults(dead_ports=frozenset({12})), r"dead ports \[12\]"),
        (MeshFaults(stuck={0: 1.5}), "stuck at 1.5"),
        (MeshFaults(stuck={0: "half"}), "stuck at 'half'"),  # type: ignore[dict-item]
        (MeshFaults(excess_loss_db={0: -0.1}), "excess loss of -0.1 dB"),
        (MeshFaults(excess_loss_db={0: float("nan")}), "excess loss of nan dB"),
    ],
)
def test_faults_that_a_mesh_cannot_have_are_refused(faults: MeshFaults, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        faults.check(HexMesh.rings(1))
