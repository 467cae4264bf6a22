"""What can be set on a bench: every setting of every kind of device takes, refuses and tells what it says it does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.acquisition import Setting, SettingKind, Settings, settings as settings_module
from lumion_hw.errors import ConfigError, LimitError, LinkError, UnknownNameError
from tests.one_at_a_time import Interleaved

DATA = Path(__file__).parents[1] / "data"
EXPECTED = {
    "meter0": {"wavelength_nm", "averaging_s", "range_dbm"},
    "meter1": {"wavelength_nm", "averaging_s", "range_dbm"},
    "meter2": {"wavelength_nm", "averaging_s", "range_dbm"},
    "pm0": {"wavelength_nm", "averaging_s", "range_dbm"},
    "sop0": {"frequency_thz", "averaging_s"},
    "pol-a": {"settings", "setting"},
    "pol-b": {"settings", "setting"},
    "mesh0": {"heaters_ma", "heater_ma"},
    "itla0": {"frequency_thz", "wavelength_nm", "power_dbm", "enabled"},
    "tls-a": {"frequency_thz", "wavelength_nm", "power_dbm", "enabled"},
    "tls-b": {"frequency_thz", "wavelength_nm", "power_dbm", "enabled"},
    "sfp-a": {"enabled"},
    "lr4-a": {"enabled"},
    "zr-a": {"powered", "application", "frequency_thz", "tx_power_dbm", "enabled"},
    "tec0": {"setpoint_c", "tolerance_c", "window_s", "enabled"},
    "att0": {"wavelength_nm", "attenuation_db", "passing"},
    "att1": {"attenuation_db"},
    "oxc0": {"output", "outputs"},
    "osa0": {"span_nm", "resolution_nm", "sensitivity", "n_points"},
    "edfa0": {"current_ma", "power_dbm", "enabled"},
}
"""By the interfaces; chain0 drives no mesh here, unit0 and pol-c have nothing that could be read back."""
STEP = {
    "THz": 0.01,
    "nm": 0.08,
    "dBm": 1.0,
    "s": 0.5,
    "mA": 0.002,
    "mV": 1.0,
    "°": 0.2,
    "dB": 0.1,
    "°C": 0.01,
    "K": 0.01,
    "": 1.0,
}
"""Coarsest step of any device here; that of an averaging time is a factor of two, of a range a decade."""


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench.emulate(DATA / "every_kind.yaml") as bench:
        bench.transponders["zr-a"].power_up()
        yield bench


def test_every_device_has_the_settings_of_its_interface(bench: Bench) -> None:
    found: dict[str, set[str]] = {}
    for setting in Settings(bench).values():
        assert setting.name.startswith(f"{setting.device}.")
        found.setdefault(setting.device, set()).add(setting.name.split(".")[1])
    assert found == EXPECTED


def numbers(bench: Bench) -> list[Setting]:
    return [each for each in Settings(bench).values() if each.kind is SettingKind.NUMBER and not each.numbers]


def test_every_number_is_in_force_after_it_was_written(bench: Bench) -> None:
    for setting in numbers(bench):
        low, high = setting.limits() or (-5.0, 5.0)
        for share in (0.25, 0.75):
            wanted = low + share * (high - low)
            if setting.name.split(".")[1] == "range_dbm":
                wanted = 10.0 * math.floor(wanted / 10.0)
            setting.write(wanted)
            found = setting.read()
            tolerance = max(STEP[setting.unit], 10.0 * (".range_dbm." in setting.name))
            if setting.unit == "s":
                tolerance = 0.5 * wanted
            assert found == pytest.approx(wanted, abs=tolerance), setting.name


def test_beyond_its_limits_the_device_refuses_and_nothing_changes(bench: Bench) -> None:
    for setting in numbers(bench):
        limits, before = setting.limits(), setting.read()
        beyond = [] if limits is None else [limits[0] - 1.0 - abs(limits[0]), limits[1] + 1.0 + abs(limits[1])]
        for value in [*beyond, math.nan]:
            with pytest.raises(LimitError):
                setting.write(value)
        assert setting.read() == before, setting.name


def test_what_is_no_value_of_its_kind_is_refused_with_the_name_of_the_setting(bench: Bench) -> None:
    settings = Settings(bench)
    wrong = {
        "tls-a.power_dbm": [True, "1.0", None, [1.0]],
        "tls-a.enabled": [1, "on", None],
        "zr-a.application.1": [1, "9", None],
        "oxc0.output.1": [-1, 2, 5.5, 9, math.nan, "5", None],
        "mesh0.heaters_ma": [1.0, np.zeros(29), np.zeros((30, 1)), np.zeros(30, dtype=bool), [[1.0], [2.0, 3.0]]],
    }
    for name, values in wrong.items():
        before = settings[name].read()
        for value in values:
            with pytest.raises(ConfigError, match=f"{name}: expected"):
                settings[name].write(value)
        assert np.array_equal(settings[name].read(), before)


def test_one_heater_is_set_and_the_others_stay(bench: Bench) -> None:
    settings = Settings(bench)
    settings["mesh0.heaters_ma"].write(np.linspace(0.1, 1.0, 30))
    settings["mesh0.heater_ma.7"].write(1.5)
    expected = np.linspace(0.1, 1.0, 30)
    expected[7] = 1.5
    # A board of 16 bits over at least 2.5 mA: 0.1 uA is more than a step.
    np.testing.assert_allclose(bench.mesh.read_back_ma(), expected, atol=1e-4)
    assert settings["mesh0.heater_ma.7"].part_of == "mesh0.heaters_ma"


def test_a_range_of_none_is_automatic(bench: Bench) -> None:
    ranging = Settings(bench)["meter0.range_dbm.1"]
    ranging.write(-20.0)
    assert bench.meters["meter0"].settings(1).range_dbm == -20.0
    ranging.write(None)
    assert ranging.read() is None
    assert ranging.text_for_none == "automatic"


@pytest.mark.parametrize(("ranges_dbm", "is_a_setting"), [(None, False), ((10.0, 10.0), True)])
def test_a_meter_with_one_range_has_one_and_one_without_has_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, ranges_dbm: tuple[float, float] | None, is_a_setting: bool
) -> None:
    meter = bench.meters["meter0"]
    stated = replace(meter.limits(1), range_dbm=ranges_dbm)
    monkeypatch.setattr(meter, "limits", lambda channel: stated)
    settings = Settings(bench, ["meter0"])
    assert ("meter0.range_dbm.1" in settings) is is_a_setting
    assert "meter0.averaging_s.1" in settings
    if is_a_setting:
        settings["meter0.range_dbm.1"].check(10.0)
        with pytest.raises(LimitError):
            settings["meter0.range_dbm.1"].check(0.0)


def test_a_laser_has_settled_when_its_light_is_there(bench: Bench) -> None:
    settings = Settings(bench)
    settings["tls-a.enabled"].write(True)
    settings["tls-a.wavelength_nm"].write(1553.25)
    settings["tls-a.wavelength_nm"].wait_settled()
    state = bench.lasers["tls-a"].state()
    assert state.ready
    # 299 792.458 km/s over 1553.25 nm
    assert state.frequency_thz == pytest.approx(299792.458 / 1553.25, abs=1e-4)
    settings["tls-a.enabled"].write(False)
    assert not bench.lasers["tls-a"].state().emitting


def test_a_module_is_told_its_application_and_says_so(bench: Bench) -> None:
    settings = Settings(bench, ["zr-a"])
    assert set(settings["zr-a.application.1"].choices) == {"1", "2"}
    settings["zr-a.application.1"].write("2")
    assert bench.transponders["zr-a"].settings().applications[1] == 2
    settings["zr-a.application.1"].write("1")
    values = settings.read()
    assert values["zr-a.application.1"] == "1"
    assert values["zr-a.application.3"] is None, "lane 3 belongs to the data path that begins on lane 1"


def test_one_look_reads_all_that_stands_for_itself(bench: Bench) -> None:
    settings = Settings(bench)
    values = settings.read()
    assert set(values) == {name for name, setting in settings.items() if not setting.part_of}
    assert np.shape(values["pol-b.settings"]) == (3,)
    assert settings.failures == {}


def test_a_silent_device_has_no_values_and_says_why() -> None:
    with Bench.emulate(DATA / "small.yaml") as bench:
        settings = Settings(bench, ["meter0", "sfp-a"])
        bench.emulated.faults.inject("meter0", "no_power")
        values = settings.read()
    assert list(values) == ["sfp-a.enabled"]
    assert isinstance(settings.failures["meter0"], LinkError)


def test_a_name_that_is_not_there_says_what_is_near(bench: Bench) -> None:
    with pytest.raises(UnknownNameError, match=r"no setting 'tls-a.power'.*Did you mean tls-a.power_dbm"):
        Settings(bench)["tls-a.power"]
    with pytest.raises(ConfigError, match="no setting 'tls-z'"):
        Settings(bench, ["tls-z"])


def quantity(step: float | np.ndarray, shape: tuple[int, ...] = ()) -> Setting:
    kind = SettingKind.ARRAY if shape else SettingKind.NUMBER
    return Setting(
        "d.q", "d", "nm", kind, lambda: None, lambda value: value, lambda value: None, _step=lambda: step, shape=shape
    )


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_numbers_are_the_same_within_half_a_step_of_the_device(sign: float) -> None:
    setting = quantity(0.1)
    assert setting.is_equivalent(1550.0, 1550.0 + sign * 0.0509)
    assert setting.is_equivalent(1550.0 + sign * 0.0509, 1550.0)
    assert not setting.is_equivalent(1550.0, 1550.0 + sign * 0.0511)
    assert not setting.is_equivalent(1550.0, 1550.0 + sign * 0.1), "the next step is another value"


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_numbers_of_a_device_that_keeps_what_it_is_given_are_the_same_within_rounding(sign: float) -> None:
    setting = quantity(0.0)
    assert setting.is_equivalent(1550.0, 1550.0 * (1.0 + sign * 0.99e-9))
    assert not setting.is_equivalent(1550.0, 1550.0 * (1.0 + sign * 1.02e-9))
    assert setting.is_equivalent(0.0, 0.0)
    assert not setting.is_equivalent(0.0, sign * 1e-12)


def test_every_value_of_an_array_counts_with_its_own_step() -> None:
    setting = quantity(np.array([1.0, 0.01]), (2,))
    assert setting.is_equivalent(np.array([0.0, 5.0]), np.array([0.5, 5.005]))
    assert not setting.is_equivalent(np.array([0.0, 5.0]), np.array([0.5, 5.006]))
    assert not setting.is_equivalent(np.array([0.0, 5.0]), np.array([0.52, 5.0]))
    assert not setting.is_equivalent(np.array([0.0, 5.0]), np.array([0.0]))


def test_none_flags_and_words_are_the_same_only_as_themselves() -> None:
    setting = quantity(10.0)
    assert setting.is_equivalent(None, None)
    assert setting.is_equivalent(True, True)
    assert setting.is_equivalent("high", "high")
    for one, other in ((None, 0.0), (0.0, None), (True, False), (True, 1.0), ("high", "low")):
        assert not setting.is_equivalent(one, other), (one, other)


def test_each_setting_of_a_laser_has_the_step_of_the_laser() -> None:
    with Bench.emulate("laser-bench") as bench:
        settings, ranges = Settings(bench, ["tls-a"]), bench.lasers["tls-a"].ranges
        for name, step, value in (
            ("frequency_thz", ranges.frequency_step_thz, 193.4),
            ("power_dbm", ranges.power_step_db, 3.0),
        ):
            setting = settings[f"tls-a.{name}"]
            assert setting.is_equivalent(value, value + 0.5 * step), name
            assert not setting.is_equivalent(value, value + 0.55 * step), name
        # The step of frequencies at the shortest wavelength is 0.1 pm; it is wider in nm at the longest.
        assert settings["tls-a.wavelength_nm"].is_equivalent(1550.0, 1550.00005)
        assert not settings["tls-a.wavelength_nm"].is_equivalent(1550.0, 1550.0002)


def test_two_writers_of_one_array_do_not_undo_each_other() -> None:
    store = [np.zeros(4)]
    whole = Setting(
        "mesh.heaters_ma",
        "mesh",
        "mA",
        SettingKind.ARRAY,
        lambda: np.array(store[0]),
        lambda values: values,
        lambda values: store.__setitem__(0, np.array(values)),
        shape=(4,),
    )
    parts = list(settings_module._elements_of(whole, range(4), "mesh.heater_ma"))
    Interleaved([settings_module._elements_of]).run(*[partial(each.write, 1.0 + n) for n, each in enumerate(parts)])
    assert store[0].tolist() == [1.0, 2.0, 3.0, 4.0]
