"""The driver of 8163/8164 mainframes with dual sensors, against an emulated one that accepts only documented lines."""

from __future__ import annotations

import struct

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.meters.keysight_816x import Keysight816x
from lumion_hw.errors import ConfigError, DeviceError, FrameError, IdentityError
from lumion_hw.interfaces import PowerMeter, RangeState
from lumion_hw.links import MemoryLink
from tests.drivers.meters.keysight_peer import FLT_MAX, Meter, block, mainframe

IDN = "Agilent Technologies,8164B,DE00000001,V5.25"


def opened(clock: VirtualClock, peer: Meter, **options: str) -> Keysight816x:
    meter = Keysight816x(MemoryLink(lambda: peer, clock, "mainframe"), clock, device="pm1", **options)
    meter.open()
    peer.sent.clear()
    return meter


@pytest.fixture
def peer(clock: VirtualClock) -> Meter:
    return mainframe(clock, IDN)


def test_the_heads_are_those_the_mainframe_lists(clock: VirtualClock, peer: Meter) -> None:
    meter = opened(clock, peer)
    as_interface: PowerMeter = meter
    assert as_interface.channels == (1, 2, 3)
    assert [meter.slot_and_head(channel) for channel in meter.channels] == [(2, 1), (2, 2), (4, 1)]
    with pytest.raises(ConfigError, match="channels 1 to 3"):
        meter.read(4)


@pytest.mark.parametrize("heads", [[], [(2, 1), (2, 1)], [(40, 1)], [(2, 3)]])
def test_a_channel_map_that_cannot_be_is_refused(
    clock: VirtualClock, peer: Meter, heads: list[tuple[int, int]]
) -> None:
    peer.replies["READ:POW:ALL:CONF?"] = block(b"".join(struct.pack("<HH", slot, head) for slot, head in heads))
    with pytest.raises(IdentityError, match="at least one power sensor"):
        opened(clock, peer)


@pytest.mark.parametrize("idn", ["Keysight Technologies,N7745C,MY1,1.0", "Agilent Technologies,8164X,DE1,V1"])
def test_another_instrument_is_refused(clock: VirtualClock, idn: str) -> None:
    with pytest.raises(IdentityError, match="8163A or 8163B"):
        opened(clock, mainframe(clock, idn))


def test_a_slaves_averaging_and_autoranging_go_to_its_master(clock: VirtualClock, peer: Meter) -> None:
    meter = opened(clock, peer)
    meter.set_averaging_s(2, 0.5)
    meter.set_range_dbm(2, -20.0)
    assert "SENS2:CHAN1:POW:ATIM 0.5S" in peer.sent
    assert "SENS2:CHAN1:POW:RANG:AUTO 0" in peer.sent
    assert "SENS2:CHAN2:POW:RANG -20DBM" in peer.sent
    assert not [each for each in peer.sent if each.startswith("SENS2:CHAN2") and ("ATIM" in each or "AUTO" in each)]
    assert (meter.averaging_s(1), meter.averaging_s(2)) == (0.5, 0.5)
    assert (meter.range_dbm(1), meter.range_dbm(2)) == (10.0, -20.0)


def test_a_wavelength_belongs_to_each_head(clock: VirtualClock, peer: Meter) -> None:
    meter = opened(clock, peer)
    meter.set_wavelength_nm(2, 1310.0)
    assert [meter.wavelength_nm(channel) for channel in (1, 2)] == pytest.approx([1550.0, 1310.0])


def test_a_marker_for_a_failed_query_is_no_setting(clock: VirtualClock, peer: Meter) -> None:
    meter = opened(clock, peer)
    peer.replies["SENS2:CHAN1:POW:WAV?"] = f"{FLT_MAX:+.8E}"
    with pytest.raises(DeviceError, match="marks a failed query"):
        meter.wavelength_nm(1)


def test_an_empty_block_is_no_reading(clock: VirtualClock, peer: Meter) -> None:
    meter = opened(clock, peer)
    peer.replies["READ:POW:ALL?"] = b"#10"
    with pytest.raises(FrameError, match="0 bytes instead of 3 channels"):
        meter.read_all()


def test_a_log_of_a_dual_sensor_starts_once_and_gives_both_heads(clock: VirtualClock, peer: Meter) -> None:
    meter = opened(clock, peer)
    for head in (1, 2):
        peer.complete_run(f"SENS2:CHAN{head}", [1e-6, 2e-6, FLT_MAX])
    log = meter.functions.log((1, 2), 3, 1e-3)
    assert [each for each in peer.sent if "FUNC:STAT LOGG" in each] == [
        "SENS2:CHAN1:FUNC:STAT LOGG,STAR",
        "SENS2:CHAN1:FUNC:STAT LOGG,STOP",
    ]
    assert log.channels == (1, 2)
    assert log.power_w.shape == (2, 3)
    assert log.power_w[1, :2] == pytest.approx([1e-6, 2e-6], rel=1e-6)
    assert log.state[0].tolist() == [RangeState.OK, RangeState.OK, RangeState.OVER]
    assert log.period_s == 1e-3
