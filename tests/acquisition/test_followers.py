"""Meters follow the light: a scan of a wavelength sets it on the meters that it reads, and puts theirs back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.acquisition import load_scan, scan
from lumion_hw.acquisition.scanning import prepare_scan
from lumion_hw.drivers.meters.keysight_meter import KeysightMeter
from lumion_hw.errors import ConfigError, LimitError

BENCH = """
version: 1
name: followed
devices:
  las: {kind: keysight-laser, model: N7776C, pin: "1234"}
  other: {kind: keysight-laser, model: N7776C, pin: "1234"}
  itla: {kind: itla-laser}
  pm: {kind: thorlabs-pm}
  n77: {kind: keysight-n77xx, model: N7744A}
  pol: {kind: novoptel-pm1000}
wiring:
  fibres:
    - {laser: las, taps: [{meter: pm, fraction: 0.5}, {meter: n77, channel: 2, fraction: 0.5}]}
"""
NM = np.array([1500.0, 1550.0, 1600.0, 1640.0])
READ = ["pm.power.1", "n77.power.2"]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    path = tmp_path_factory.mktemp("bench") / "followed.yaml"
    path.write_text(BENCH)
    with Bench.emulate(path, seed=1) as bench:
        bench.lasers["las"].enable()
        bench.lasers["las"].wait_ready(60.0)
        yield bench


@pytest.fixture
def bench(opened: Bench) -> Iterator[Bench]:
    yield opened
    found = {name: opened.meters[name].settings(1).wavelength_nm for name in ("pm", "n77")}
    assert found == {"pm": 1550.0, "n77": 1550.0}, "meters are left as they were"


def test_meters_that_are_read_follow_a_wavelength(bench: Bench) -> None:
    asked: list[list[float]] = []
    watch = {"pm": 1, "n77": 2}
    data = scan(
        bench,
        {"las.wavelength_nm": NM},
        READ,
        progress=lambda _: asked.append([bench.meters[name].settings(n).wavelength_nm for name, n in watch.items()]),
    )
    for name in READ:
        assert data.value[name] == pytest.approx(data.value[name][1], rel=0.005)
    assert data.plan.followers == ("pm.wavelength_nm.1", "n77.wavelength_nm.2")
    assert asked[-1] == [1640.0, 1640.0], "and they are put back only then"
    kept = scan(bench, {"las.wavelength_nm": NM}, READ, keep_meters=True)
    assert kept.plan.followers == ()
    for name in READ:  # 1 dB at 1640 nm
        assert kept.value[name][3] < 0.85 * kept.value[name][1]


def test_a_frequency_is_followed_in_either_unit(bench: Bench) -> None:
    thz = 299792.458 / NM
    data = scan(bench, {"las.frequency_thz": thz}, READ)
    assert data.value["pm.power.1"] == pytest.approx(data.value["pm.power.1"][1], rel=0.005)
    moves = prepare_scan(bench, {"las.wavelength_nm": [1540.0, 1560.0]}, ["pol.s1"]).moves
    (follower,) = moves.followers
    assert follower.setting.name == "pol.frequency_thz"
    assert follower.numbers == pytest.approx(299792.458 / np.array([1540.0, 1560.0]))


def test_a_constant_wavelength_is_followed_too(bench: Bench) -> None:
    sweep = {"las.wavelength_nm": [1640.0], "las.power_dbm": [6.0, 9.0]}
    data, kept = (scan(bench, sweep, READ[:1], keep_meters=keep) for keep in (False, True))
    assert np.all(kept.value[READ[0]] < 0.85 * data.value[READ[0]])


BOTH = {"pm.wavelength_nm.1": NM, "n77.wavelength_nm.2": NM}
THZ = np.array([193.0, 194.0])
OWN = {"pm.wavelength_nm.1": [1540.0], "n77.wavelength_nm.2": [1540.0]}


@pytest.mark.parametrize(
    ("sweep", "followed"),
    [
        ({"las.power_dbm": [6.0, 9.0]}, {}),
        ({"las.wavelength_nm": NM, "pm.wavelength_nm.1": [1540.0]}, {"n77.wavelength_nm.2": NM}),
        ({"las.wavelength_nm": NM, "other.wavelength_nm": [1530.0]}, BOTH),
        ({"other.wavelength_nm": [1530.0], "las.wavelength_nm": NM}, BOTH),
        ({("las.wavelength_nm", "other.wavelength_nm"): (NM, NM)}, BOTH),
        ({"las.wavelength_nm": [1540.0], "other.wavelength_nm": [1530.0], "las.power_dbm": [6.0, 9.0]}, {}),
        ({"las.wavelength_nm": NM, "other.wavelength_nm": NM[:2], **OWN}, {}),
        ({"itla.frequency_thz": THZ}, dict.fromkeys(BOTH, 299792.458 / THZ)),
    ],
)
def test_what_follows_what(bench: Bench, sweep: dict, followed: dict) -> None:
    moves = prepare_scan(bench, sweep, READ).moves
    found = {each.setting.name: each.numbers for each in moves.followers}
    assert found.keys() == followed.keys()
    for name, numbers in found.items():
        assert numbers == pytest.approx(followed[name], rel=1e-12)


@pytest.mark.parametrize("together", [True, False])
def test_two_wavelengths_that_move_apart_are_refused(bench: Bench, together: bool) -> None:
    names, values = ("las.wavelength_nm", "other.wavelength_nm"), (NM, NM - 10.0)
    sweep = {names: values} if together else dict(zip(names, values, strict=True))
    with pytest.raises(
        ConfigError, match=r"las\.wavelength_nm and other\.wavelength_nm have different wavelengths"
    ) as refused:
        scan(bench, sweep, READ)
    assert "keep_meters=True (--keep-meters)" in str(refused.value.hint)
    assert prepare_scan(bench, sweep, READ, keep_meters=True).moves.plan.followers == ()
    assert prepare_scan(bench, sweep, ["las"]).moves.plan.followers == (), "no meter is read"


def test_a_wavelength_that_a_meter_does_not_know_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    n77 = bench.meters["n77"]
    assert isinstance(n77, KeysightMeter)
    limits = n77.limits(2)
    type_of = type(limits)
    narrow = type_of((1505.0, 1650.0), limits.averaging_s, limits.range_dbm)
    monkeypatch.setattr(n77, "limits", lambda channel: narrow)
    before = bench.lasers["las"].state()
    with pytest.raises(LimitError, match=r"n77\.wavelength_nm\.2") as refused:
        scan(bench, {"las.wavelength_nm": NM}, READ)
    assert "--keep-meters" in str(refused.value.hint)
    assert bench.lasers["las"].state() == before
    assert scan(bench, {"las.wavelength_nm": NM[1:]}, READ).complete
    assert scan(bench, {"las.wavelength_nm": NM}, READ, keep_meters=True).complete


def test_a_scan_is_not_gone_on_with_other_meters(bench: Bench, tmp_path: Path) -> None:
    out = tmp_path / "s.h5"

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scan(bench, {"las.wavelength_nm": NM}, READ, out=out, progress=stop)
    with pytest.raises(ConfigError, match="started with another scan"):
        scan(bench, {"las.wavelength_nm": NM}, READ, out=out, resume=True, keep_meters=True)
    data = scan(bench, {"las.wavelength_nm": NM}, READ, out=out, resume=True)
    assert data.complete
    assert load_scan(out).plan == data.plan
    assert data.value["pm.power.1"] == pytest.approx(data.value["pm.power.1"][1], rel=0.005)
