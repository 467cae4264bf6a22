"""Mean light follows intensities: conserved but for loss, the same both ways, moved by the bar share of each PUC."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.model.ideal_mesh import MeanLight
from lumion_hw.mesh.layout.hexagonal import HexMesh

MESH = HexMesh.smartlight()


@pytest.fixture(scope="module")
def light() -> MeanLight:
    return MeanLight.of(MESH)


def test_mean_light_is_the_same_both_ways(light: MeanLight) -> None:
    np.testing.assert_allclose(light.power, light.power.T, rtol=1e-12)


def test_no_light_is_made_and_little_is_lost(light: MeanLight) -> None:
    total = light.power.sum(axis=0)
    assert (total < 1.0).all()
    assert (total > 0.1).all()


def test_the_only_way_from_port_3_to_port_4_in_one_puc_is_its_bar(light: MeanLight) -> None:
    # Ports 3 and 4 are the two ends of one rail of PUC 15 (Sánchez-Jácome 2025): half of the light, less
    # 0.5 dB, at least.
    half = 0.5 * 10.0**-0.05
    assert half < light.power[4, 3] < 1.1 * half
    swing = light.relative_swing([3], [4])[0, 0]
    assert np.argmax(np.abs(swing)) == 15
    assert 1.8 < swing[15] < 2.0


def test_light_is_brightest_in_the_puc_at_the_port(light: MeanLight) -> None:
    for port in (0, 7, 20, 35):
        assert np.argmax(light.entering[:, port]) == MESH.port_puc_port[port] // 4
