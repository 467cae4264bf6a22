"""Readings and settings of attenuators, switches, amplifiers, spectrum analysers and temperature controllers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lumion_hw import Bench
from lumion_hw.acquisition import Settings, differences, restore, scan, take_snapshot
from lumion_hw.acquisition.columns import Reader, State, Value
from lumion_hw.acquisition.scanning import prepare_scan
from lumion_hw.errors import ConfigError

FILE = Path(__file__).parents[1] / "data" / "every_kind.yaml"


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench.emulate(FILE, only=["att0", "att1", "oxc0", "edfa0", "osa0", "tec0"]) as bench:
        yield bench


def row(bench: Bench, device: str) -> dict[str, Value]:
    reader = Reader(bench, [device])
    return {
        column.name.removeprefix(f"{device}."): value
        for column, value in zip(reader.columns, reader.read(), strict=True)
    }


def test_an_attenuator_tells_what_it_takes_and_when_it_is_shut(bench: Bench) -> None:
    bench.attenuators["att0"].set_attenuation_db(1, 7.5)
    bench.attenuators["att0"].enable(1)
    bench.attenuators["att0"].disable(2)
    found = row(bench, "att0")
    assert list(found) == [f"attenuation_db.{channel}" for channel in (1, 2, 3, 4)]
    assert found["attenuation_db.1"].number == pytest.approx(7.5, abs=1e-3)
    assert found["attenuation_db.2"].state is State.DARK
    bench.attenuators["att1"].set_attenuation_db(1, 12.0)
    assert row(bench, "att1")["attenuation_db.1"].number == pytest.approx(12.0, abs=0.05)


def test_a_switch_tells_where_the_light_of_each_input_leaves(bench: Bench) -> None:
    bench.switches["oxc0"].set_connections({1: 7, 3: 5})
    found = row(bench, "oxc0")
    assert [found[f"output.{port}"].state for port in (1, 2, 3, 4)] == [State.OK, State.NO_SIGNAL] * 2
    assert (found["output.1"].number, found["output.3"].number) == (7.0, 5.0)


def test_an_amplifier_that_is_off_is_dark(bench: Bench) -> None:
    found = row(bench, "edfa0")
    assert found["output_power_dbm"].state is State.DARK
    assert found["pump_current_ma"] == Value(State.OK, 0.0)


def test_a_temperature_controller_tells_whether_it_is_locked(bench: Bench) -> None:
    bench.temperature_controllers["tec0"].wait_locked(60.0)
    found = row(bench, "tec0")
    assert found["temperature_c"].number == pytest.approx(25.0, abs=0.05)
    assert found["locked"].number == 1.0
    bench.emulated.devices["tec0"].unplug_sensor(True)
    bench.clock.sleep(0.5)
    found = row(bench, "tec0")
    assert found["temperature_c"].state is State.FAILED
    assert found["locked"].number == 0.0


def test_an_analyser_is_swept_and_not_read_row_by_row(bench: Bench) -> None:
    assert not [column for column in Reader(bench).columns if column.device == "osa0"]


def test_what_was_set_comes_back() -> None:
    with Bench.emulate(FILE, only=["att0", "att1", "oxc0", "edfa0", "osa0", "tec0"]) as bench:
        settings = Settings(bench)
        settings["oxc0.outputs"].write([6, 5, 0, 8])
        before = take_snapshot(bench)
        changes = {
            "oxc0.outputs": [5, 6, 8, 0],
            "att0.attenuation_db.2": 12.0,
            "att0.passing.1": True,
            "att1.attenuation_db.1": 3.0,
            "edfa0.power_dbm": 5.0,
            "edfa0.enabled": True,
            "osa0.span_nm": [1540.0, 1545.0],
            "osa0.resolution_nm": "0.1",
            "osa0.n_points": 501,
            "tec0.setpoint_c": 30.0,
        }
        for name, value in changes.items():
            settings[name].write(value)
        # A current that was held is another setting than the power that is held now.
        assert {change.setting.name for change in differences(bench, before)} == {*changes, "edfa0.current_ma"}
        assert restore(bench, before).complete
        assert not list(differences(bench, before))


def test_half_a_port_is_refused(bench: Bench) -> None:
    with pytest.raises(ConfigError, match=r"oxc0.outputs: expected integers"):
        Settings(bench)["oxc0.outputs"].write([5.5, 0, 0, 0])


def test_one_connection_of_a_switch_is_swept_by_the_name_of_its_reading(bench: Bench) -> None:
    bench.switches["oxc0"].set_connections({1: 7, 3: 5})
    data = scan(bench, {"oxc0.output.1": [6, 8, 0]}, ["oxc0.output.1", "oxc0.output.3"])
    assert data.value["oxc0.output.1"][:2].tolist() == [6.0, 8.0]
    assert data.state["oxc0.output.1"].tolist() == [State.OK, State.OK, State.NO_SIGNAL]
    assert data.value["oxc0.output.3"].tolist() == [5.0, 5.0, 5.0]
    assert bench.switches["oxc0"].connections() == {1: 7, 3: 5}


@pytest.mark.parametrize(
    ("array", "advice"),
    [
        ("oxc0.outputs", r"by name: oxc0\.output\.1, oxc0\.output\.2 and so on\."),
        ("osa0.span_nm", r"Set it before the scan, in Python: Settings\(bench\)\['osa0.span_nm'\]\.write\(values\)\."),
    ],
)
def test_a_scan_of_an_array_says_how_its_values_are_set(bench: Bench, array: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=advice):
        prepare_scan(bench, {array: [5]}, ["oxc0.output.1"])


def test_an_output_that_the_switch_does_not_have_is_refused_before_the_scan(bench: Bench) -> None:
    with pytest.raises(ConfigError, match=r"oxc0.output.1: expected one of 0, 5, 6, 7, 8, found 2"):
        prepare_scan(bench, {"oxc0.output.1": [5, 2]}, ["oxc0.output.1"])
