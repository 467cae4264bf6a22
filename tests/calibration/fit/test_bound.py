"""The Cramér-Rao bound against the table of docs/calibration.md, 4, and the ranks of its section 1.3."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.fit.bound import Bound, fit_bound, plan_bound
from calibration.fit.global_fit import GlobalFit
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel, Observations
from calibration.model.priors import default_prior
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.calibration.simulated_mesh import FLOOR_MA, RELATIVE, SimulatedMesh, currents_for, unread

NOISE = NoiseModel(RELATIVE, FLOOR_MA)
PHASES_AND_LOSS = ("passive_phase_rad", "loss_db", "loops")


def _planned(seed: int) -> tuple[MeshModel, SimulatedMesh, Observations]:
    """The 72-PUC mesh, 28 lit ports, 0 dBm in it; all heaters random in [0, 2π), one input per setting in rotation."""
    simulated = SimulatedMesh.draw(HexMesh.smartlight(), seed)
    simulated.source_db[:] = 0.0
    phases = np.random.default_rng(seed).uniform(0.0, 2.0 * np.pi, (500, 2 * simulated.mesh.n_pucs))
    plan = unread(simulated, currents_for(simulated, phases), np.resize(np.array(simulated.ports), 500))
    return MeshModel(simulated.mesh, simulated.ports, simulated.ports), simulated, plan


@pytest.fixture(scope="module")
def several() -> list[tuple[MeshModel, SimulatedMesh, Observations]]:
    """Five hidden meshes, each with random settings of its own."""
    return [_planned(seed) for seed in range(1, 6)]


@pytest.fixture(scope="module")
def simulated(several: list[tuple[MeshModel, SimulatedMesh, Observations]]) -> SimulatedMesh:
    return several[0][1]


@pytest.fixture(scope="module")
def model(several: list[tuple[MeshModel, SimulatedMesh, Observations]]) -> MeshModel:
    return several[0][0]


@pytest.fixture(scope="module")
def plan(several: list[tuple[MeshModel, SimulatedMesh, Observations]]) -> Observations:
    return several[0][2]


@pytest.mark.parametrize(
    ("settings", "passive_mrad", "loops_mrad", "tolerance"),
    [
        pytest.param(30, 0.97, 0.94, 0.25, marks=pytest.mark.long),
        (50, 0.65, 0.65, 0.10),
        pytest.param(200, 0.25, 0.25, 0.10, marks=pytest.mark.long),
        pytest.param(500, 0.15, 0.15, 0.10, marks=pytest.mark.long),
    ],
)
def test_the_bound_is_that_of_the_table(
    several: list[tuple[MeshModel, SimulatedMesh, Observations]],
    settings: int,
    passive_mrad: float,
    loops_mrad: float,
    tolerance: float,
) -> None:
    """Unknown: passive phases, losses, loops; heater laws known. Passive phases: mean of the two evaluations."""
    bounds = [
        plan_bound(model, simulated.parameters(), plan[:settings], NOISE, free=PHASES_AND_LOSS)
        for model, simulated, plan in several
    ]
    for name, expected_mrad in (("passive_phase_rad", passive_mrad), ("loops", loops_mrad)):
        assert 1e3 * np.median([bound.rms(name) for bound in bounds]) == pytest.approx(expected_mrad, rel=tolerance)
    assert {(bound.rank, bound.n_free) for bound in bounds} == {(190, 196)}


def test_four_times_the_noise_and_ten_times_the_floor_cost_what_the_page_says(
    simulated: SimulatedMesh, model: MeshModel, plan: Observations
) -> None:
    noisy = NoiseModel(0.02, 10 * FLOOR_MA)
    bound = plan_bound(model, simulated.parameters(), plan, noisy, free=PHASES_AND_LOSS)
    assert 1e3 * bound.rms("passive_phase_rad") == pytest.approx(0.76, rel=0.1)


def test_the_losses_of_dark_corners_show_as_sums(
    simulated: SimulatedMesh, model: MeshModel, plan: Observations
) -> None:
    """Chains 62-56-52, 43-37-33 and 24-18-14: what one has more its neighbour has less (docs/calibration.md, 1.3)."""
    bound = plan_bound(model, simulated.parameters(), plan[:100], NOISE, free=PHASES_AND_LOSS)
    loss = bound.unobservable_directions()[:, _loss_places(bound)]
    chains = np.zeros((3, 72))
    for row, chain in enumerate(((62, 56, 52), (43, 37, 33), (24, 18, 14))):
        chains[row, list(chain)] = 1.0
    assert len(loss) == 6
    np.testing.assert_allclose(chains @ loss.T, 0.0, atol=1e-6)
    np.testing.assert_allclose(loss[:, chains.sum(axis=0) == 0], 0.0, atol=1e-6)
    assert all("loss_db of PUC" in text for text in bound.unseen())


def test_what_changes_together_unseen_is_said_in_words() -> None:
    """More light and a monitor that says less are the same; a delay is nothing to light of one frequency."""
    cell = SimulatedMesh.draw(HexMesh.columns([1]), 5)
    model = MeshModel(cell.mesh, (0,), (4,))
    parameters = replace(cell.parameters(), source_db=np.zeros(1), monitor_ma_per_mw=np.full(1, 0.8))
    nothing = np.zeros((20, 1))
    currents, _ = cell.random_settings(20)
    plan = Observations(currents, np.zeros(20, dtype=np.int64), (4,), nothing, nothing > 0)
    bound = plan_bound(model, parameters, plan, NOISE, free=("source_db", "monitor_db", "delay_s"))
    assert bound.unseen() == ("delay_s alone", "source_db at port 0 by +1 with monitor_db at port 4 by -1")


@pytest.mark.parametrize("weak", range(4))
def test_what_hardly_shows_is_named_once_and_does_not_hide_the_rest(weak: int) -> None:
    """One reading of four parameters leaves three combinations: that of which it shows 1e-6, and pairs of the rest."""
    model = MeshModel(HexMesh.columns([1]), (0,), (4,))
    free = np.arange(model.space.size) < 4
    slope = np.where(np.arange(4) == weak, 1e-6, 1.0)
    told = Bound(model.space, free, np.outer(slope, slope), np.zeros((4, 4))).unseen()
    assert told[0] == f"{model.space.describe(weak)} alone"
    assert [text.count(" by ") for text in told[1:]] == [2, 2]
    assert len(set(told)) == 3


def test_a_fit_of_too_few_settings_falls_short_of_what_its_ports_can_show() -> None:
    """One cell: what one light and two settings leave open more settings would tell."""
    cell = SimulatedMesh.draw(HexMesh.columns([1]), 5)
    model = MeshModel(cell.mesh, (0,), cell.ports)
    parameters = replace(cell.parameters(), source_db=np.zeros(1))
    reachable = set()
    for settings, enough in ((2, False), (60, True), (90, True)):
        currents, _ = cell.random_settings(settings)
        readings = cell.measure(currents, np.zeros(settings, dtype=np.int64))
        likelihood = Likelihood(readings, NOISE)
        fit = GlobalFit(model, likelihood, default_prior(model.space, parameters), PHASES_AND_LOSS).run(parameters)
        bound = fit_bound(fit, model, np.full(2 * cell.mesh.n_pucs, 6.0), likelihood)
        assert bound.reachable_rank is not None
        assert (bound.rank == bound.reachable_rank) is enough
        assert bound.rank <= bound.reachable_rank <= bound.n_free
        reachable.add(bound.reachable_rank)
    assert len(reachable) == 1


def test_with_one_unknown_access_loss_per_port_204_of_224_show(
    simulated: SimulatedMesh, model: MeshModel, plan: Observations
) -> None:
    free = (*PHASES_AND_LOSS, "source_db", "monitor_db")
    bound = plan_bound(model, simulated.parameters(), plan, NOISE, free=free)
    places = np.flatnonzero(bound.free)
    access = np.zeros((28, bound.n_free))  # the same loss on the way in and out
    for name in ("source_db", "monitor_db"):
        first = int(np.searchsorted(places, model.space.group(name).start))
        access[:, first : first + 28] += np.eye(28)
    kept = np.eye(bound.n_free)[: bound.n_free - 56]
    joined = np.concatenate([kept, access])
    information = joined @ bound.information @ joined.T
    unit = np.sqrt(np.diag(information))
    values = np.linalg.eigvalsh(information / np.outer(unit, unit))
    assert len(values) == 224
    assert (values > 1e-10).sum() == 204


def test_everything_at_once_leaves_25_combinations_to_the_prior(
    simulated: SimulatedMesh, model: MeshModel, plan: Observations
) -> None:
    """20 of losses and access, the scale of all light, that of all heat, and 3 coupler differences on the dark rim."""
    prior = default_prior(model.space, simulated.parameters())
    bound = plan_bound(model, simulated.parameters(), plan[:200], NOISE, prior)
    assert bound.n_free - bound.rank == 25
    held = bound.set_by_prior()
    groups = model.space.groups
    assert not held[groups["passive_phase_rad"]].any()
    assert not held[groups["loops"]].any()
    assert held[groups["loss_db"]][[62, 56, 52, 43, 37, 33, 24, 18, 14]].all()
    assert held[groups["coupler_difference_rad"]][[18, 37, 56]].all()
    unknown_laws = bound.rms("passive_phase_rad")
    known = plan_bound(model, simulated.parameters(), plan[:200], NOISE, free=PHASES_AND_LOSS)
    assert unknown_laws > known.rms("passive_phase_rad")


def _loss_places(bound: Bound) -> np.ndarray:
    where = bound.space.group("loss_db")
    return np.searchsorted(np.flatnonzero(bound.free), np.arange(where.start, where.stop))
