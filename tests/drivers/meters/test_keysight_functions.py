"""Runs and triggers of Keysight meters: the commands of the programming guide, deadlines, blocks of any bytes."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.meters.keysight_functions import TriggerInput, TriggerOutput, TriggerWiring
from lumion_hw.drivers.meters.keysight_n77xx import KeysightN77xx
from lumion_hw.errors import (
    BusyError,
    ConfigError,
    DeviceError,
    DeviceTimeoutError,
    FrameError,
    LimitError,
    LinkTimeout,
    VerifyError,
)
from lumion_hw.interfaces import RangeState
from lumion_hw.links import MemoryLink
from tests.drivers.meters.keysight_peer import FLT_MAX, LIGHT_W, Meter, block, multiport_meter

ALL_LF = b"\n" * 4


@pytest.fixture
def peer(clock: VirtualClock) -> Meter:
    return multiport_meter(clock)


@pytest.fixture
def meter(clock: VirtualClock, peer: Meter) -> KeysightN77xx:
    opened = KeysightN77xx(MemoryLink(lambda: peer, clock, "n77xx"), clock, device="pm1")
    opened.open()
    peer.sent.clear()
    return opened


def without_error_queries(peer: Meter) -> list[str]:
    return [each for each in peer.sent if each != "SYST:ERR?"]


def test_a_free_running_log_is_the_sequence_of_the_guide(meter: KeysightN77xx, peer: Meter) -> None:
    log = meter.functions.log((2,), 64, 1e-3)
    sent = without_error_queries(peer)
    held = ["SENS2:POW:REF:STAT?", ":SENS2:POW:UNIT?", ":INIT2:CONT?", ":SENS2:CORR?"]
    assert sent[:9] == [
        *held,
        "TRIG2:INP IGN",
        "TRIG2:INP?",
        "SENS2:FUNC:PAR:LOGG 64,0.001S",
        "SENS2:FUNC:PAR:LOGG?",
        "SENS2:FUNC:STAT LOGG,STAR",
    ]
    assert sent[-9:] == [
        "SENS2:FUNC:RES?",
        *held,
        "SENS2:FUNC:STAT LOGG,STOP",
        "TRIG2:INP IGN",
        "TRIG2:INP?",
        "INIT2:CONT 0",
    ]
    assert set(sent[9:-9]) == {"SENS2:FUNC:STAT?"}
    assert log.power_w.shape == (1, 64)
    assert log.power_w[0] == pytest.approx([LIGHT_W] * 64, rel=0.1)
    assert log.period_s == 1e-3


def test_a_log_during_which_somebody_changed_the_unit_is_no_log(meter: KeysightN77xx, peer: Meter) -> None:
    peer.complete_run("SENS2", [1e-6, 2e-6])
    run = meter.functions.start_log((2,), 2, 1e-3)
    peer.ask_elsewhere("SENS2:POW:UNIT 0")
    with pytest.raises(VerifyError, match=r"unit of port 2.*Measure again"):
        run.wait()
    assert meter.functions.log((2,), 2, 1e-3).power_w.tolist() == [[np.float32(1e-6), np.float32(2e-6)]]
    assert peer.ask_elsewhere("SENS2:POW:UNIT?") == "+1"  # the next log has set it again


def test_samples_that_no_sensor_reads_are_no_powers(meter: KeysightN77xx, peer: Meter) -> None:
    peer.complete_run("SENS2", [-30.0, 0.02, 0.022])  # of dBm; an N774x ends at 10 mW
    log = meter.functions.log((2,), 3, 1e-3)
    assert log.state.tolist() == [[RangeState.INVALID, RangeState.OK, RangeState.OVER]]
    assert np.isnan(log.power_w[0, [0, 2]]).all()


def test_a_triggered_log_has_no_period_and_waits_for_its_triggers(meter: KeysightN77xx, peer: Meter) -> None:
    run = meter.functions.start_log((1,), 2, 1e-4, TriggerInput.ONE_SAMPLE)
    assert "TRIG1:INP SME" in peer.sent
    assert not run.is_complete()
    peer.complete_run("SENS1", [1e-6, 2e-6])
    log = run.wait(timeout_s=60.0)
    assert log.period_s is None
    assert peer.ask_elsewhere("TRIG1:INP?") == "IGN"


def test_too_few_triggers_end_at_the_deadline_and_the_run_is_stopped(
    meter: KeysightN77xx, peer: Meter, clock: VirtualClock
) -> None:
    run = meter.functions.start_log((1,), 100, 1e-4, TriggerInput.ONE_SAMPLE)
    with pytest.raises(DeviceTimeoutError, match="not complete after 5"):
        run.wait(timeout_s=5.0)
    assert "SENS1:FUNC:STAT LOGG,STOP" in peer.sent
    assert clock.now() == pytest.approx(5.0, abs=0.2)
    assert meter.read(1).power_w == pytest.approx(LIGHT_W, rel=0.1)


def test_nothing_is_set_or_read_while_a_run_is_under_way(meter: KeysightN77xx, peer: Meter) -> None:
    run = meter.functions.start_log((1,), 100, 1e-4)
    calls = (
        lambda: meter.set_wavelength_nm(2, 1310.0),
        lambda: meter.set_averaging_s(2, 1.0),
        lambda: meter.set_range_dbm(2, None),
        lambda: meter.read(2),
        meter.read_all,
        meter.zero,
        lambda: meter.functions.log((2,), 10, 1e-3),
        lambda: meter.functions.set_trigger_wiring(TriggerWiring.DEFAULT),
    )
    before = len(peer.sent)
    for call in calls:
        with pytest.raises(BusyError, match="a log is in progress"):
            call()
    assert len(peer.sent) == before
    run.stop()
    run.stop()
    assert meter.read(2).power_w == pytest.approx(LIGHT_W, rel=0.1)


def test_a_run_ended_at_the_panel_is_an_error(meter: KeysightN77xx, peer: Meter) -> None:
    run = meter.functions.start_log((1,), 100, 1e-4)
    peer.ask_elsewhere("SENS1:FUNC:STAT LOGG,STOP")
    with pytest.raises(DeviceError, match="ended by another program"):
        run.wait()


def test_over_range_samples_are_not_numbers(meter: KeysightN77xx, peer: Meter) -> None:
    peer.complete_run("SENS1", [1e-6, FLT_MAX, -FLT_MAX, float("nan")])
    log = meter.functions.log((1,), 4, 1e-3)
    assert log.state[0].tolist() == [RangeState.OK, RangeState.OVER, RangeState.UNDER, RangeState.INVALID]
    assert np.isnan(log.power_w[0]).tolist() == [False, True, True, True]


def test_a_block_of_line_feeds_is_read_by_its_length(meter: KeysightN77xx, peer: Meter) -> None:
    n_samples = 100_000
    peer.replies["SENS1:FUNC:RES?"] = block(ALL_LF * n_samples)
    log = meter.functions.log((1,), n_samples, 1e-6)
    assert np.all(log.power_w == struct.unpack("<f", ALL_LF)[0])
    assert meter.read(1).power_w == pytest.approx(LIGHT_W, rel=0.1)


def test_a_block_of_another_length_is_refused(meter: KeysightN77xx, peer: Meter) -> None:
    peer.replies["SENS1:FUNC:RES?"] = block(bytes(12))
    with pytest.raises(FrameError, match="12 bytes instead of 4 samples"):
        meter.functions.log((1,), 4, 1e-3)
    assert meter.read(1).power_w == pytest.approx(LIGHT_W, rel=0.1)


def test_a_block_cut_off_in_the_middle_is_a_time_out_and_the_next_reading_is_right(
    meter: KeysightN77xx, peer: Meter
) -> None:
    peer.replies["SENS1:FUNC:RES?"] = b"#216" + bytes(7)
    with pytest.raises(LinkTimeout, match="incomplete reply"):
        meter.functions.log((1,), 4, 1e-3)
    assert meter.read(1).power_w == pytest.approx(LIGHT_W, rel=0.1)


def test_parameters_the_instrument_changes_are_noticed_and_the_run_is_not_left_going(
    meter: KeysightN77xx, peer: Meter
) -> None:
    peer.replies["SENS1:FUNC:PAR:LOGG?"] = "+64,+1.00000000E-002"
    with pytest.raises(VerifyError, match="LOGG"):
        meter.functions.log((1,), 64, 1e-3)
    assert "NONE" in peer.ask_elsewhere("SENS1:FUNC:STAT?")
    assert meter.read(1).power_w == pytest.approx(LIGHT_W, rel=0.1)


@pytest.mark.parametrize("n_samples", [0, -1, 1_000_001])
def test_a_log_of_no_or_too_many_samples_is_refused(meter: KeysightN77xx, peer: Meter, n_samples: int) -> None:
    with pytest.raises(LimitError, match="samples"):
        meter.functions.log((1,), n_samples, 1e-3)
    assert peer.sent == []


@pytest.mark.parametrize("channels", [(), (1, 1)])
def test_a_log_needs_channels_each_once(meter: KeysightN77xx, channels: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="each channel once"):
        meter.functions.log(channels, 10, 1e-3)


def test_triggers_are_read_back(meter: KeysightN77xx, peer: Meter) -> None:
    meter.functions.set_trigger_output(4, TriggerOutput.AFTER_AVERAGING)
    meter.functions.set_trigger_wiring(TriggerWiring.LOOP_BACK)
    assert (peer.ask_elsewhere("TRIG4:OUTP?"), peer.ask_elsewhere("TRIG:CONF?")) == ("AVG", "LOOP")
    peer.replies["TRIG:CONF?"] = "DIS"
    with pytest.raises(VerifyError, match="TRIG:CONF"):
        meter.functions.set_trigger_wiring(TriggerWiring.LOOP_BACK)
