"""Emulated QSFP modules under hosts that read and write at random: nothing breaks, and nothing protected changes."""

from __future__ import annotations

import random

import pytest

from lumion_hw.emulator.transponders.qsfp import PROFILES
from tests.emulator.transponders.qsfp_testbench import LANES, Host


def act(host: Host, rng: random.Random) -> None:
    """Do one random thing to a module."""
    module, lane = host.module, rng.choice(LANES)
    now = host.clock.now()
    actions = (
        lambda: host.try_write(rng.randrange(256), *rng.randbytes(rng.randrange(1, 7))),
        lambda: host.try_write(rng.choice((86, 93, 98, 100, 127)), rng.randrange(256)),
        lambda: module.i2c_start(rng.choice((0x50, 0x50, 0x51)), rng.random() < 0.5, now),
        lambda: module.i2c_write(rng.randrange(256)),
        module.i2c_read,
        lambda: module.i2c_stop(now),
        lambda: module.set_low_power_pin(rng.random() < 0.5),
        lambda: module.set_module_select(rng.random() < 0.8),
        lambda: module.set_host_signal(rng.randrange(16)),
        lambda: module.break_laser(lane),
        lambda: module.repair_laser(lane),
        rng.choice((module.reset, module.power_off, module.power_on, module.unplug, module.plug)),
        lambda: host.light.received.update({lane: rng.choice((0.0, 1e-6, 1e-4, 1e-2))}),
        lambda: host.sleep(rng.choice((0.0, 1e-4, 0.01, 0.3, 3.0))),
    )
    rng.choice(actions)()


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("seed", range(3))
def test_after_any_history_a_reset_leads_back_to_a_working_module(name: str, seed: int) -> None:
    host, rng = Host(name), random.Random(seed)
    identity, thresholds = host.page(0), host.page(3)
    shining = host.lit()
    for _ in range(1500):
        act(host, rng)
        for lane in LANES:
            assert host.light.sent[lane] == host.module.launched_w(lane)
    module = host.module
    module.i2c_stop(host.clock.now())
    module.set_module_select(True)
    module.set_low_power_pin(False)
    module.set_host_signal(0x0F)
    for lane in LANES:
        module.repair_laser(lane)
        host.light.received[lane] = 0.3e-3
    module.power_on()
    module.plug()
    module.reset()
    host.sleep(3.0)
    host.byte(2)
    host.read_flags()
    assert host.read_flags() == bytes(12)
    assert host.page(0) == identity
    assert host.page(3) == thresholds
    assert host.lit() == shining
    assert not module.interrupt


@pytest.mark.parametrize("seed", range(3))
def test_a_module_does_the_same_again_with_the_same_seed(seed: int) -> None:
    def history() -> list[object]:
        host, rng = Host(seed=seed), random.Random(seed)
        for _ in range(300):
            act(host, rng)
        return [*host.light.emitted, host.module.interrupt]

    assert history() == history()
