"""The emulated chip against hand calculations, and against a dense solution written from the definitions."""

from dataclasses import replace

import numpy as np
import pytest

from lumion_hw.emulator.chip.cell import ChipCells
from lumion_hw.emulator.chip.chip import Chip, ChipParameterSet, ChipSlopes, ChipVariations
from lumion_hw.emulator.chip.effects import CHIP_EFFECTS, EffectSizes
from lumion_hw.emulator.chip.heat_spread import HeatSpread, arm_centres_mm
from lumion_hw.emulator.chip.heaters import HeaterVariations
from lumion_hw.emulator.chip.photodiodes import PhotodiodeArray
from lumion_hw.mesh.layout.hexagonal import HexMesh

MESH = HexMesh.columns([2])
N = MESH.n_pucs
HZ = 193.4e12
SLOPES = ChipSlopes(HZ, -1550.0 / HZ, 7e-4, 15e-3)


def parts(rng: np.random.Generator, loss_db: float = 0.5) -> ChipParameterSet:
    return ChipParameterSet(
        np.full(N, loss_db),
        0.5 + 0.01 * rng.standard_normal(N),
        0.5 + 0.01 * rng.standard_normal(N),
        rng.uniform(0.0, 2.0 * np.pi, N),
        rng.uniform(0.0, 2.0 * np.pi, len(MESH.joints)),
        np.full(2 * N, 1.34),
        HeatSpread.draw(MESH, 1.34, EffectSizes()),
    )


def chip_of(**sizes: float) -> Chip:
    return Chip(MESH, ChipVariations.draw(MESH, EffectSizes(**sizes), np.random.default_rng(3)), SLOPES)


def matrix(chip: Chip, cells: ChipCells) -> np.ndarray:
    return chip.output_fields(cells, np.arange(MESH.n_ports)).T


def dense(chip: Chip, cells: ChipCells) -> np.ndarray:
    """Solve b = S·a in every PUC and a = J·b + x in every joint and facet as one full matrix."""
    scatter = np.zeros((4 * N, 4 * N), dtype=complex)
    for puc, t in enumerate(cells.transfer()):
        scatter[4 * puc + 2 : 4 * puc + 4, 4 * puc : 4 * puc + 2] = t
        scatter[4 * puc : 4 * puc + 2, 4 * puc + 2 : 4 * puc + 4] = t.T
    joined = np.zeros_like(scatter)
    mirrors = chip.variations.mirrors
    for j, (u, v) in enumerate(MESH.joints):
        turn = np.exp(-1j * cells.joint_phase[j])
        joined[u, v] = joined[v, u] = turn * (1.0 if mirrors is None else mirrors.passed[j])
        if mirrors is not None:
            joined[u, u] = turn * mirrors.joint[j]
            joined[v, v] = turn * mirrors.joint[len(MESH.joints) + j]
    ports = MESH.port_puc_port
    if mirrors is not None:
        joined[ports, ports] = mirrors.facet
    light = np.eye(4 * N)[:, ports]
    leaving = scatter @ np.linalg.solve(np.eye(4 * N) - joined @ scatter, light)
    return np.sqrt(1.0 - chip.variations.sizes.facet_reflection) ** 2 * leaving[ports]


@pytest.mark.parametrize("sizes", [{}, {"joint_reflection": 1e-3, "facet_reflection": 1e-2}])
def test_waves_are_those_of_the_full_matrix(sizes: dict[str, float]) -> None:
    chip, rng = chip_of(**sizes), np.random.default_rng(1)
    cells = chip.cells(parts(rng), rng.uniform(0.0, 3.0, 2 * N), 0.3, HZ + 5e9)
    assert np.allclose(matrix(chip, cells), dense(chip, cells), atol=1e-12)


def test_light_goes_the_same_way_back_whatever_is_switched_on() -> None:
    chip = Chip(MESH, ChipVariations.draw(MESH, EffectSizes.for_chip("harsh"), np.random.default_rng(2)), SLOPES)
    rng = np.random.default_rng(1)
    found = matrix(chip, chip.cells(parts(rng), rng.uniform(0.0, 3.0, 2 * N), 0.0, HZ + 5e9))
    assert np.allclose(found, found.T, atol=1e-12)


def test_a_chip_without_loss_loses_nothing_even_where_light_is_sent_back() -> None:
    chip, rng = chip_of(joint_reflection=1e-2), np.random.default_rng(1)
    cells = chip.cells(parts(rng, loss_db=0.0), rng.uniform(0.0, 3.0, 2 * N), 0.0, HZ)
    found = matrix(chip, cells)
    assert np.allclose(found.conj().T @ found, np.eye(MESH.n_ports), atol=1e-9)


def test_arms_that_differ_in_loss_leave_light_in_the_dark_output() -> None:
    # In the cross state the arms' amplitudes g and g(1+d) leave (d/2)² of the light in the bar output:
    # 20 lg(1+d) = 0.2 dB, d = 0.0233, a floor of -38.7 dB.
    arms = (np.full(1, value) for value in (0.5, 0.5, 0.6, 0.4, 0.0, 0.0))
    cell = ChipCells(*arms, np.zeros(0), np.zeros(1), 11.25e-12, 0.0)
    t = np.abs(cell.transfer()[0]) ** 2
    assert 10.0 * np.log10(t[0, 0] / t[1, 0]) == pytest.approx(-38.78, abs=0.05)


def test_a_coupler_of_a_cell_may_follow_the_wavelength_by_itself() -> None:
    chip, rng = chip_of(coupler_slope_sigma_per_nm=1e-3), np.random.default_rng(1)
    given = parts(rng)
    nanometre_hz = -HZ / 1550.0  # one nm to the red
    cells = chip.cells(given, np.zeros(2 * N), 0.0, HZ + nanometre_hz)
    assert np.allclose(cells.eta_in - given.eta_in, 7e-4 + chip.variations.eta_slope_per_nm, rtol=1e-3)
    assert np.std(chip.variations.eta_slope_per_nm) == pytest.approx(1e-3, rel=0.5)


def test_crosstalk_scatters_about_its_curve_and_knows_where_it_is() -> None:
    plain, rng = HeatSpread.draw(MESH, 1.34, EffectSizes()), np.random.default_rng(1)
    # 0.9 mm: 0.56 pm published, the fit has 0.5426; 2π·0.5426/119/6/(2·1.34) = 1.78 mrad/mW.
    places = arm_centres_mm(MESH)
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    near = np.abs(apart - 0.9) < 0.15
    per_mw = plain.arm_rad_per_mw[near] / (0.906 * np.exp(-apart[near] / 1.18) + 0.12)
    assert np.allclose(per_mw * 0.5426, 1.78e-3, rtol=5e-3)
    scattered = HeatSpread.draw(MESH, 1.34, EffectSizes(crosstalk_scatter=0.3), rng)
    off_diagonal = ~np.eye(2 * N, dtype=bool)
    ratio = np.log(scattered.arm_rad_per_mw[off_diagonal] / plain.arm_rad_per_mw[off_diagonal])
    assert np.std(ratio) == pytest.approx(0.3, rel=0.1)
    metal = HeatSpread.draw(MESH, 1.34, EffectSizes(crosstalk_routing=0.2))
    along = np.abs(places[:, None] - places[None])
    ratio = metal.arm_rad_per_mw[off_diagonal] / plain.arm_rad_per_mw[off_diagonal]
    assert ratio[(along[..., 0] > 20 * along[..., 1])[off_diagonal]].min() == pytest.approx(1.2, abs=0.01)
    assert ratio.min() >= 0.8 - 1e-12
    edge = HeatSpread.draw(MESH, 1.34, EffectSizes(crosstalk_edge=0.3))
    assert 1.0 < (edge.arm_rad_per_mw[off_diagonal] / plain.arm_rad_per_mw[off_diagonal]).min() < 1.3


def test_heaters_on_one_return_take_current_from_each_other() -> None:
    heaters = HeaterVariations.draw(range(24), EffectSizes(ground_return_share=0.01), np.random.default_rng(1))
    driven = np.zeros(24)
    driven[:12] = 3.0
    driven[12] = 3.0
    carried = heaters.carried_ma(driven)
    assert np.allclose(carried[:12], 3.0 * 0.99)
    assert carried[12] == 3.0, "alone in its group"


def test_the_heat_of_the_whole_chip_turns_every_arm() -> None:
    chip, rng = chip_of(chip_heating_rad_per_w=0.2), np.random.default_rng(1)
    given = replace(parts(rng), spread=HeatSpread.none(MESH))
    heat = np.zeros(2 * N)
    heat[0] = 10.0
    cold, warm = (chip.cells(given, each, 0.0, HZ) for each in (np.zeros(2 * N), heat))
    assert np.allclose(warm.phase_lower - cold.phase_lower, 0.2 * 0.01)


def test_photodiodes_compress_leak_and_wander() -> None:
    rng = np.random.default_rng(1)
    compressed = PhotodiodeArray(EffectSizes(photodiode_compression_per_ma=0.02), rng, 0.0)
    assert compressed.read_ma(np.array([0.5]), 0.0)[0] == pytest.approx(0.5 / 1.01)
    leaking = PhotodiodeArray(EffectSizes(photodiode_leakage=0.01), rng, 0.0)
    assert np.allclose(leaking.read_ma(np.array([0.0, 1.0, 0.0, 0.0]), 0.0), [0.01, 1.0, 0.01, 0.0])
    wandering = PhotodiodeArray(EffectSizes(photodiode_offset_drift_na=2.0), rng, 0.0)
    assert np.all(wandering.read_ma(np.zeros(8), 0.0) == 0.0)
    late = [wandering.read_ma(np.zeros(8), 600.0 * k) for k in range(5, 205)]
    assert np.std(late) == pytest.approx(2e-6, rel=0.1)


def test_tm_goes_its_own_way() -> None:
    chip, rng = chip_of(tm_path=1.0), np.random.default_rng(1)
    cells = chip.cells(parts(rng), np.zeros(2 * N), 0.0, HZ)
    te, tm = (np.abs(fields[0]) ** 2 for fields in chip.output_fields_with_tm(cells, np.array([0])))
    assert tm.sum() < te.sum()
    assert np.abs(tm / tm.sum() - te / te.sum()).sum() > 0.3


@pytest.mark.parametrize("effect", CHIP_EFFECTS, ids=lambda effect: effect.name)
def test_every_effect_has_a_size_a_limit_and_a_source(effect) -> None:
    assert 0.0 < effect.realistic <= effect.harsh <= effect.max_size
    assert effect.source
    alone = EffectSizes(**{effect.name: effect.harsh})
    assert alone.has_any
    assert EffectSizes.for_chip("realistic", {effect.name: 0.0}) != EffectSizes.for_chip("realistic")


def test_heat_through_the_oxide_reaches_the_other_arm_and_falls_off() -> None:
    plain = HeatSpread.draw(MESH, 1.34, EffectSizes())
    warm = HeatSpread.draw(MESH, 1.34, EffectSizes(), other_arm=0.05, oxide_decay_mm=0.03)
    added_rad = 1.34 * (warm.arm_rad_per_mw - plain.arm_rad_per_mw)
    heaters = np.arange(2 * N)
    np.testing.assert_allclose(added_rad[heaters ^ 1, heaters], 0.05 * np.pi)  # the arms are 0.05 mm apart
    np.testing.assert_array_equal(np.diag(added_rad), 0.0)
    # The next PUC is at least 0.35 mm away: ten decay lengths farther.
    others = added_rad[(heaters[:, None] // 2) != (heaters // 2)]
    assert others.max() < 0.05 * np.pi * np.exp(-0.3 / 0.03)
