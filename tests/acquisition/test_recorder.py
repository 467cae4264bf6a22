"""Recording a bench: a steady rate, gaps that are counted, interruptions that lose nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from lumion_hw import Bench
from lumion_hw.acquisition.columns import Reader, State
from lumion_hw.acquisition.journal import LogHeader, LogJournal, log_header, read_journal
from lumion_hw.acquisition.latest import Latest
from lumion_hw.acquisition.recorder import record
from lumion_hw.bench import DeviceIdentity
from lumion_hw.errors import ConfigError

SMALL = Path(__file__).parents[1] / "data" / "small.yaml"


def header(reader: Reader, n_rows: int, period_s: float = 0.5) -> LogHeader:
    return LogHeader("small", reader.columns, period_s, n_rows, "2026-11-20T12:00:00.000+00:00")


def test_a_device_name_means_all_its_channels_and_wildcards_choose() -> None:
    with Bench.emulate(SMALL) as bench:
        assert [column.name for column in Reader(bench, ["meter0"]).columns] == [
            f"meter0.power.{channel}" for channel in (1, 2, 3, 4)
        ]
        chosen = Reader(bench, ["sfp-?.rx_power_dbm", "meter0.power.2"]).columns
        assert [(column.name, column.unit) for column in chosen] == [
            ("meter0.power.2", "W"),
            ("sfp-a.rx_power_dbm", "dBm"),
            ("sfp-b.rx_power_dbm", "dBm"),
            ("sfp-c.rx_power_dbm", "dBm"),
        ]
        everything = {column.name.partition(".")[0] for column in Reader(bench).columns}
        assert everything == set(bench.model.devices)


def test_a_channel_that_is_not_there_is_refused_with_what_is_near() -> None:
    with (
        Bench.emulate(SMALL) as bench,
        pytest.raises(ConfigError, match=r"no channel 'meter0.power.9'.*Did you mean meter0.power"),
    ):
        Reader(bench, ["meter0.power.9"])


def test_values_are_what_the_devices_say() -> None:
    with Bench.emulate(SMALL, seed=3) as bench:
        bench.transponders["sfp-a"].enable()
        reader = Reader(bench, ["sfp-a.tx_power_dbm", "meter0.power.1"])
        power, launched = reader.read()
        assert launched.number == pytest.approx(bench.transponders["sfp-a"].monitors().tx_power_dbm, abs=0.05)
        assert power.state is State.OK


def test_each_lane_of_a_module_has_channels_of_its_own() -> None:
    with Bench.emulate(SMALL.with_name("every_kind.yaml"), only=["lr4-a"]) as bench:
        module = bench.transponders["lr4-a"]
        module.enable()
        module.media_lane(3).disable()  # type: ignore[attr-defined]
        names = [f"lr4-a.tx_power_dbm.{lane}" for lane in range(1, 5)]
        launched = Reader(bench, names).read()
        assert [value.state for value in launched] == [State.OK, State.OK, State.DARK, State.OK]
        assert launched[0].number == pytest.approx(0.0, abs=3.1)  # 3 dB is the accuracy of the standard


def test_rows_come_at_their_rate_and_the_plan_ends_the_recording(tmp_path: Path) -> None:
    with Bench.emulate(SMALL) as bench:
        reader = Reader(bench, ["meter0"])
        with LogJournal.create(tmp_path / "log", header(reader, 20)) as journal:
            recording = record(reader, journal, bench.clock)
    assert (recording.rows, recording.missed, recording.failed) == (20, 0, 0)
    _, rows = read_journal(tmp_path / "log")
    assert [row.index for row in rows] == list(range(20))
    assert [row.time_s for row in rows] == pytest.approx([0.5 * index for index in range(20)], abs=1e-6)


def test_rows_that_cannot_be_kept_up_with_are_left_out_and_counted(tmp_path: Path) -> None:
    with Bench.emulate(SMALL) as bench:
        reader = Reader(bench, ["sfp-*"])  # three modules behind slow buses
        with LogJournal.create(tmp_path / "log", header(reader, 40, period_s=0.005)) as journal:
            recording = record(reader, journal, bench.clock)
    _, rows = read_journal(tmp_path / "log")
    assert recording.missed > 0
    assert recording.rows + recording.missed == 40
    assert all(row.time_s >= row.index * 0.005 - 1e-9 for row in rows), "no row is earlier than its number says"


def test_a_silent_device_gives_failed_values_and_the_others_go_on(tmp_path: Path) -> None:
    with Bench.emulate(SMALL) as bench:
        reader = Reader(bench, ["meter0.power.1", "sfp-a.temperature_c"])
        bench.emulated.faults.kill_modules(["sfp-a"])
        with LogJournal.create(tmp_path / "log", header(reader, 3)) as journal:
            recording = record(reader, journal, bench.clock)
        assert set(reader.failures) == {"sfp-a"}
    assert recording.failed == 3
    _, rows = read_journal(tmp_path / "log")
    assert [row.values[0].state for row in rows] == [State.OK] * 3
    assert [row.values[1].state for row in rows] == [State.FAILED] * 3


def test_an_interruption_loses_no_row_and_the_rest_follows_later(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Bench.emulate(SMALL) as bench:
        reader = Reader(bench, ["meter0"])
        calls = iter(range(100))

        def interrupt() -> bool:
            if next(calls) == 5:
                raise KeyboardInterrupt
            return False

        with LogJournal.create(path, header(reader, 12)) as journal, pytest.raises(KeyboardInterrupt):
            record(reader, journal, bench.clock, stop=interrupt)
        assert len(read_journal(path)[1]) == 5
        with LogJournal.resume(path) as journal:
            assert record(reader, journal, bench.clock).rows == 12
    assert [row.index for row in read_journal(path)[1]] == list(range(12))


def test_a_log_of_other_channels_is_not_gone_on_with(tmp_path: Path) -> None:
    with Bench.emulate(SMALL) as bench:
        one, other = Reader(bench, ["meter0.power.1"]), Reader(bench, ["meter0.power.2"])
        with (
            LogJournal.create(tmp_path / "log", header(one, 5)) as journal,
            pytest.raises(ConfigError, match=r"has the channels meter0.power.1, not meter0.power.2"),
        ):
            record(other, journal, bench.clock)


def test_progress_tells_only_what_is_on_the_disk(tmp_path: Path) -> None:
    told: list[int] = []
    with Bench.emulate(SMALL) as bench:
        reader = Reader(bench, ["meter0"])
        with LogJournal.create(tmp_path / "log", header(reader, 8)) as journal:
            record(reader, journal, bench.clock, progress=lambda n: told.append(n - journal.acknowledged))
    assert told
    assert set(told) == {0}


def test_a_value_stays_with_its_age_when_its_device_falls_silent() -> None:
    with Bench.emulate(SMALL) as bench:
        latest = Latest(Reader(bench, ["meter0.power.1", "sfp-a.temperature_c"]), bench.clock)
        latest.update()
        before = latest.entries()
        assert [entry.stale_s for entry in before] == [None, None]
        bench.emulated.faults.kill_modules(["sfp-a"])
        bench.clock.sleep(30.0)
        latest.update()
        meter, module = latest.entries()
        assert meter.stale_s is None
        assert module.value == before[1].value
        assert module.stale_s == pytest.approx(30.0, abs=5.0)
        assert set(latest.failures) == {"sfp-a"}


def test_a_log_begins_with_who_the_devices_are_and_does_without_one_that_is_silent(tmp_path: Path) -> None:
    with Bench.emulate(SMALL) as bench:
        bench.emulated.faults.inject("sfp-b", "no_power")
        reader = Reader(bench, ["meter0", "sfp-*"])
        begun = log_header(bench, reader, period_s=0.5, n_rows=3, bench_file=SMALL)
    assert begun.devices["meter0"].serial == "MY00000044"
    assert begun.devices["sfp-a"].serial == "ER-A"
    assert begun.devices["sfp-b"] == DeviceIdentity("sfp-8472")
    assert begun.bench_file is not None
    assert begun.bench_file.name == "small.yaml"
    assert begun.bench_file.sha256 == hashlib.sha256(SMALL.read_bytes()).hexdigest()
