"""Hierarchies of meshes: every circuit gets its fibres, and no fibre has two."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from lumion_hw.cli import main
from lumion_hw.errors import ConfigError
from lumion_hw.planning import MeshHierarchy, plan_hierarchy
from lumion_hw.planning.hierarchy import _FibreChoice, benes_halves, colours


def ticks() -> Iterator[float]:
    return itertools.count(0.0, 1.0)


@pytest.mark.parametrize(("edges", "count"), [(1, 1), (40, 4), (64, 8), (512, 64)])
def test_edges_with_one_colour_never_meet(edges: int, count: int) -> None:
    rng = np.random.default_rng(edges)
    side = max(edges // count, 1)
    left, right = (rng.permutation(np.repeat(np.arange(side), count))[:edges] for _ in range(2))
    colour = colours(left, right, count)
    assert set(colour.tolist()) <= set(range(count))
    for ends in (left, right):
        assert len(np.unique(np.stack([ends, colour]), axis=1).T) == edges


@pytest.mark.parametrize("ports", [2, 4, 16, 64])
def test_the_paths_in_a_benes_switch_share_no_waveguide(ports: int) -> None:
    rng = np.random.default_rng(ports)
    inputs, outputs = rng.permutation(ports), rng.permutation(ports)
    middle = benes_halves(inputs, outputs, ports)
    # Both circuits of a switch in the first and in the last column take different halves.
    for ends in (inputs, outputs):
        if ports > 2:
            upper = middle >= ports // 4
            assert all(np.bincount(ends[half] // 2).max() == 1 for half in (upper, ~upper))
    assert np.bincount(middle).max() == 2  # a switch in the middle column has two inputs


@pytest.mark.parametrize(("accelerators", "load"), [(8, 1.0), (60, 1.0), (250, 0.7), (256, 1.0)])
def test_no_port_of_any_mesh_has_two_circuits(accelerators: int, load: float) -> None:
    hierarchy = MeshHierarchy(accelerators, per_rack=4, radix=16)
    rng = np.random.default_rng(1)
    count = int(load * accelerators)
    sources, targets = (rng.permutation(accelerators)[:count] for _ in range(2))
    choice = _FibreChoice(hierarchy, sources, targets)
    for level, ports in hierarchy.ports.items():
        pairs = choice.pairs(level)
        assert (pairs >= 0).all()
        assert (pairs[:, 1:] < ports).all()
        for column in (1, 2):
            assert len(np.unique(pairs[:, [0, column]], axis=0)) == len(pairs)
        if len(pairs):
            assert pairs[:, 0].max() < hierarchy.meshes[level]


def test_the_counts_of_a_small_hierarchy() -> None:
    hierarchy = MeshHierarchy(256, per_rack=4, radix=16)
    assert hierarchy.meshes == {"rack": 64, "spine": 32, "core": 32}
    assert hierarchy.fibres == 2 * 64 * 4 + 2 * 4 * 8 * 8
    assert MeshHierarchy(4, per_rack=4).meshes == {"rack": 1, "spine": 0, "core": 0}
    clock = ticks()
    result = plan_hierarchy(hierarchy, 1.0, clock_s=lambda: next(clock))
    assert result.circuits == 256
    assert result.choice_s == 1.0
    assert [level.pucs for level in result.levels] == [20, 56, 56]
    assert result.levels[0].most_circuits <= 8  # each of four accelerators sends and receives
    assert result.spare_load == 0.75


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"per_rack": 3}, "per_rack is 3"),
        ({"radix": 256}, "radix is 256"),
        ({"per_rack": 4, "radix": 4}, "Three levels of meshes reach 32"),
    ],
)
def test_an_impossible_hierarchy_is_refused(values: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        MeshHierarchy(1000, **values)
    assert message in str(raised.value)


def test_the_command_prints_levels_and_times(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--accelerators", "500", "--per-rack", "8", "--radix", "16"]
    assert main(["plan", "joined", *options]) == 0
    printed = capsys.readouterr().out
    assert "500 accelerators, 450 circuits" in printed
    assert "circuits of a failed spine or core fit on the others up to a load of 87.5%" in printed
    assert main(["plan", "joined", "--accelerators", "1000000"]) == 2
