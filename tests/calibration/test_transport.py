from __future__ import annotations

import numpy as np
import pytest

from calibration.transport import MeanTransport
from lumion_hw.mesh.cell import UnitCells
from lumion_hw.mesh.scattering import Solver
from lumion_hw.mesh.topology import HexMesh, State

CELL = HexMesh.columns([1])
"""One hexagon with its stubs: 10 PUCs, 12 ports."""
SMALL = HexMesh.columns([2])
PER_HOP = 10**-0.05  # 0.5 dB


def known_ways(mesh: HexMesh, count: int) -> list[tuple[int, int, dict[int, State]]]:
    """Return sources, targets and states of all others for which light meets the target once, bar or cross."""
    rng = np.random.default_rng(2)
    ways = []
    while len(ways) < count:
        bar = rng.random(mesh.n_pucs) < 0.5
        states: dict[int, State] = {puc: "bar" if bar[puc] else "cross" for puc in range(mesh.n_pucs)}
        source, target = int(rng.integers(mesh.n_ports)), int(rng.integers(mesh.n_pucs))
        traces = [mesh.trace(source, {**states, target: state}) for state in ("bar", "cross")]
        if all(trace.pucs.count(target) == 1 for trace in traces):
            ways.append((source, target, states))
    return ways


@pytest.mark.parametrize(("source", "target", "states"), known_ways(CELL, 4) + known_ways(SMALL, 4))
def test_through_a_known_mesh_the_bar_share_moves_light_from_one_end_to_the_other(
    source: int, target: int, states: dict[int, State]
) -> None:
    mesh = CELL if len(states) == CELL.n_pucs else SMALL
    barred, crossed = (mesh.trace(source, states | {target: state}) for state in ("bar", "cross"))
    expected = np.zeros(mesh.n_ports)
    expected[barred.port] += PER_HOP ** len(barred.pucs)
    expected[crossed.port] -= PER_HOP ** len(crossed.pucs)
    others: dict[int, State] = {puc: state for puc, state in states.items() if puc != target}
    found = MeanTransport(mesh).bar_sensitivity(source, target, others)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_state_given_for_the_target_itself_does_not_count() -> None:
    model = MeanTransport(SMALL)
    for state in ("bar", "cross"):
        np.testing.assert_array_equal(model.bar_sensitivity(1, 4, {4: state}), model.bar_sensitivity(1, 4, {}))


def test_an_unknown_puc_in_front_halves_the_light() -> None:
    # Enter at port 1 (stub PUC 0): PUC 0 unknown splits evenly between its two outputs at end B.
    states: dict[int, State] = dict.fromkeys(range(CELL.n_pucs), "cross")
    target = CELL.trace(1, states).pucs[1]
    whole = MeanTransport(CELL).bar_sensitivity(1, target, states)
    halved = MeanTransport(CELL).bar_sensitivity(1, target, {p: s for p, s in states.items() if p != 0})
    bright = int(np.argmax(np.abs(whole)))
    assert halved[bright] == pytest.approx(whole[bright] / 2, rel=0.05)


def test_what_the_bar_output_gains_the_cross_output_loses_but_for_the_loss_on_the_way() -> None:
    sensitivity = MeanTransport(SMALL).bar_sensitivity(1, 3, {})
    assert sensitivity.max() > 0.0 > sensitivity.min()
    assert abs(sensitivity.sum()) < 0.3 * np.abs(sensitivity).sum()


@pytest.mark.parametrize(("target", "known"), [(3, (0, 1, 2)), (7, (0, 1, 5, 6))])
def test_it_agrees_with_coherent_light_averaged_over_random_phases(target: int, known: tuple[int, ...]) -> None:
    mesh, solver, rng = SMALL, Solver(SMALL), np.random.default_rng(1)
    states: dict[int, State] = dict.fromkeys(known, "cross")
    draws, half = 1500, np.full(mesh.n_pucs, 0.5)
    share, power = np.empty(draws), np.empty((draws, mesh.n_ports))
    for index in range(draws):
        phase = rng.uniform(0, 2 * np.pi, mesh.n_pucs)
        phase[list(known)] = 0.0
        common = rng.uniform(0, 2 * np.pi, mesh.n_pucs)
        joints = rng.uniform(0, 2 * np.pi, len(mesh.joints))
        cells = UnitCells(np.full(mesh.n_pucs, 0.5), half, half, common + phase, common, joints)
        power[index] = np.abs(solver.solve(cells, cells.reference_hz, [1])[:, 0]) ** 2
        share[index] = np.sin(phase[target] / 2) ** 2
    centred = share - share.mean()
    slope = centred @ power / (centred @ centred)
    error = (power.std(axis=0) / np.sqrt(draws)) / share.std()
    found = MeanTransport(mesh).bar_sensitivity(1, target, states)
    large = np.abs(found) > 0.2 * np.abs(found).max()
    assert np.array_equal(np.sign(found[large]), np.sign(slope[large]))
    # Light that comes back to the PUC adds in field, which intensities only follow roughly.
    np.testing.assert_array_less(np.abs(found - slope), 5 * error + 0.25 * np.abs(found).max())
