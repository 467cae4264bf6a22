"""Faults by name, the identity of the profiles, and a complete bring-up."""

from __future__ import annotations

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.transponders.cmis import FAULTS, PROFILES, CmisModule, Fibre, join
from lumion_hw.errors import ConfigError
from lumion_hw.sessions.module.registers import ModuleAbsentError, NotRespondingError
from lumion_hw.standards.cmis import CHECKSUMS, decode_from, fields_of
from lumion_hw.standards.cmis.codec import checksum_matches
from tests.emulator.transponders.cmis_testbench import GOOD_LIGHT, Host, lit, ready

NAMED_IN_THE_FACTS = {
    "los", "lol", "lof", "tx_failure", "tec_runaway", "temp_high", "module_fault", "stuck_init", "stuck_config",
    "no_init_pending", "reject_appsel0", "slow_init", "nack", "torn_read", "bad_checksum", "counter_truncated",
    "freeze_never_done", "reserved_bits_set", "drops_to_lowpwr_on_reset", "unplug",
}  # fmt: skip


def test_every_fault_of_the_facts_can_be_injected_and_cleared() -> None:
    assert set(FAULTS) >= NAMED_IN_THE_FACTS
    host = lit()
    for name in FAULTS:
        host.module.faults.inject(name)
        assert name in host.module.faults.active
        host.wait(0.3)
        host.module.faults.clear(name)
        host.wait(0.3)
        assert name not in host.module.faults.active


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown fault 'gremlin'"):
        ready().module.faults.inject("gremlin")


def test_faults_can_be_scripted_and_survive_a_reset() -> None:
    host = lit()
    host.module.faults.inject("los", after_s=5.0, lasts_s=3.0)
    host.wait(4.8)
    assert host.lanes("rx_output_valid") == 0xFF
    host.wait(0.4)
    assert host.lanes("rx_output_valid") == 0x00
    host.wait(4.0)
    assert host.lanes("rx_output_valid") == 0xFF
    host.module.faults.inject("unplug", after_s=1.0, lasts_s=2.0)
    host.module.reset()
    host.wait(1.5)
    with pytest.raises(ModuleAbsentError):
        host.module.read(0, 1)
    host.wait(2.2)
    assert host.module.read(0, 1) == b"\x18"


def test_a_module_pulled_while_it_tunes_is_gone_and_comes_back_on_its_default() -> None:
    host = ready()
    host.write(0x12, 136, 0x00, 0x03)
    host.wait(2)
    host.module.faults.inject("unplug")
    with pytest.raises(ModuleAbsentError):
        host.module.read(0, 1)
    host.module.faults.clear("unplug")
    host.wait(0.6)
    assert host.raw("current_frequency", 1) == 193_100_000
    assert host.raw("channel", 1) == 0


@pytest.mark.parametrize(("fault", "los"), [("los", 1), ("lol", 0), ("lof", 0)])
def test_receiver_faults_take_the_data_away(fault: str, los: int) -> None:
    host = lit()
    host.module.faults.inject(fault)
    host.wait(0.2)
    host.read(0x11, 147, 2)
    assert list(host.read(0x11, 147, 2)) == [los, 1]
    host.read(0x33, 130)
    demodulator = host.read(0x33, 130)[0] >> 5 & 1
    assert demodulator == (fault != "lof")


def test_a_nack_lasts_for_so_many_accesses() -> None:
    host = ready()
    host.module.faults.inject("nack", 3)
    for _ in range(3):
        with pytest.raises(NotRespondingError, match="injected"):
            host.module.read(0, 1)
    assert host.module.read(0, 1) == b"\x18"


def test_reserved_bits_can_be_populated_and_the_defined_ones_stay_right() -> None:
    host = ready()
    plain = host.module.read(3, 1)[0]
    host.module.faults.inject("reserved_bits_set")
    dirty = host.module.read(3, 1)[0]
    assert dirty != plain
    assert dirty & 0x0E == plain & 0x0E == 3 << 1


def test_a_torn_read_mixes_two_samples() -> None:
    host = Host()
    host.wait(0.6)
    host.module.faults.inject("torn_read")
    before = host.module.read(14, 2)
    host.power_up()
    host.module.faults.clear("torn_read")
    cold = host.module.read(14, 2)
    host.module.faults.inject("torn_read")
    host.wait(60)
    torn = host.module.read(14, 2)
    assert torn[0] > cold[0] >= before[0]
    assert torn[1] == cold[1]


def test_a_bad_checksum_is_wrong_until_it_is_cleared() -> None:
    host = ready()
    item = CHECKSUMS[0]
    assert checksum_matches(item, host.read(0x00, 128, 128))
    host.module.faults.inject("bad_checksum")
    assert not checksum_matches(item, host.read(0x00, 128, 128))
    host.module.reset()
    host.wait(0.6)
    assert not checksum_matches(item, host.read(0x00, 128, 128))
    host.module.faults.clear("bad_checksum")
    assert checksum_matches(item, host.read(0x00, 128, 128))


def test_power_up_can_be_stuck() -> None:
    host = Host()
    host.wait(0.6)
    host.module.faults.inject("stuck_power_up")
    host.write(None, 26, 0)
    host.wait(3600)
    assert host.raw("module_state") == 2


# Identity ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_every_page_of_every_profile_decodes_with_right_checksums(profile: str) -> None:
    host = lit(profile, light=dict.fromkeys(range(1, 5), GOOD_LIGHT))
    image = host.module.image()
    pages = {int(key, 16): bytes.fromhex(value) for key, value in image["pages"].items()}  # type: ignore[attr-defined]
    for page, half in pages.items():
        for field in fields_of(page):
            for index in [None] if field.array is None else field.array.indices:
                decode_from(field, half, index)
    for item in CHECKSUMS:
        if item.space in pages:
            assert checksum_matches(item, pages[item.space]), item.name


def test_the_default_profile_is_what_the_facts_say() -> None:
    """The default 400ZR profile: QSFP-DD, CMIS 5.2, power class 8, two applications, three grids, -22 to 0 dBm."""
    host = ready()
    assert host.module.read(0, 2) == b"\x18\x52"
    assert host.get("power_class") == 7
    assert host.module.read(86, 9) == bytes([0x11, 0x3E, 0x81, 0x01, 0x0D, 0x3E, 0x21, 0x55, 0xFF])
    assert host.read(0x04, 128) == bytes([0b1010_0010])
    assert (host.get("min_output_power"), host.get("max_output_power")) == (-22.0, 0.0)
    assert host.get("target_output_power", 1) == -10.0
    assert host.get("media_technology") == 0x10
    assert host.get("serial_number") == "EMU0000001"


def test_a_dr4_lists_its_break_out() -> None:
    host = ready("400g-dr4")
    assert host.module.read(86, 9) == bytes([0x11, 0x1C, 0x84, 0x01, 0x0D, 0x14, 0x21, 0x55, 0xFF])
    assert host.read(0x01, 176, 2) == b"\x01\x0f"
    assert host.read(0x00, 210) == b"\xf0"


def test_a_serial_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        CmisModule.from_profile("400zr", clock=VirtualClock(), serial="X" * 17)


# A complete bring-up --------------------------------------------------------------------------------------------------


def test_a_host_brings_up_a_pair_tunes_it_and_takes_it_down() -> None:
    """Bring a module up and down again: power, application, tune, enable, lock, performance, disable."""
    clock = VirtualClock()
    ends = [Host(clock=clock, seed=seed) for seed in (1, 2)]
    join(ends[0].module, ends[1].module, Fibre(loss_db=6.0, dgd_ps=3.0, pdl_db=1.0))
    for host in ends:
        host.power_up()
        host.stage(1, 1, 8)
        assert host.apply(0xFF) == [1] * 8
        host.write(0x12, 128, 0x50)
        host.write(0x12, 136, 0x00, 0x05)
    clock.sleep(5.1)
    for host in ends:
        assert host.raw("current_frequency", 1) == 193_600_000
        host.write(0x10, 128, 0x00)
    clock.sleep(20.1)
    for host in ends:
        host.write(0x10, 130, 0x00)
    clock.sleep(1.0)
    for host in ends:
        assert host.states() == [4] * 8
        assert host.lanes("rx_output_valid") == 0xFF
        assert abs(int(host.raw("pm_cfo_avg"))) < 700
        assert host.get("pm_dgd_avg") == pytest.approx(3.0)
        host.write(0x10, 130, 0xFF)
    clock.sleep(0.3)
    for host in ends:
        assert (host.states(), host.lanes("rx_output_valid")) == ([7] * 8, 0)
        host.write(None, 26, 0x10)
    clock.sleep(3.0)
    assert [host.raw("module_state") for host in ends] == [1, 1]
