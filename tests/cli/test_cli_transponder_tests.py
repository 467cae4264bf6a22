"""``lumion transponder loopback``, ``prbs``, ``flags``, ``set`` and ``eeprom`` on emulated modules of four kinds."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from lumion_hw import Bench
from lumion_hw.cli import main
from lumion_hw.cli.common.modules import Lanes
from lumion_hw.drivers import CmisTransponder, QsfpTransponder
from lumion_hw.standards.cmis.codes import ModuleState

BENCH = """
version: 1
name: modules
devices:
  mesh0: {kind: lumion-mesh}
  zr: {kind: cmis, profile: 400zr, serial: ZR-1}
  dr4: {kind: cmis, profile: 400g-dr4, serial: DR-1}
  lr4: {kind: qsfp-8636, profile: 100g-lr4, serial: LR-1}
  sfp: {kind: sfp-8472, serial: ER-1}
  dr16: {kind: cmis, profile: 1.6t-2xdr8, serial: DR-2}
mesh: {controller: mesh0}
"""
BIT_RATE_400ZR = 478.75e9
"""Line rate of 400ZR: 59.84375 GBd, four bits per symbol on each of two polarizations (OIF-400ZR-01.0)."""

BIT_RATE_100GBASE_DR = 106.25e9
"""Line rate of a lane of 400GBASE-DR4: 53.125 GBd, two bits per symbol (IEEE 802.3 clause 124)."""


@pytest.fixture
def bench_file(tmp_path: Path) -> str:
    path = tmp_path / "bench.yaml"
    path.write_text(BENCH)
    return str(path)


@pytest.fixture
def bench(bench_file: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """The emulated bench that every command of a test uses, so that its state lasts from one to the next."""
    with Bench.emulate(bench_file, only=["zr", "dr4", "lr4", "sfp"]) as bench:
        monkeypatch.setattr("lumion_hw.cli.common.modules.open_bench", lambda *_: contextlib.nullcontext(bench))
        yield bench


@pytest.fixture
def zr(bench: Bench) -> CmisTransponder:
    module = bench.transponders["zr"]
    assert isinstance(module, CmisTransponder)
    return module


@pytest.fixture
def lit(zr: CmisTransponder) -> CmisTransponder:
    """The coherent module, which receives its own light."""
    zr.power_up()
    zr.select_application(1)
    zr.set_loopback("media_output", True)
    zr.enable()
    assert zr.wait_for_lock(60.0).locked
    return zr


def words(*arguments: str) -> list[str]:
    """Return the words of a command; an argument may be several words."""
    return ["transponder", *(word for text in arguments for word in text.split())]


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(words(*arguments)) == code
    return capsys.readouterr().out


def document(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    return json.loads(run(capsys, *arguments, "--json", code=code))


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(words(*arguments)) != 0
    return " ".join(capsys.readouterr().err.split())


def registers(module: CmisTransponder, page: int, *places: int) -> list[int]:
    """Return bytes of the module's memory, with the addresses of the standard."""
    half = module.dump().halves[0, page]
    return [half[place - 128] for place in places]


# -- loopback


def test_close_and_open_a_loopback(capsys: pytest.CaptureFixture[str], zr: CmisTransponder) -> None:
    closed = document(capsys, "loopback", "b", "zr", "media-near")["closed"]
    assert closed == {"media-near": [1, 2, 3, 4, 5, 6, 7, 8], "host-near": []}
    assert registers(zr, 0x13, 180, 181, 182, 183) == [0xFF, 0, 0, 0]  # media side output
    run(capsys, "loopback", "b", "zr", "host-near", "--lanes", "1,5-6")
    assert registers(zr, 0x13, 180, 181, 182, 183) == [0xFF, 0, 0, 0b11_0001]  # host side input
    assert "-" in run(capsys, "loopback", "b", "zr", "off")
    assert registers(zr, 0x13, 180, 181, 182, 183) == [0, 0, 0, 0]
    assert zr.status().tx_disabled


def test_open_the_loopback_of_some_lanes(capsys: pytest.CaptureFixture[str], bench: Bench) -> None:
    assert bench.transponders["dr4"]
    run(capsys, "loopback", "b", "dr4", "media-near")
    closed = document(capsys, "loopback", "b", "dr4", "off", "--lanes", "2")["closed"]
    assert closed["media-near"] == [1, 3, 4, 5, 6, 7, 8]


def test_a_loopback_that_the_module_does_not_advertise(capsys: pytest.CaptureFixture[str], zr: CmisTransponder) -> None:
    assert "media input loopback is not supported" in refusal(capsys, "loopback", "b", "zr", "media-far")
    assert "single lanes is not supported" in refusal(capsys, "loopback", "b", "zr", "media-near", "--lanes", "1")
    assert "no lane 9 for loopbacks" in refusal(capsys, "loopback", "b", "zr", "media-near", "--lanes", "9")
    assert registers(zr, 0x13, 180, 181, 182, 183) == [0, 0, 0, 0]
    for name in ("lr4", "sfp"):
        assert "needs a CMIS module" in refusal(capsys, "loopback", "b", name, "off")


@pytest.fixture
def sixteen_lanes(bench_file: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CmisTransponder]:
    """A module with two banks of eight lanes, which the commands of a test use."""
    with Bench.emulate(bench_file, only=["dr16"]) as bench:
        monkeypatch.setattr("lumion_hw.cli.common.modules.open_bench", lambda *_: contextlib.nullcontext(bench))
        module = bench.transponders["dr16"]
        assert isinstance(module, CmisTransponder)
        yield module


def test_loopback_and_pattern_of_lanes_above_8(
    capsys: pytest.CaptureFixture[str], sixteen_lanes: CmisTransponder
) -> None:
    closed = document(capsys, "loopback", "b", "dr16", "media-near")["closed"]
    assert closed["media-near"] == list(range(1, 17))
    sixteen_lanes.power_up()
    sixteen_lanes.enable()
    assert sixteen_lanes.wait_for_lock(60.0).locked
    test = "prbs b dr16 --side media --pattern PRBS31 --generate --check --seconds 2"
    result = document(capsys, test, "--lanes 4,12-13")
    assert [(total["lane"], total["has_pattern"]) for total in result["totals"]] == [(4, True), (12, True), (13, True)]
    closed = document(capsys, "loopback", "b", "dr16", "off", "--lanes", "9-16")["closed"]
    assert closed["media-near"] == list(range(1, 9))


@pytest.mark.parametrize("text", ["0", "33", "1,", "4-2", "a", "1-", "²"])
def test_wrong_lanes(text: str) -> None:
    with pytest.raises(click.BadParameter, match="1,3 or 5-8"):
        Lanes().convert(text, None, None)


# -- test patterns


def test_bits_and_errors_of_a_pattern(capsys: pytest.CaptureFixture[str], lit: CmisTransponder) -> None:
    result = document(capsys, "prbs b zr --side media --pattern PRBS31 --generate --check --seconds 3 --lanes 1")
    assert [row["time_s"] for row in result["rows"]] == pytest.approx([1.0, 2.0, 3.0], abs=0.3)
    (total,) = result["totals"]
    assert total["has_pattern"]
    assert total["bits"] == pytest.approx(3.0 * BIT_RATE_400ZR, rel=0.15)
    assert total["errors"] == sum(row["errors"] for row in result["rows"])
    assert total["ber"] == total["errors"] / total["bits"]
    assert 1e-9 < total["ber"] < 1.25e-2  # below the limit of the error correction
    assert registers(lit, 0x13, 152, 168) == [0, 0]  # generator and checker are off
    assert not lit.status().tx_disabled


def test_the_lanes_of_the_data_paths_are_tested(capsys: pytest.CaptureFixture[str], bench: Bench) -> None:
    dr4 = bench.transponders["dr4"]
    assert isinstance(dr4, CmisTransponder)
    dr4.power_up()
    dr4.select_application(1)
    dr4.set_loopback("media_output", True)
    dr4.enable()
    assert dr4.wait_for_lock(60.0).locked
    result = document(capsys, "prbs b dr4 --side media --pattern PRBS31 --generate --check --seconds 2")
    assert [total["lane"] for total in result["totals"]] == [1, 2, 3, 4]
    for total in result["totals"]:
        assert total["bits"] == pytest.approx(2.0 * BIT_RATE_100GBASE_DR, rel=0.2)
    result = document(capsys, "prbs b dr4 --side host --pattern PRBS31 --check --seconds 1 --lanes 2,5-6", code=1)
    assert [total["lane"] for total in result["totals"]] == [2, 5, 6]
    assert registers(dr4, 0x13, 144, 152, 160, 168) == [0, 0, 0, 0]


def test_a_slow_bus_does_not_prolong_the_test(
    capsys: pytest.CaptureFixture[str], bench: Bench, lit: CmisTransponder, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = lit.pattern_counts

    def slow(*arguments: Any) -> Any:
        bench.clock.sleep(1.5)
        return count(*arguments)

    monkeypatch.setattr(lit, "pattern_counts", slow)
    result = document(capsys, "prbs b zr --side media --pattern PRBS31 --generate --check --seconds 4")
    assert [row["time_s"] for row in result["rows"]] == pytest.approx([2.6, 4.2], abs=0.2)


def test_one_line_per_lane_and_second(capsys: pytest.CaptureFixture[str], lit: CmisTransponder) -> None:
    assert lit
    out = run(capsys, "prbs b zr --side media --pattern PRBS31 --generate --check --seconds 2")
    assert sum(" lane 1  BER " in line for line in out.splitlines()) == 2
    assert "PRBS31 at zr" in out


def test_a_checker_without_the_pattern(capsys: pytest.CaptureFixture[str], lit: CmisTransponder) -> None:
    result = document(capsys, "prbs b zr --side media --pattern PRBS31 --check --seconds 2", code=1)
    assert [(total["has_pattern"], total["ber"]) for total in result["totals"]] == [(False, None)]
    assert registers(lit, 0x13, 152, 168) == [0, 0]


def test_a_pattern_that_stops_in_the_middle(
    capsys: pytest.CaptureFixture[str], bench: Bench, lit: CmisTransponder, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_second(bench, monkeypatch, 2, lambda: lit.stop_pattern("media_generator"))
    result = document(capsys, "prbs b zr --side media --pattern PRBS31 --generate --check --seconds 4", code=1)
    assert [row["has_pattern"] for row in result["rows"]] == [True, False, False, False]


def test_a_module_that_only_reports_ratios(
    capsys: pytest.CaptureFixture[str], lit: CmisTransponder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lumion_hw.errors import NotSupportedError

    def refuse(*_: object) -> None:
        raise NotSupportedError("counting bits of a test pattern is not supported")

    monkeypatch.setattr(lit, "pattern_counts", refuse)
    result = document(capsys, "prbs b zr --side media --pattern PRBS31 --generate --check --seconds 2")
    (total,) = result["totals"]
    assert (total["bits"], total["errors"]) == (None, None)
    assert 1e-9 < total["ber"] < 1e-2
    assert total["has_pattern"]
    silent = document(capsys, "prbs b zr --side media --pattern PRBS31 --check --seconds 2", code=1)
    assert silent["totals"][0]["ber"] is None


def test_a_generator_alone(capsys: pytest.CaptureFixture[str], zr: CmisTransponder) -> None:
    zr.power_up()
    result = document(capsys, "prbs b zr --side host --pattern PRBS31 --generate --seconds 2")
    assert (result["rows"], result["totals"], result["lanes"]) == ([], [], [1, 2, 3, 4, 5, 6, 7, 8])
    assert registers(zr, 0x13, 144) == [0]
    assert zr.status().tx_disabled


def at_second(bench: Bench, monkeypatch: pytest.MonkeyPatch, second: int, action: Callable[[], Any]) -> None:
    """Call an action before the wait for a second of the test; other waits are shorter than half a second."""
    sleep, n_waits = bench.clock.sleep, 0

    def counted(seconds: float) -> None:
        nonlocal n_waits
        if seconds > 0.5:
            n_waits += 1
            if n_waits == second:
                action()
        sleep(seconds)

    monkeypatch.setattr(bench.clock, "sleep", counted)


def interrupt() -> None:
    raise KeyboardInterrupt


def test_ctrl_c_switches_generator_and_checker_off(
    capsys: pytest.CaptureFixture[str], bench: Bench, lit: CmisTransponder, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_second(bench, monkeypatch, 3, interrupt)
    result = document(capsys, "prbs b zr --side media --pattern PRBS31 --generate --check")
    assert result["interrupted"]
    assert len(result["rows"]) == 2
    assert registers(lit, 0x13, 152, 168) == [0, 0]
    assert not lit.status().tx_disabled


def test_ctrl_c_before_the_requested_time(
    capsys: pytest.CaptureFixture[str], bench: Bench, lit: CmisTransponder, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_second(bench, monkeypatch, 2, interrupt)
    arguments = "prbs b zr --side media --pattern PRBS31 --generate --check --seconds 9"
    assert main(words(arguments)) == 130
    captured = capsys.readouterr()
    assert "worst interval" in captured.out
    assert "interrupted" in captured.err
    assert registers(lit, 0x13, 152, 168) == [0, 0]


def test_ctrl_c_between_generator_and_checker(
    capsys: pytest.CaptureFixture[str], lit: CmisTransponder, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = lit.start_pattern

    def start_one(end: str, *arguments: Any) -> None:
        start(end, *arguments)
        if end == "media_generator":
            raise KeyboardInterrupt

    monkeypatch.setattr(lit, "start_pattern", start_one)
    run(capsys, "prbs b zr --side media --pattern PRBS31 --generate --check")
    assert registers(lit, 0x13, 152, 168) == [0, 0]


def test_removal_in_the_middle(
    capsys: pytest.CaptureFixture[str], bench: Bench, lit: CmisTransponder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lit
    at_second(bench, monkeypatch, 3, lambda: bench.emulated.faults.inject("zr", "module_dead"))
    assert main(words("prbs b zr --side media --pattern PRBS31 --generate --check --seconds 9")) == 4
    captured = capsys.readouterr()
    assert captured.out.count(" lane 1  BER ") == 2
    assert "worst interval" in captured.out
    assert "zr: the test ended early" in captured.err
    assert "address not acknowledged for 0.1 s. Check that the module is plugged in and powered." in captured.err
    assert captured.err.count("could not be switched off") == 2


def test_removal_during_a_generator_alone(
    capsys: pytest.CaptureFixture[str], bench: Bench, lit: CmisTransponder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lit
    at_second(bench, monkeypatch, 2, lambda: bench.emulated.faults.inject("zr", "module_dead"))
    error = refusal(capsys, "prbs b zr --side media --pattern PRBS31 --generate")
    assert "could not be switched off" in error


def test_a_module_that_was_unplugged_and_plugged_in_again(
    capsys: pytest.CaptureFixture[str], bench: Bench, lit: CmisTransponder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lit

    def replug() -> None:
        bench.emulated.faults.inject("zr", "module_dead")
        bench.emulated.faults.end("zr", "module_dead")
        for _ in range(12):  # until the module has started up
            bench.clock.sleep(0.4)

    at_second(bench, monkeypatch, 3, replug)
    error = refusal(capsys, "prbs b zr --side media --pattern PRBS31 --generate --check --seconds 9")
    assert "the media pattern checker of lane 1 is off. Start it. If it was on, the module was reset" in error


def test_a_pattern_that_the_module_does_not_advertise(capsys: pytest.CaptureFixture[str], zr: CmisTransponder) -> None:
    zr.power_up()
    error = refusal(capsys, "prbs b zr --side media --pattern PRBS31Q --generate --check --seconds 1")
    # 00AAh on bytes 13h:134-135: bits 1, 3, 5 and 7.
    assert "does not support PRBS31Q. It advertises PRBS31, PRBS23, PRBS15, PRBS13" in error
    assert registers(zr, 0x13, 152, 168) == [0, 0]
    for name in ("lr4", "sfp"):
        arguments = f"prbs b {name} --side media --pattern PRBS31 --check --seconds 1"
        assert "needs a CMIS module" in refusal(capsys, arguments)
    assert "Give --generate, --check or both" in refusal(capsys, "prbs b zr --side host --pattern PRBS31")


# -- flags


@pytest.mark.parametrize("name", ["zr", "dr4", "lr4", "sfp"])
def test_flags_of_every_kind_of_module(capsys: pytest.CaptureFixture[str], bench: Bench, name: str) -> None:
    assert bench
    assert document(capsys, "flags", "b", name)["device"] == name
    assert name in run(capsys, "flags", "b", name)


def test_flags_that_are_cleared(capsys: pytest.CaptureFixture[str], lit: CmisTransponder) -> None:
    first = {flag["name"] for flag in document(capsys, "flags", "b", "zr")["flags"]}
    assert "data_path_state_changed" in first
    lit.set_loopback("media_output", False)  # the receiver is dark now
    left = {flag["name"] for flag in document(capsys, "flags", "b", "zr", "--clear")["flags"]}
    assert "rx_los" in left
    assert "data_path_state_changed" not in left


def test_flags_whose_cause_persists_are_set_again(
    capsys: pytest.CaptureFixture[str], bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SFF-8679: a flag is set again up to 0.2 s after a reading cleared it."""
    lr4, times_s = bench.transponders["lr4"], []
    assert isinstance(lr4, QsfpTransponder)
    read = lr4.flags

    def timed() -> Any:
        times_s.append(bench.clock.now())
        return read()

    monkeypatch.setattr(lr4, "flags", timed)
    flags = document(capsys, "flags b lr4 --clear")["flags"]
    assert {flag["lane"] for flag in flags if flag["name"] == "rx_los"} == {1, 2, 3, 4}
    assert times_s[-1] - times_s[-2] >= 0.2


def test_mask_a_flag_of_one_lane(capsys: pytest.CaptureFixture[str], zr: CmisTransponder) -> None:
    result = document(capsys, "flags b zr --mask rx_los:1 --mask temperature_high_alarm --mask rx_lol")
    assert {"rx_los:1", "temperature_high_alarm", "rx_lol:1", "rx_lol:8"} <= set(result["masked"])
    assert "rx_los:2" not in result["masked"]
    assert registers(zr, 0x10, 226, 227) == [0x01, 0xFF]
    assert zr.dump().halves[0, None][32] & 1
    run(capsys, "flags b zr --mask tuning_complete:1 --mask checker_lol_media:2")
    assert zr.masks()["tuning_complete", 1]
    assert registers(zr, 0x13, 213) == [0x02]
    assert not zr.masks()["wavelength_unlocked", 1]
    run(capsys, "flags b zr --unmask rx_lol --unmask rx_los:1")
    assert registers(zr, 0x10, 226, 227) == [0, 0]


def test_mask_a_flag_of_a_qsfp_module(capsys: pytest.CaptureFixture[str], bench: Bench) -> None:
    lr4 = bench.transponders["lr4"]
    assert isinstance(lr4, QsfpTransponder)
    run(capsys, "flags b lr4 --mask rx_los:2")
    assert lr4.dump().halves[0, None][100] & 0x0F == 0b0010  # SFF-8636, byte 100: M-Rx LOS of lanes 1 to 4
    assert not lr4.masks()["rx_los", 1]
    assert lr4.masks()["rx_los", 2]


def test_flags_that_cannot_be_masked(capsys: pytest.CaptureFixture[str], zr: CmisTransponder) -> None:
    before = zr.masks()
    error = refusal(capsys, "flags b zr --mask rx_los:1 --mask rx_lso")
    assert "no flag 'rx_lso' that can be masked. Did you mean" in error
    assert "Its lanes are 1, 2" in refusal(capsys, "flags b zr --mask rx_los:9")
    assert "SFP modules have none" in refusal(capsys, "flags b sfp --mask rx_los")
    assert "both --mask and --unmask" in refusal(capsys, "flags b zr --mask rx_los --unmask rx_los")
    assert zr.masks() == before


# -- settings


def test_settings_are_read_back(capsys: pytest.CaptureFixture[str], zr: CmisTransponder) -> None:
    out = run(capsys, "set b zr --application 1 --frequency-thz 193.4 --power-dbm -9.5")
    assert out.splitlines() == [
        "zr: applications 1 on host lane 1",
        "zr: frequency 193.4 THz",
        "zr: output power -9.5 dBm",
    ]
    assert zr.status().tx_disabled
    result = document(capsys, "set b zr --frequency-thz 193.5")
    assert result["read_back"] == {"frequency_thz": 193.5}


def test_an_application_on_other_lanes(capsys: pytest.CaptureFixture[str], bench: Bench) -> None:
    run(capsys, "set b dr4 --application 2 --first-lane 1")
    result = document(capsys, "set b dr4 --application 2 --first-lane 5")
    assert result["read_back"]["application"]["5"] == 2
    assert bench.transponders["dr4"].status().tx_disabled


def test_settings_that_a_module_does_not_have(capsys: pytest.CaptureFixture[str], bench: Bench) -> None:
    dr4 = bench.transponders["dr4"]
    assert isinstance(dr4, CmisTransponder)
    before = dr4.data_paths()
    assert "tuning is not supported" in refusal(capsys, "set b dr4 --application 2 --frequency-thz 193.4")
    assert "output power is not supported" in refusal(capsys, "set b dr4 --power-dbm 0")
    assert dr4.data_paths() == before
    assert "needs a CMIS module" in refusal(capsys, "set b lr4 --power-dbm 0")
    assert "needs a CMIS or QSFP module" in refusal(capsys, "set b sfp --power-dbm 0")
    assert "Give at least one of --application" in refusal(capsys, "set b zr")
    assert "--first-lane needs" in refusal(capsys, "set b zr --power-dbm -9 --first-lane 1")
    assert "--lanes needs" in refusal(capsys, "set b zr --power-dbm -9 --lanes 1")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("--power-dbm 20", "output power"),
        ("--frequency-thz 197", "nearest"),
        ("--first-lane 2", "does not offer application 2 from host lane 2"),
        ("--tx-squelch off --lanes 2", "no media lane 2"),
        ("--rx-rate 1", "needs a QSFP module"),
    ],
)
def test_nothing_is_set_if_one_value_is_refused(
    capsys: pytest.CaptureFixture[str], zr: CmisTransponder, wrong: str, reason: str
) -> None:
    before = zr.dump()
    good = "--application 2 --frequency-thz 193.4 --power-dbm -9.5 --rx-squelch off"
    assert reason in refusal(capsys, f"set b zr {good} {wrong}")
    assert zr.dump().halves[0, 0x10] == before.halves[0, 0x10]
    assert zr.dump().halves[0, 0x12] == before.halves[0, 0x12]
    assert zr.module_state() == ModuleState.LOW_PWR


def test_squelch_of_a_cmis_module(capsys: pytest.CaptureFixture[str], bench: Bench, lit: CmisTransponder) -> None:
    """CMIS 5.2 page 10h: 131 AutoSquelchDisableTx, 132 OutputSquelchForceTx, 138 OutputDisableRx, 139 Rx squelch."""
    assert lit.squelch("rx")[1] == "automatic"
    result = document(capsys, "set b zr --tx-squelch forced --rx-squelch off --lanes 1")
    assert result["read_back"] == {"tx_squelch": {"1": "forced"}, "rx_squelch": {"1": "off"}}
    assert registers(lit, 0x10, 131, 132, 138, 139) == [0, 1, 0, 1]
    assert lit.monitors().tx_power_dbm is None or lit.monitors().tx_power_dbm < -30
    out = run(capsys, "set b zr --tx-squelch off --rx-squelch forced")
    assert out.splitlines()[0] == "zr: Tx squelch off on lane 1"
    assert registers(lit, 0x10, 131, 132, 138, 139) == [1, 0, 0xFF, 1]
    run(capsys, "set b zr --tx-squelch on --rx-squelch on")
    assert registers(lit, 0x10, 131, 132, 138, 139) == [0, 0, 0, 0]


def test_signal_integrity(capsys: pytest.CaptureFixture[str], zr: CmisTransponder) -> None:
    options = "--rx-amplitude 2 --rx-pre-cursor 1 --tx-eq 3 --tx-adaptive-eq off"
    assert run(capsys, f"set b zr {options}").splitlines() == [
        "zr: signal integrity host lane 1, 2, 3, 4, 5, 6, 7, 8: tx adaptive eq off, tx fixed eq 3, rx pre cursor 1, "
        "rx post cursor 0, rx amplitude 2 (set)"
    ]
    assert registers(zr, 0x11, 206, 214, 217, 223, 227, 231) == [0x11, 0, 0x33, 0x11, 0, 0x22]
    result = document(capsys, "set b zr --default-si --lanes 1")["read_back"]["signal_integrity"]
    assert (result["1"]["custom"], result["1"]["rx_amplitude"]) == (False, 1)
    assert registers(zr, 0x11, 206, 207) == [0x10, 0x11]
    assert "offers 0, 1, 2" in refusal(capsys, "set b zr --application 2 --rx-amplitude 3")
    assert "clock recovery is not supported" in refusal(capsys, "set b zr --application 2 --rx-cdr off")
    assert registers(zr, 0x11, 206, 207) == [0x10, 0x11]
    assert "--tx-eq needs a CMIS module" in refusal(capsys, "set b lr4 --tx-eq 1")


def test_settings_of_a_qsfp_module(capsys: pytest.CaptureFixture[str], bench: Bench) -> None:
    """SFF-8636: 03h:240 squelch disable (Rx in the upper half), 03h:241.7-4 Rx output disable, 00h:98 CDR."""
    lr4 = bench.transponders["lr4"]
    assert isinstance(lr4, QsfpTransponder)
    result = document(capsys, "set b lr4 --tx-squelch off --rx-squelch off --rx-cdr off --lanes 1,3")
    assert result["read_back"]["rx_cdr"] == {"1": "off", "3": "off"}
    halves = lr4.dump().halves
    assert halves[0, 0x03][240 - 128] == 0b0101_0101
    assert halves[0, None][98] == 0b1111_1010
    run(capsys, "set b lr4 --rx-squelch forced --lanes 4")
    assert lr4.dump().halves[0, 0x03][241 - 128] == 0b1000_0000
    assert lr4.squelch("rx") == {1: "off", 2: "automatic", 3: "off", 4: "forced"}
    before = lr4.dump().halves[0, 0x03]
    assert "bit 195.5" in refusal(capsys, "set b lr4 --tx-squelch on --rx-rate 1")
    assert "SFF-8636 has only Tx disable" in refusal(capsys, "set b lr4 --rx-squelch on --tx-squelch forced")
    assert "no lane 5" in refusal(capsys, "set b lr4 --rx-squelch on --lanes 5")
    assert lr4.dump().halves[0, 0x03] == before


# -- user memory


def test_write_and_save_the_user_memory(
    capsys: pytest.CaptureFixture[str], zr: CmisTransponder, tmp_path: Path
) -> None:
    (tmp_path / "in.bin").write_bytes(b"rack 7, slot 12 north")
    assert "rack 7, slot" in run(capsys, "eeprom", "b", "zr", "--write", str(tmp_path / "in.bin"), "--offset", "3")
    assert bytes(registers(zr, 0x03, *range(131, 152))) == b"rack 7, slot 12 north"
    run(capsys, "eeprom", "b", "zr", "--read", str(tmp_path / "out.bin"))
    saved = (tmp_path / "out.bin").read_bytes()
    assert saved == b"\0\0\0rack 7, slot 12 north".ljust(128, b"\0")
    assert document(capsys, "eeprom", "b", "zr")["user_memory"] == saved.hex()
    assert "exists" in refusal(capsys, "eeprom", "b", "zr", "--read", str(tmp_path / "out.bin"))


def test_the_user_memory_of_a_qsfp_module_needs_its_password(
    capsys: pytest.CaptureFixture[str], bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.bin").write_bytes(b"shelf 3")
    write = ("eeprom", "b", "lr4", "--write", str(tmp_path / "in.bin"))
    assert "Enter the password first" in refusal(capsys, *write)
    (tmp_path / "wrong").write_text("00001012\n")
    assert "Enter the password first" in refusal(capsys, *write, "--password-file", str(tmp_path / "wrong"))
    (tmp_path / "right").write_text("00001011\n")  # the password of a new module, SFF-8636
    assert "shelf 3" in run(capsys, *write, "--password-file", str(tmp_path / "right"))
    lr4 = bench.transponders["lr4"]
    assert isinstance(lr4, QsfpTransponder)
    assert lr4.dump().halves[0, 0x02][:8] == b"shelf 3\0"
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr("click.prompt", lambda *_, **options: asked.append(options) or "0x1011")
    run(capsys, *write, "--password")
    assert asked[0]["hide_input"]


def test_the_user_memory_of_other_modules(capsys: pytest.CaptureFixture[str], bench: Bench, tmp_path: Path) -> None:
    assert bench
    assert "needs a CMIS or QSFP module" in refusal(capsys, "eeprom", "b", "sfp")
    (tmp_path / "long.bin").write_bytes(bytes(100))
    long = ("--write", str(tmp_path / "long.bin"), "--offset", "29")
    assert "exceed the 128 bytes" in refusal(capsys, "eeprom", "b", "zr", *long)
    (tmp_path / "no.txt").write_text("my secret")
    error = refusal(capsys, "eeprom", "b", "zr", "--password-file", str(tmp_path / "no.txt"))
    assert "is not a password" in error
    assert "secret" not in error
    both = ("--password", "--password-file", str(tmp_path / "no.txt"))
    assert "cannot be combined" in refusal(capsys, "eeprom", "b", "zr", *both)
    both = ("--read", str(tmp_path / "x"), "--write", str(tmp_path / "long.bin"))
    assert "cannot be combined" in refusal(capsys, "eeprom", "b", "zr", *both)


# -- on a bench of its own


def test_options_of_an_emulated_bench(capsys: pytest.CaptureFixture[str], bench_file: str) -> None:
    result = document(capsys, "loopback", bench_file, "dr4", "host-near", "--lanes", "1", "--emulate", "--seed", "3")
    assert result["closed"]["host-near"] == [1]
    assert "not in the bench file: zz" in refusal(capsys, "flags", bench_file, "zz", "--emulate")


# -- show


def test_show_tells_lost_signals_of_the_past_from_present_ones(
    capsys: pytest.CaptureFixture[str], lit: CmisTransponder
) -> None:
    """A module latches LOS and LOL until its light arrives; a locked receiver is not called unlocked."""
    assert lit
    lines = run(capsys, "show", "b", "zr").splitlines()
    (lane,) = (line for line in lines if line.startswith("lane 1"))
    assert "LOL" not in lane
    assert "state of the link: locked, the link is up" in lines
    (earlier,) = (line for line in lines if line.startswith("earlier flags: "))
    assert "rx lol (lane 1)" in earlier
    assert "rx power low alarm (lane 1)" in earlier  # its power is within the limits now
    assert [line for line in lines if line.startswith("flags:")] == []
    assert len(lines) <= 25


def test_show_of_a_qsfp_module_reads_the_flags_again(capsys: pytest.CaptureFixture[str], bench: Bench) -> None:
    bench.emulated.faults.inject("lr4", "los")
    bench.clock.sleep(1.0)
    assert "(LOS, LOL)" in run(capsys, "show", "b", "lr4")


# -- lanes that are devices

LANES = str(Path(__file__).parents[2] / "examples" / "dr4_breakout.yaml")


@pytest.mark.parametrize(
    "command",
    [
        "loopback {} dr4-a/2 media-near",
        "prbs {} dr4-a/2 --side media --pattern PRBS31 --generate --seconds 1",
        "dump {} dr4-a/2",
        "eeprom {} dr4-a/2",
        "firmware {} dr4-a/2",
        "tune {} dr4-a/2 193.1",
    ],
)
def test_a_command_for_whole_modules_names_the_module_of_a_lane(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    error = refusal(capsys, f"{command.format(LANES)} --emulate")
    assert "needs a whole module, not one of its lanes. Give the name of the module, without the lane." in error


def test_a_lane_that_the_bench_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert "has no module 'dr4-a/9'" in refusal(capsys, f"show {LANES} dr4-a/9 --emulate")


def test_show_of_a_lane_shows_this_lane_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, f"show {LANES} dr4-a/2 --emulate").splitlines()
    assert lines[0].startswith("dr4-a/2: QSFP-DD, LUMION EMU")
    assert lines[0].endswith(", lane 2 of 4")
    assert [line[:7] for line in lines if line.startswith("lane ")] == ["lane 2:"]
    assert "dr4-a: QSFP-DD" in run(capsys, f"show {LANES} dr4-a --emulate")
    path = tmp_path / "sr4.yaml"
    path.write_text(
        "version: 1\nname: b\ndevices:\n  x: {kind: qsfp-8636, profile: 100g-sr4}\n"
        "wiring: {fibres: [{transponder: x/3, receiver: x/3}]}\n"
    )
    lines = run(capsys, f"show {path} x/3 --emulate").splitlines()
    assert [line[:7] for line in lines if line.startswith("lane ")] == ["lane 3:"]
    assert not any("lanes" in line for line in lines)  # the flags of the dark lanes 1, 2 and 4


def test_watch_gives_the_reason_for_the_link_of_a_lane(capsys: pytest.CaptureFixture[str]) -> None:
    line = json.loads(run(capsys, f"watch {LANES} dr4-a/2 --emulate --count 1 --json"))
    assert (line["link"], line["why"]) == ("low_power", "low power is requested (pin)")


@pytest.mark.parametrize(("profile", "kind", "lanes"), [("400g-dr4", "cmis", 4), ("100g-lr4", "qsfp-8636", 4)])
def test_watch_gives_the_powers_of_each_lane(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], profile: str, kind: str, lanes: int
) -> None:
    bench = tmp_path / "bench.yaml"
    bench.write_text(f"version: 1\nname: b\ndevices:\n  x: {{kind: {kind}, profile: {profile}}}\n")
    line = json.loads(run(capsys, f"watch {bench} x --emulate --count 1 --json"))
    assert len(line["lane_tx_power_dbm"]) == len(line["lane_rx_power_dbm"]) == lanes
    assert " lane_rx_power_dbm -,-,-,-  " in run(capsys, f"watch {bench} x --emulate --count 1")


def test_watch_of_a_module_with_one_lane_has_no_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = tmp_path / "bench.yaml"
    bench.write_text("version: 1\nname: b\ndevices:\n  x: {kind: cmis, profile: 400zr}\n")
    assert "lane_rx_power_dbm" not in json.loads(run(capsys, f"watch {bench} x --emulate --count 1 --json"))
