"""Tests of heater.py: run `pytest` in this folder. The fixture `bench` is an emulated bench that can have faults."""

import pytest
from heater import p_pi_mw

from lumion_hw import ConfigError, DeviceError, LinkError

pytestmark = pytest.mark.lumion_bench("../mzi_bench.yaml", seed=1)  # the seed selects the emulated chip


def test_a_healthy_heater(bench):
    assert 1.0 < p_pi_mw(bench, 0, 3) < 2.0


def test_a_heater_that_needs_more_power(bench):
    healthy_mw = p_pi_mw(bench, 0, 3)
    bench.emulated.faults.weaken_heater(puc=0, arm=0, factor=1.3)
    assert p_pi_mw(bench, 0, 3) == pytest.approx(1.3 * healthy_mw, rel=0.01)


def test_a_heater_without_effect(bench):
    bench.emulated.faults.stick_heater(puc=0, arm=0)
    with pytest.raises(ConfigError, match="less than half a fringe"):
        p_pi_mw(bench, 0, 3)


def test_a_broken_fibre(bench):
    bench.emulated.faults.kill_port(0)
    with pytest.raises(RuntimeError, match="channel 3 of the meter is dark"):
        p_pi_mw(bench, 0, 3)


def test_a_broken_wire(bench):
    bench.emulated.faults.inject("driver0", "open_heater", channel=0)
    with pytest.raises(DeviceError, match="OVER_VOLTAGE"):
        p_pi_mw(bench, 0, 3)


@pytest.mark.parametrize("instrument", ["driver0", "switch0", "laser0", "meter0"])
def test_an_instrument_that_is_switched_off(bench, instrument):
    bench.emulated.faults.inject(instrument, "no_power")
    with pytest.raises(LinkError, match=instrument):
        p_pi_mw(bench, 0, 3)


def test_a_meter_that_fails_during_the_sweep(bench):
    faults = bench.emulated.faults
    faults.after(2.0, lambda: faults.inject("meter0", "no_power"))  # 2 s from now, by the clock of the bench
    with pytest.raises(LinkError, match="meter0"):
        p_pi_mw(bench, 0, 3)
    faults.end("meter0", "no_power")
    bench.meters["meter0"].open()
    assert 1.0 < p_pi_mw(bench, 0, 3) < 2.0
