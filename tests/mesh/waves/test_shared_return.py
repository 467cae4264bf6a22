"""Drives that share a return: what they lose to each other, and currents that make up for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, ExtraPhysics
from lumion_hw.mesh.waves.shared_return import RETURN_GROUP_SIZES, SharedReturns
from tests.mesh.sample_record import CELL, sample_record

LAWS = np.full(30, 1.5)
TWELVE = RETURN_GROUP_SIZES.index(12)


def _per_ma(share: float = 0.0, lost: float = 0.0, sag: float = 0.0) -> dict[str, np.ndarray]:
    """Return the losses of groups of twelve per mA of the others, and of a supply that sags."""
    per_ma = np.zeros(2 * len(RETURN_GROUP_SIZES))
    per_ma[TWELVE], per_ma[len(RETURN_GROUP_SIZES) + TWELVE] = share, lost
    return {"shared_return_per_ma": per_ma, "supply_sag_share": np.array([sag])}


def _record(per_ma: dict[str, np.ndarray]) -> CalibrationRecord:
    entries = (
        ExtraPhysics(name, "", len(values), 1e-3, 50.0, tuple(values.tolist())) for name, values in per_ma.items()
    )
    return replace(sample_record(), physics=tuple(entries))


def test_a_drive_loses_to_those_of_its_own_group_only() -> None:
    # Channels 12 to 23 are a group; by hand: 2 mA beside 3 and 6, of eleven others.
    returns, driven = SharedReturns.from_channels([12, 23, 24, 13]), np.array([2.0, 3.0, 1.0, 6.0])
    share = returns.flowing_ma(driven, LAWS[:4], _per_ma(share=1e-3))
    lost = returns.flowing_ma(driven, LAWS[:4], _per_ma(lost=1e-3))
    assert driven[0] - share[0] == pytest.approx(1e-3 * 2.0 * 9.0 / 11.0)
    assert driven[0] - lost[0] == pytest.approx(1e-3 * 9.0 / 11.0)
    assert share[2] == lost[2] == 1.0


def test_currents_fall_with_the_cube_of_the_total_current_if_the_supply_sags() -> None:
    """Heaters turn by π at 2 mA and the last one is dead: 1, 2 and 3 mA are a load of 1."""
    returns, driven = SharedReturns.from_channels(range(4)), np.array([1.0, 2.0, 3.0, 5.0])
    rho2 = np.array([1.0, 1.0, 1.0, 0.0]) * np.pi / 4.0
    flowing = returns.flowing_ma(driven, rho2, _per_ma(sag=1e-3))
    np.testing.assert_allclose(flowing, driven * (1.0 - 1e-3))
    np.testing.assert_allclose(returns.flowing_ma(2.0 * driven, rho2, _per_ma(sag=1e-3)), 2.0 * driven * (1.0 - 8e-3))


@pytest.mark.parametrize(
    "per_ma", [_per_ma(share=5e-3), _per_ma(lost=5e-3), _per_ma(share=-2e-3), _per_ma(share=2e-3, sag=5e-3)]
)
def test_what_is_driven_makes_up_for_what_is_lost(per_ma: dict[str, np.ndarray]) -> None:
    returns = SharedReturns.from_channels(range(30))
    wanted = np.random.default_rng(4).uniform(0.0, 3.0, 30)
    driven = returns.driven_ma(wanted, LAWS, per_ma)
    np.testing.assert_allclose(returns.flowing_ma(driven, LAWS, per_ma), wanted, atol=1e-8)
    # A heater that is off cannot be driven backwards, whatever the fit says.
    assert returns.driven_ma(np.where(np.arange(30) < 5, 0.0, wanted), LAWS, per_ma).min() >= 0.0


def test_a_record_that_knows_of_a_shared_return_is_programmed_with_it() -> None:
    known, plain = (CalibratedMesh.from_record(_record(per_ma)) for per_ma in (_per_ma(share=2e-3), _per_ma()))
    wanted = np.random.default_rng(3).uniform(0.5, 6.0, 2 * CELL.n_pucs)
    currents = known.currents_ma(wanted)
    np.testing.assert_allclose(known.own_rad(currents), wanted, rtol=1e-8)
    # Without it phases would be off by some milliradians for every heater that others stand beside.
    assert np.abs(known.own_rad(plain.currents_ma(wanted)) - wanted).max() > 5e-3
    # As far as a heater reaches it does so beside all others at their largest currents.
    np.testing.assert_allclose(known.own_rad(known.currents_ma(known.reach_rad)), known.reach_rad, rtol=1e-8)
    alone = np.zeros(2 * CELL.n_pucs)
    alone[7] = 2.0
    np.testing.assert_array_equal(known.own_rad(alone), plain.own_rad(alone))


def test_a_record_with_other_sizes_of_groups_is_refused() -> None:
    with pytest.raises(CalibrationError, match=r"by 6 numbers; this software uses 14"):
        CalibratedMesh.from_record(_record({"shared_return_per_ma": np.zeros(6)}))
