"""Snapshots of a bench: everything comes back in a safe order, and what does not is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.acquisition import (
    Settings,
    Snapshot,
    differences,
    load_snapshot,
    restore,
    save_snapshot,
    snapshot_yaml,
    take_snapshot,
)
from lumion_hw.errors import ConfigError, IdentityError, LimitError, LinkError, LumionError

EVERY_KIND = Path(__file__).parents[1] / "data" / "every_kind.yaml"
BUSY = {
    "mesh0.heaters_ma": np.linspace(0.0, 2.0, 30),
    "pol-a.settings": np.array([100.0, -200.0, 300.0, 0.0]),
    "meter0.range_dbm.2": -20.0,
    "meter0.averaging_s.1": 0.1,
    "sop0.frequency_thz": 194.5,
    "tls-a.power_dbm": 4.0,
    "tls-a.enabled": True,
    "zr-a.powered": True,
    "zr-a.application.1": "2",
    "zr-a.frequency_thz": 194.2,
    "zr-a.enabled": True,
}
"""A bench in use: settings that a bench that was just opened has otherwise."""


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench.emulate(EVERY_KIND) as bench:
        yield bench


def busy(bench: Bench) -> Settings:
    settings = Settings(bench)
    for name, value in BUSY.items():
        settings[name].write(value)
    return settings


def test_a_snapshot_comes_back_as_it_was_over_a_file(bench: Bench, tmp_path: Path) -> None:
    idle = take_snapshot(bench)
    settings = busy(bench)
    save_snapshot(take_snapshot(bench), tmp_path / "busy.yaml")
    assert {change.name for change in differences(bench, idle)} >= set(BUSY)
    assert restore(bench, idle).complete
    assert differences(bench, idle) == ()
    assert not bench.lasers["tls-a"].state().emitting
    assert restore(bench, load_snapshot(tmp_path / "busy.yaml")).complete
    for name, value in BUSY.items():
        assert settings[name].is_equivalent(settings[name].read(), value), name
    assert bench.transponders["zr-a"].settings().enabled


def test_light_goes_first_and_comes_last(bench: Bench) -> None:
    busy(bench)
    lit = take_snapshot(bench)
    Settings(bench)["tls-a.power_dbm"].write(1.0)
    Settings(bench)["zr-a.frequency_thz"].write(193.5)
    Settings(bench)["mesh0.heaters_ma"].write(np.zeros(30))
    told: list[tuple[str, object]] = []
    assert restore(bench, lit, progress=lambda name, value, _: told.append((name, value))).complete
    names = [name for name, _ in told]
    assert told[:2] == [("tls-a.enabled", False), ("zr-a.enabled", False)]
    assert set(names[2:-2]) == {"mesh0.heaters_ma", "tls-a.power_dbm", "zr-a.frequency_thz"}
    assert told[-2:] == [("tls-a.enabled", True), ("zr-a.enabled", True)]


def test_sources_that_do_not_change_keep_their_light(bench: Bench) -> None:
    settings = busy(bench)
    lit = take_snapshot(bench)
    settings["meter0.averaging_s.1"].write(0.5)
    told: list[str] = []
    assert restore(bench, lit, progress=lambda name, value, _: told.append(name)).complete
    assert {name.partition(".")[0] for name in told} == {"meter0"}


def test_a_device_that_fails_on_the_way_leaves_light_off_and_is_said(bench: Bench) -> None:
    settings = busy(bench)
    lit = take_snapshot(bench)
    settings["meter0.averaging_s.1"].write(0.5)
    settings["meter0.range_dbm.2"].write(None)
    settings["tls-a.power_dbm"].write(1.0)

    def unplug_at_first(name: str, value: object, error: LumionError | None) -> None:
        if name == "tls-a.enabled" and value is False:
            bench.emulated.faults.inject("meter0", "no_power")

    done = restore(bench, lit, progress=unplug_at_first)
    assert not done.complete
    ((change, why),) = done.failed
    assert change.device == "meter0"
    assert "meter0" in str(why)
    assert {each.device for each in done.left_out} == {"meter0"}
    assert [each.name for each in done.put_back] == ["tls-a.power_dbm"]
    assert done.left_dark == ("tls-a",)
    assert not bench.lasers["tls-a"].state().emitting


def test_a_part_is_put_back_alone(bench: Bench) -> None:
    idle = take_snapshot(bench)
    settings = busy(bench)
    assert restore(bench, idle, ["tls-*"]).complete
    assert settings["tls-a.power_dbm"].read() == 0.0
    assert settings["zr-a.frequency_thz"].read() == pytest.approx(194.2)


def test_a_snapshot_of_another_bench_or_device_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = take_snapshot(bench)
    with pytest.raises(ConfigError, match="bench 'other', not to 'every-kind'"):
        restore(bench, replace(taken, bench="other"))
    other = replace(taken.identities["tls-a"], serial="12345")
    strange = replace(taken, identities={**taken.identities, "tls-a": other})
    with pytest.raises(
        IdentityError, match=r"tls-a: .*another device: TSL-570, serial 12345; this bench has TSL-570, serial"
    ):
        restore(bench, strange)
    assert restore(bench, strange, ["meter0"]).complete, "what is not put back may be another one"
    newer = replace(taken.identities["tls-a"], firmware="newer")
    assert restore(bench, replace(taken, identities={**taken.identities, "tls-a": newer})).complete
    monkeypatch.setattr(Bench, "is_emulated", False)
    with pytest.raises(ConfigError, match="but this bench is real"):
        restore(bench, taken)


def with_value(taken: Snapshot, device: str, setting: str, value: object) -> Snapshot:
    return replace(taken, devices={**taken.devices, device: {**taken.devices[device], setting: value}})


WRONG = [
    ("meter0", "averaging_s.1", 1e3, LimitError, "requested 1000 s, limit 10 s"),
    (
        "mesh0",
        "heaters_ma",
        np.full(30, 9.0),
        LimitError,
        r"heaters_ma, value 0 \(counted from 0\): requested 9 mA, limit 2.5 mA",
    ),
    ("mesh0", "heaters_ma", np.zeros(29), ConfigError, r"expected numbers of shape \(30,\)"),
    ("zr-a", "application.1", "7", ConfigError, "expected one of 1, 2"),
    ("tls-a", "enabled", "on", ConfigError, "expected true or false"),
    ("tls-a", "colour", 1.0, ConfigError, "settings that this bench does not have: tls-a.colour"),
]


def test_a_wrong_value_is_found_before_anything_moves(bench: Bench) -> None:
    idle = take_snapshot(bench)
    busy(bench)
    before = snapshot_yaml(take_snapshot(bench)).partition("devices:")[2]
    for device, setting, value, kind, said in WRONG:
        with pytest.raises(kind, match=said):
            restore(bench, with_value(idle, device, setting, value))
    assert snapshot_yaml(take_snapshot(bench)).partition("devices:")[2] == before


def test_a_meter_that_falls_silent_is_noted(bench: Bench) -> None:
    bench.emulated.faults.inject("meter0", "no_power")
    taken = take_snapshot(bench)
    assert list(taken.silent) == ["meter0"]
    assert "meter0" not in taken.devices


HEAD = "format: lumion-snapshot 1\nbench: b\nemulated: true\ntaken_utc: now\nsoftware: s\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1, 2]", "expected a mapping with the keys of a snapshot"),
        (HEAD, "devices: expected this key, found none"),
        (HEAD.replace("snapshot 1", "snapshot 2") + "devices: {}", "1:9: format: .*lumion-snapshot 1"),
        (HEAD + "devices:\n  a: {identity: {kind: k}, settings: {x: {y: 1}}}", "7:49|7:"),
        (HEAD + "devices:\n  a: {identity: {kind: k}, settings: {x: .nan}}", "7:"),
        (HEAD + "devices:\n  a: {identity: {kind: k}, settings: {x: 1, x: 2}}", "expected every key once"),
        (HEAD + "devices: !!python/object:os.system {}", "tags are not allowed"),
    ],
)
def test_a_file_that_is_no_snapshot_is_explained_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_snapshot(path)


# -- devices that do not answer


def test_a_device_that_does_not_answer_is_noted_and_the_others_are_stored(bench: Bench, tmp_path: Path) -> None:
    whole = take_snapshot(bench)
    bench.emulated.faults.kill_modules(["zr-a"])
    save_snapshot(take_snapshot(bench), tmp_path / "rest.yaml")
    rest = load_snapshot(tmp_path / "rest.yaml")
    assert set(rest.devices) == set(whole.devices) - {"zr-a"}
    assert list(rest.silent) == ["zr-a"]
    assert "zr-a" in rest.silent["zr-a"]
    assert restore(bench, rest).complete


def test_a_device_that_is_named_has_to_answer(bench: Bench) -> None:
    bench.emulated.faults.kill_modules(["zr-a"])
    for patterns in (("zr-a",), ("*", "zr-a.enabled"), ("zr-*", "tls-a")):
        with pytest.raises(LinkError, match="zr-a"):
            take_snapshot(bench, patterns)
    assert list(take_snapshot(bench, ("*.enabled",)).silent) == ["zr-a"]


def test_a_bench_of_which_nothing_answers_gives_no_snapshot() -> None:
    with Bench.emulate(EVERY_KIND, only=["zr-a", "sfp-a"]) as modules:
        modules.emulated.faults.kill_modules(["zr-a", "sfp-a"])
        with pytest.raises(ExceptionGroup, match="zr-a, sfp-a do not answer"):
            take_snapshot(modules)
