"""A chain of Qontrol modules as a mesh controller."""

from __future__ import annotations

import struct
import threading
import zlib
from dataclasses import replace

import numpy as np
import pytest

from lumion_hw.clock import SystemClock, VirtualClock
from lumion_hw.drivers.mesh.qontrol.controller import QontrolController
from lumion_hw.errors import (
    ConfigError,
    ConnectError,
    DeviceError,
    FrameError,
    IdentityError,
    LimitError,
    LinkError,
    LinkLost,
    LinkTimeout,
    NotSupportedError,
    SafetyError,
    VerifyError,
)
from lumion_hw.interfaces import ControllerLimits, MeshController, SweepPlan
from lumion_hw.links import MemoryLink, RecordedExchange, ReplayPeer, replay_link
from tests.drivers.mesh.qontrol.qontrol_wire import ModelChain, lines, opening, opening_in_text, replayed
from tests.waiting import PATIENCE_S

LIMITS = ControllerLimits(heater_max_ma=np.full(16, 15.0), heater_ohm=np.full(16, 500.0), total_power_mw=1500.0)
TABLE = np.linspace(0.0, 14.0, 16)


def modelled(**options) -> tuple[QontrolController, ModelChain]:
    model = ModelChain(VirtualClock())
    controller = model.controller(**options)
    controller.configure(LIMITS)
    model.heard.clear()
    return controller, model


def over_volts(channel: int) -> np.ndarray:
    table = np.zeros(16)
    table[channel] = 10.0
    return table


# -- opening


def test_opening_asks_the_modules_and_changes_nothing() -> None:
    controller, peer = replayed()
    assert peer.remaining == ()
    info = controller.info
    assert (info.serial, info.firmware, info.n_heaters, info.n_monitors) == ("Q8iv-0001,Q8iv-****", "v2.4.1", 16, 0)
    assert info.current_full_scale_ma == 24.0
    assert info.current_step_ma == pytest.approx(24.0 / 65535)
    assert controller.latch_skew_s == pytest.approx(2 * 0.011, abs=1e-4)
    assert controller.compliance.current_ma.tolist() == [24.0] * 16


def test_what_the_modules_lack_is_said() -> None:
    info = replayed()[0].info
    assert not any((info.atomic, info.watchdog, info.on_board_sweep, info.telemetry))
    assert info.readback


def test_it_is_a_mesh_controller() -> None:
    controller: MeshController = replayed()[0]
    for call in (controller.read_monitors, lambda: controller.sweep(SweepPlan(())), lambda: controller.telemetry(0.1)):
        with pytest.raises(NotSupportedError):
            call()


def test_before_it_is_open_nothing_works() -> None:
    clock = VirtualClock()
    controller = QontrolController(replay_link(ReplayPeer([], clock), clock), clock, device="mesh0")
    for call in (lambda: controller.info, controller.read_back, controller.faults, controller.outputs_off):
        with pytest.raises(LinkLost, match="not open"):
            call()
    controller.close()


@pytest.mark.parametrize(
    ("step", "reply", "error", "description"),
    [
        (0, b"", LinkTimeout, "ID"),
        (0, b"E10:00\n", DeviceError, "E10"),
        (0, b"KEYSIGHT,N7745A\n", FrameError, "does not fit this request"),
        (1, b"Q8iv-0001: 0\nQ8iv-****: 2\n", DeviceError, "inconsistent"),
        (1, b"Q8iv-0001: 0\nS8i-0002: 1\n", NotSupportedError, "an input module"),
        (1, b"Q8iv-0001: 0\nM2-0002: 1\n", NotSupportedError, "a motor module"),
        (1, b"", LinkTimeout, "NUPALL"),
        (2, b"8\n4\n", DeviceError, "4 channels on Q8iv"),
        (2, b"8\n", LinkTimeout, "NCHANALL"),
        (3, b"+0.0000 V\n+12.0000 V\n", DeviceError, "full scales"),
    ],
)
def test_a_chain_that_does_not_fit_together_is_refused_and_the_link_closed(
    step: int, reply: bytes, error: type[Exception], description: str
) -> None:
    steps = opening()
    # The first question is asked twice: something in front of it may have spoilt it.
    steps[step : step + 1] = [replace(steps[step], received=reply)] * (2 if step == 0 else 1)
    clock = VirtualClock()
    link = replay_link(ReplayPeer(steps, clock), clock)
    controller = QontrolController(link, clock, device="mesh0")
    with pytest.raises(error, match=description):
        controller.open()
    with pytest.raises(LinkLost, match="closed"):
        link.read(clock.now())


def test_a_module_type_nobody_knows_is_driven_with_its_own_full_scale() -> None:
    steps = opening(kind="Q8z")
    steps[4] = replace(steps[4], received=lines("+30.0000 mA", "+30.0000 mA"))
    clock = VirtualClock()
    controller = QontrolController(replay_link(ReplayPeer(steps, clock), clock), clock, device="mesh0")
    controller.open()
    assert controller.info.current_full_scale_ma == 30.0


def test_other_modules_than_expected_are_refused() -> None:
    with pytest.raises(IdentityError, match=r"modules Q8iv-00AB, found Q8iv-0001,Q8iv-\*\*\*\*"):
        replayed(expected_serial="Q8iv-00AB")


def test_the_modules_are_numbered_anew_on_request_only() -> None:
    steps = opening()
    clock = VirtualClock()
    peer = ReplayPeer([steps[0], RecordedExchange(b"NUP=0\n", b"\x06OK\n\x06OK\n"), *steps[1:]], clock)
    QontrolController(replay_link(peer, clock), clock, device="mesh0", reenumerate=True).open()
    assert peer.remaining == ()


# -- the bytes


def test_a_table_goes_out_in_one_binary_vector_per_module_and_is_read_back() -> None:
    table = np.linspace(0.0, 13.15, 16)
    description = [round(value / 24.0 * 65535) for value in table]
    vectors = [
        bytes.fromhex(head) + struct.pack(">8H", *module_values)
        for head, module_values in (("82010000000008", description[:8]), ("82010000080008", description[8:]))
    ]
    reading = lines(*[f"{value:+.4f} mA" for value in table])
    controller, peer = replayed(
        RecordedExchange(vectors[0], b"OK\n"),
        RecordedExchange(vectors[1], b"OK\n"),
        RecordedExchange(bytes.fromhex("a9010000000000"), reading),
    )
    generation = controller.program(table)
    assert peer.remaining == ()
    assert generation.number == 1
    assert generation.crc32 == zlib.crc32(struct.pack("<16H", *description))


def test_in_text_a_short_table_goes_out_in_one_line_per_module() -> None:
    table = np.array([0.0, 1.25, 2.5, 9.2, 0.5, 1e-5, 3.3333, 4.0] * 2)
    text = b"0.0,1.25,2.5,9.2,0.5,0.0,3.3333,4.0\n"
    reading = lines(*[f"{value:+.4f} mA" for value in table])
    controller, peer = replayed(
        RecordedExchange(b"IVEC0=" + text, b"OK\n"),
        RecordedExchange(b"IVEC8=" + text, b"OK\n"),
        RecordedExchange(b"IALL?\n", reading),
        mode="ascii",
    )
    controller.program(table)
    assert peer.remaining == ()


def test_in_text_values_too_long_for_one_line_go_out_one_by_one() -> None:
    values = [10.1234 + channel for channel in range(8)]  # 7 characters each: a line of 70 bytes
    table = np.array([*values, *[0.0] * 8])
    singles = [RecordedExchange(f"I{channel}={value:.4f}\n".encode(), b"OK\n") for channel, value in enumerate(values)]
    controller, peer = replayed(
        *singles,
        RecordedExchange(b"IVEC8=0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0\n", b"OK\n"),
        RecordedExchange(b"IALL?\n", lines(*[f"{value:+.4f} mA" for value in table])),
        mode="ascii",
    )
    controller.program(table)
    assert peer.remaining == ()


def test_the_limits_are_set_in_the_modules_and_read_back() -> None:
    imax, vmax = round(15 / 24 * 65535), round(11.25 / 12 * 65535)  # VMAX: 15 mA in 500 ohm, and half as much again
    heads = ("82030000000008", "82030000080008", "82020000000008", "82020000080008")
    sets = [
        RecordedExchange(bytes.fromhex(head) + struct.pack(">8H", *[word] * 8), b"OK\n")
        for head, word in zip(heads, (imax, imax, vmax, vmax), strict=True)
    ]
    before = opening()[-2:]
    after = [
        replace(before[0], received=lines(*["+14.9998 mA"] * 16)),
        replace(before[1], received=lines(*["+11.2499 V"] * 16)),
    ]
    controller, peer = replayed(*before, *sets, *after, *after)
    controller.configure(LIMITS)
    assert len(peer.remaining) == 2
    controller.configure(LIMITS)  # the modules have these limits: nothing is written
    assert peer.remaining == ()
    assert controller.compliance.voltage_v.tolist() == [11.2499] * 16


# -- limits


def test_limits_in_text_are_set_channel_by_channel() -> None:
    model = ModelChain(VirtualClock())
    controller = model.controller(mode="ascii", compliance_v=9.5)
    max_ma = np.full(16, 24.0)
    max_ma[[3, 12]] = [20.0, 7.5]
    controller.configure(replace(LIMITS, heater_max_ma=max_ma))
    assert [request for request in model.heard if b"IMAX" in request and b"=" in request] == [
        b"IMAX3=20.0\n",
        b"IMAX12=7.5\n",
    ]
    assert set(model.values["VMAX"]) == {9.5}


@pytest.mark.parametrize("mode", ["binary", "ascii"])
def test_a_current_outside_its_limit_changes_nothing_and_names_the_channel(mode: str) -> None:
    controller, model = modelled(mode=mode)
    for value in (15.001, -0.001, float("nan"), float("inf")):
        table = TABLE.copy()
        table[11] = value
        with pytest.raises(LimitError, match="channel 11") as caught:
            controller.program(table)
        assert caught.value.unit == "mA"
    assert model.heard == []


def test_a_table_of_another_shape_is_refused() -> None:
    controller, model = modelled()
    with pytest.raises(ConfigError, match="16 channels"):
        controller.program(np.zeros(15))
    assert model.heard == []


def test_the_power_cap_is_the_drivers() -> None:
    controller, model = modelled()
    # 16 heaters of 500 ohm at 14 mA: 16 * 500 * 0.196 = 1568 mW
    with pytest.raises(LimitError, match="total power is too high") as caught:
        controller.program(np.full(16, 14.0))
    assert (caught.value.requested, caught.value.limit, caught.value.unit) == (pytest.approx(1568.0), 1500.0, "mW")
    assert model.heard == []
    controller.program(np.full(16, 10.0))  # 800 mW
    model.heard.clear()
    with pytest.raises(LimitError, match=r"total power.*requested 800 mW, limit 700 mW"):
        controller.configure(replace(LIMITS, total_power_mw=700.0))
    assert model.heard == []


def test_a_limit_the_modules_cannot_have_is_refused() -> None:
    controller, model = modelled()
    for value in (24.1, -1.0, float("nan")):
        wrong = LIMITS.heater_max_ma.copy()
        wrong[5] = value
        with pytest.raises(LimitError, match="channel 5"):
            controller.configure(replace(LIMITS, heater_max_ma=wrong))
    with pytest.raises(LimitError, match="total_power_mw"):
        controller.configure(replace(LIMITS, total_power_mw=-1.0))
    assert model.heard == []


def test_a_limit_below_what_is_driven_is_refused() -> None:
    controller, model = modelled()
    controller.program(TABLE)
    with pytest.raises(LimitError, match="present currents"):
        controller.configure(replace(LIMITS, heater_max_ma=np.full(16, 13.9)))
    assert model.values["IMAX"][0] == pytest.approx(15.0, abs=1e-3)


def test_a_limit_that_does_not_read_back_is_raised() -> None:
    model = ModelChain(VirtualClock())
    controller = model.controller()
    model.instead.extend([lines(*["+24.0000 mA"] * 16), lines(*["+12.0000 V"] * 16), *[b"OK\n"] * 4])
    model.instead.extend([lines(*["+15.0000 mA"] * 15, "+24.0000 mA"), lines(*["+11.2500 V"] * 16)])
    with pytest.raises(VerifyError, match="IMAX of channel 15"):
        controller.configure(LIMITS)


def test_a_channel_switched_off_for_good_is_never_driven() -> None:
    model = ModelChain(VirtualClock())
    controller = model.controller()
    max_ma = LIMITS.heater_max_ma.copy()
    max_ma[4] = 0.0
    controller.configure(replace(LIMITS, heater_max_ma=max_ma))
    with pytest.raises(LimitError, match="channel 4"):
        controller.program(np.full(16, 0.001))
    controller.program(np.where(max_ma > 0, 1.0, 0.0))
    # the module's own limit stays above what an idle output reads (0.012 mA, 0.2 V), so that it never trips on nothing
    assert model.values["IMAX"][4] == pytest.approx(0.05, abs=1e-3)
    assert model.values["VMAX"][4] == pytest.approx(1.0, abs=1e-3)


# -- driving


@pytest.mark.parametrize("mode", ["binary", "ascii"])
def test_what_is_programmed_is_driven_and_read_back(mode: str) -> None:
    controller, model = modelled(mode=mode)
    mine = TABLE.copy()
    generation = controller.program(mine)
    np.testing.assert_allclose(model.values["I"], TABLE, atol=24 / 65535)
    np.testing.assert_allclose(controller.read_back(), TABLE, atol=1e-3)
    np.testing.assert_array_equal(mine, TABLE)
    assert controller.program(TABLE / 2).number == generation.number + 1
    readings = controller.read_channels()
    np.testing.assert_allclose(readings.voltage_v, TABLE / 2 * 0.5, atol=1e-3)
    np.testing.assert_allclose(readings.current_ma, TABLE / 2, atol=1e-3)


def test_a_reading_keeps_its_sign() -> None:
    controller, model = modelled()
    model.instead.append(lines("-0.0033 mA", *["+0.0000 mA"] * 15))
    assert controller.read_back()[0] == -0.0033


def test_a_current_that_does_not_read_back_is_raised_with_its_channels() -> None:
    controller, model = modelled()
    model.gain = 0.98
    started_s = model.clock.now()
    with pytest.raises(
        VerifyError, match=r"channels 6, 7, 8, .*channel 6: wrote 5\.6000 mA, read back 5\.48"
    ) as caught:
        controller.program(TABLE)
    assert caught.value.device == "mesh0"
    assert model.clock.now() - started_s < 0.3


def test_a_current_that_takes_its_time_is_waited_for() -> None:
    controller, model = modelled()
    zeros = lines(*["+0.0000 mA"] * 16)
    model.instead.extend([b"OK\n", b"OK\n", zeros, zeros])
    started_s = model.clock.now()
    controller.program(TABLE)
    assert 0.04 <= model.clock.now() - started_s < 0.1


def test_a_reading_no_output_can_have_is_an_error() -> None:
    controller, model = modelled()
    model.instead.append(lines("+93.0000 mA", *["+0.0000 mA"] * 15))
    with pytest.raises(FrameError, match="channel 0, full scale is 24"):
        controller.read_back()
    assert not controller.read_back().any()


def test_readings_of_other_channels_than_those_of_the_chain_are_an_error() -> None:
    controller, model = modelled()
    model.instead.append(lines(*[f"0,{channel % 8}: +0.0000 V, +0.0000 mA" for channel in range(16)]))
    with pytest.raises(FrameError, match="do not match the channels"):
        controller.read_channels()


def test_a_refused_vector_is_raised_with_its_module() -> None:
    controller, model = modelled()
    model.instead.extend([b"OK\n", b"E13:00\n"])
    with pytest.raises(DeviceError, match=r"binary I8…15=.*E13 FORBIDDEN") as caught:
        controller.program(TABLE)
    assert caught.value.code == 13
    controller.program(TABLE)


# -- reports


@pytest.mark.parametrize("channel", [2, 10])
def test_an_open_heater_is_reported_with_its_channel_out_of_two_candidates(channel: int) -> None:
    controller, model = modelled()
    model.ohm[channel] = 1e6
    model.after_ok.append([f"E01:{channel % 8:02d}"])
    with pytest.raises(
        DeviceError, match=rf"OVER_VOLTAGE \(id 1\) on channel {channel}: 11250 mV, limit 11250 mV"
    ) as caught:
        controller.program(over_volts(channel))
    assert caught.value.code == 1
    fault = controller.faults()[-1]
    assert (fault.source, fault.channel, fault.latched, fault.present) == ("OVER_VOLTAGE", channel, True, True)
    assert (fault.value, fault.extra["unit"]) == (11250, "mV")


def test_a_report_that_fits_no_channel_names_all_candidates() -> None:
    controller, model = modelled()
    model.before_ok.append(["E02:05"])
    with pytest.raises(DeviceError, match=r"OVER_CURRENT \(id 1\) on one of channels 5, 13"):
        controller.program(np.zeros(16))
    assert controller.faults()[-1].extra["candidates"] == (5, 13)
    assert controller.faults()[-1].channel is None


def test_a_report_between_two_calls_stops_the_next_table() -> None:
    controller, model = modelled()
    controller.program(TABLE)
    model.say("E01:03", "E01:03")
    model.clock.sleep(0.1)
    model.heard.clear()
    with pytest.raises(
        SafetyError,
        match=r"nothing was sent, because faults are latched: OVER_VOLTAGE \(id 1\) on one of channels 3, 11",
    ):
        controller.program(TABLE / 2)
    assert not [request for request in model.heard if request[0] == 0x82]
    assert len(controller.faults()) == 1
    controller.clear_fault(1)
    controller.program(TABLE / 2)
    assert [fault.latched for fault in controller.faults()] == [False]


def test_the_latch_skew_is_measured_with_the_last_table() -> None:
    controller, model = modelled(window_bytes=0)
    model.delay_s = 0.016
    controller.program(TABLE)  # two vectors and a reading, each waited for
    assert controller.latch_skew_s == pytest.approx(3 * 0.016, abs=1e-3)


def test_a_fault_whose_cause_is_present_cannot_be_cleared_but_switched_off() -> None:
    controller, model = modelled()
    model.ohm[2] = 1e6
    model.after_ok.append(["E01:02"])
    with pytest.raises(DeviceError):
        controller.program(over_volts(2))
    with pytest.raises(SafetyError, match=r"still present: OVER_VOLTAGE \(id 1\) on channel 2"):
        controller.clear_fault(1)
    controller.outputs_off()
    for fault in controller.faults():
        assert fault.latched
        controller.clear_fault(fault.fault_id)
    assert not any(fault.latched for fault in controller.faults())
    controller.program(np.zeros(16))


def test_suppressed_errors_are_looked_up_in_the_modules_logs() -> None:
    controller, model = modelled()
    model.before_ok.append(["E30:00"])
    with pytest.raises(DeviceError, match="ERRORS_SUPPRESSED") as caught:
        controller.program(np.zeros(16))
    assert caught.value.code == 30
    assert b"LOGALL?\n" in model.heard
    # the newest entry of each module's log is E01:00, now; all others are old
    assert [(fault.source, fault.channel) for fault in controller.faults()[1:]] == [
        ("OVER_VOLTAGE", 0),
        ("OVER_VOLTAGE", 8),
    ]


def test_the_logs_can_be_read() -> None:
    controller, _ = modelled()
    log = controller.read_log()
    assert len(log) == 128
    assert (log[0].module, log[0].code, log[0].age_s) == (0, 10, 960.0)
    assert (log[65].module, log[65].code, log[65].age_s) == (1, 1, 0.0)


def test_a_module_that_was_powered_up_gets_its_limits_again_before_it_drives() -> None:
    controller, model = modelled()
    controller.program(TABLE)
    for name, value in (("I", 0.0), ("IMAX", 24.0), ("VMAX", 12.0)):
        model.values[name] = [value] * 16
    model.say("E90:00")
    model.clock.sleep(0.1)
    with pytest.raises(SafetyError, match="POWERED_UP"):
        controller.program(TABLE)
    controller.clear_fault(controller.faults()[-1].fault_id)
    controller.program(TABLE)
    np.testing.assert_allclose(model.values["IMAX"], 15.0, atol=1e-3)


# -- stopping and closing


def test_outputs_off_is_read_back_and_latched_until_cleared() -> None:
    controller, model = modelled()
    controller.program(TABLE)
    controller.outputs_off()
    controller.outputs_off()
    assert not any(model.values["I"])
    with pytest.raises(SafetyError, match="ESTOP"):
        controller.program(TABLE)
    controller.clear_fault(controller.faults()[-1].fault_id)
    controller.program(TABLE)


def test_outputs_off_tries_again_when_it_is_refused() -> None:
    controller, model = modelled()
    controller.program(TABLE)
    model.instead.append(b"E16:00\n")
    controller.outputs_off()
    assert not any(model.values["I"])


def test_currents_that_keep_flowing_are_raised() -> None:
    controller, model = modelled()
    stuck = lines("+5.0000 mA", *["+0.0000 mA"] * 15)
    model.instead.extend([b"OK\n", b"OK\n", *[stuck] * 7])
    with pytest.raises(VerifyError, match=r"channel 0.*read back 5\.0000 mA\. Disconnect the analog supply"):
        controller.outputs_off()


def test_outputs_off_of_an_unplugged_chain_is_a_link_error() -> None:
    controller, model = modelled()
    model.unplugged = True
    for call in (controller.outputs_off, controller.faults, controller.read_back, lambda: controller.clear_fault(1)):
        with pytest.raises(LinkError):
            call()
    controller.close()


def test_a_silent_chain_is_given_up_in_time() -> None:
    controller, model = modelled()
    model.instead.extend([b""] * 50)
    started_s = model.clock.now()
    with pytest.raises(LinkError):
        controller.outputs_off()
    assert model.clock.now() - started_s < 5.0


@pytest.mark.parametrize("leave_on", [False, True])
def test_closing_switches_off_unless_told_otherwise(leave_on: bool) -> None:
    controller, model = modelled(leave_on=leave_on)
    with controller:
        controller.program(TABLE)
    assert any(model.values["I"]) is leave_on
    controller.close()
    for call in (lambda: controller.configure(LIMITS), controller.read_back):
        with pytest.raises(LinkError, match="not open"):
            call()


def test_opening_again_applies_the_limits_and_drives_nothing() -> None:
    controller, model = modelled(leave_on=True)
    controller.program(TABLE)
    controller.close()
    model.values.update({"I": [0.0] * 16, "IMAX": [24.0] * 16})
    controller.open()
    np.testing.assert_allclose(model.values["IMAX"], 15.0, atol=1e-3)
    assert not any(model.values["I"])


def test_other_modules_after_a_lost_link_are_refused() -> None:
    controller, model = modelled()
    model.unplugged = True
    with pytest.raises(LinkError):
        controller.read_back()
    model.unplugged, model.n_modules = False, 1
    with pytest.raises(IdentityError, match="found Q8iv-0001"):
        controller.open()


def test_a_host_that_stops_calling_finds_its_outputs_off() -> None:
    controller, model = modelled(idle_off_s=10.0)
    controller.program(TABLE)
    model.clock.sleep(9.0)
    controller.read_back()
    model.clock.sleep(9.0)
    assert any(model.values["I"])
    model.clock.sleep(5.0)
    assert not any(model.values["I"])
    assert [fault.source for fault in controller.faults()] == ["HOST_IDLE"]
    with pytest.raises(SafetyError, match="HOST_IDLE"):
        controller.program(TABLE)
    controller.close()


def test_two_threads_share_the_driver() -> None:
    model = ModelChain(SystemClock())
    model.delay_s = 0.0
    controller = model.controller()
    controller.configure(LIMITS)
    mixed: list[object] = []

    def program() -> None:
        for round_ in range(30):
            controller.program(np.full(16, 1.0 + round_ % 2))

    def read() -> None:
        for _ in range(30):
            actual = set(np.round(controller.read_back()).tolist())
            if len(actual) != 1:
                mixed.append(actual)

    threads = [threading.Thread(target=work) for work in (program, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert mixed == []
    controller.close()


def test_a_port_that_is_missing_is_said_so() -> None:
    clock = VirtualClock()

    def refuse() -> ModelChain:
        raise ConnectError("no such port", address="nowhere")

    with pytest.raises(ConnectError) as caught:
        QontrolController(MemoryLink(refuse, clock, "nowhere"), clock, device="mesh0").open()
    assert caught.value.device == "mesh0"


def test_in_text_the_limits_are_read_in_text() -> None:
    _, peer = replayed(mode="ascii")
    assert peer.remaining == ()
    assert opening_in_text()[-1].sent == b"VMAXALL?\n"
