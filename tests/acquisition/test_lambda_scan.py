"""Lambda scans: a laser sweeps by itself, meters sample at its pulses, and the data are those of a stepped scan."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.acquisition import ScanData, ScanProgress, load_scan, scan
from lumion_hw.acquisition.scanning import prepare_scan
from lumion_hw.drivers.meters.keysight_816x import Keysight816x
from lumion_hw.emulator.lasers.swept_laser import SweptLaser
from lumion_hw.errors import DeviceTimeoutError

BENCH = Path(__file__).parents[1] / "data" / "swept_lasers.yaml"
NM = np.linspace(1545.0, 1547.0, 21)
IN, CABLE = ("las0.wavelength_nm", "mf0.power.1"), ("tls0.wavelength_nm", "pm0.power.1")
SANTEC, PAIR = ("tsl0.wavelength_nm", "pm1.power.1"), ("tsl0.wavelength_nm", "pm2.power.3")


@pytest.fixture(scope="module")
def opened() -> Iterator[Bench]:
    with Bench.emulate(BENCH, seed=1) as bench:
        for laser in bench.lasers.values():
            laser.enable()
            laser.wait_ready(30.0)
        yield bench


@pytest.fixture
def bench(opened: Bench) -> Bench:
    """Lasers that emit, meters in a fixed range."""
    for name, channel, range_dbm in (("mf0", 1, -20.0), ("pm0", 1, 0.0), ("pm1", 1, 0.0), ("pm2", 3, 0.0)):
        meter = opened.meters[name]
        meter.set_range_dbm(channel, range_dbm)
        meter.set_averaging_s(channel, 1e-4)
    return opened


def swept(bench: Bench, names: tuple[str, str] = IN, nm: object = NM, **more: object) -> tuple[ScanData, set[str]]:
    """Return data, and what was told of points that were stepped."""
    told: list[ScanProgress] = []
    data = scan(bench, {names[0]: nm}, [names[1]], progress=told.append, **more)  # type: ignore[arg-type]
    return data, {each.stepped for each in told if each.stepped}


def test_a_swept_scan_is_the_stepped_one_in_a_fraction_of_the_time(bench: Bench) -> None:
    data, why = swept(bench)
    by_hand, _ = swept(bench, by_hand=True)
    name = IN[1]
    assert data.by_instrument.all()
    assert not why
    assert not by_hand.by_instrument.any()
    # The chip's interference changes the light by a quarter over this span.
    assert np.ptp(by_hand.value[name]) > 0.25 * by_hand.value[name].mean()
    assert data.value[name] == pytest.approx(by_hand.value[name], rel=0.03)
    ours, theirs = data.to_xarray(), by_hand.to_xarray()
    assert list(ours.data_vars) == list(theirs.data_vars)
    assert ours.sizes == theirs.sizes
    assert ours[IN[0]].values == pytest.approx(theirs[IN[0]].values)
    assert np.nanmax(data.time_s) < 0.2 * np.nanmax(by_hand.time_s)


def test_the_wavelengths_of_the_laser_s_log_are_kept(bench: Bench, tmp_path: Path) -> None:
    swept(bench, out=tmp_path / "s.h5")
    data = load_scan(tmp_path / "s.h5")
    (name,) = data.setting_was
    device = bench.emulated.devices["las0"]
    error_nm = device.light().wavelength_nm - bench_nm(bench)
    # Half of the 1 pm that passes at 10 nm/s while a sample is averaged for 100 µs.
    assert data.setting_was[name] == pytest.approx(NM + error_nm + 0.0005, abs=1e-5)
    assert data.to_xarray()[f"{name}.set"].values == pytest.approx(data.setting_was[name])
    assert data.to_pandas().attrs["units"][f"{name}.set"] == "nm"


def bench_nm(bench: Bench) -> float:
    return 299792.458 / bench.lasers["las0"].state().frequency_thz


@pytest.mark.parametrize("names", [CABLE, SANTEC, PAIR], ids=["keysight", "santec", "santec with its own meter"])
def test_a_cable_from_one_box_to_another_does_as_well(bench: Bench, names: tuple[str, str]) -> None:
    data, why = swept(bench, names)
    by_hand, _ = swept(bench, names, by_hand=True)
    assert data.by_instrument.all(), why
    assert data.value[names[1]] == pytest.approx(by_hand.value[names[1]], rel=0.01)
    assert data.setting_was[names[0]] == pytest.approx(NM, abs=0.02)


def test_slower_settings_are_swept_as_ever_and_every_other_pass_may_go_back(bench: Bench) -> None:
    sweep = {"las0.power_dbm": [-3.0, 0.0], IN[0]: NM}
    data = scan(bench, sweep, [IN[1]], snake=True)
    assert data.by_instrument.all()
    ratio = data.value[IN[1]][1] / data.value[IN[1]][0]
    assert ratio == pytest.approx(10**0.3, rel=0.05)
    upwards = np.diff(data.setting_was[IN[0]], axis=1)
    assert (upwards > 0.0).all(), "by wavelength, whichever way the pass went"


def test_a_scan_downwards_has_its_rows_as_asked(bench: Bench) -> None:
    up, _ = swept(bench)
    down, why = swept(bench, nm=NM[::-1])
    assert down.by_instrument.all(), why
    assert down.setting(IN[0]) == pytest.approx(NM[::-1])
    assert down.setting_was[IN[0]] == pytest.approx(up.setting_was[IN[0]][::-1], abs=1e-4)
    assert down.value[IN[1]] == pytest.approx(up.value[IN[1]][::-1], rel=0.01)
    assert np.ptp(down.time_s) == 0.0, "the end of the sweep, for no point has another"


def test_a_log_beyond_the_memory_of_the_meter_is_several_sweeps(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = swept(bench)
    monkeypatch.setattr(Keysight816x, "max_samples", 8)
    data, why = swept(bench)
    assert data.by_instrument.all(), why
    assert data.value[IN[1]] == pytest.approx(whole.value[IN[1]], rel=0.01)
    assert len(set(data.time_s.tolist())) == 3


@pytest.mark.parametrize(
    ("prepare", "names", "nm", "told"),
    [
        (lambda b: b.meters["mf0"].set_range_dbm(1, None), IN, NM[:2], "mf0 selects its range automatically"),
        (lambda b: b.meters["mf0"].set_averaging_s(1, 1.0), IN, NM[:2], "las0 passes a step of 0.1"),
        (lambda b: None, IN, [1545.0, 1545.1, 1545.3], "not evenly spaced"),
        (
            lambda b: None,
            ("las0.wavelength_nm", "las0.power_dbm"),
            NM[:2],
            "las0 cannot trigger samples of las0.power_dbm",
        ),
        (lambda b: None, ("tls0.wavelength_nm", "mf0.power.1"), NM[:2], "does not say that mf0 is triggered_by tls0"),
        (lambda b: None, SANTEC, [1545.0, 1545.0001], "1e+04 pulses per second for a step of 0.0001 nm"),
        (lambda b: b.lasers["las0"].disable(), IN, NM[:2], "the output is off"),
    ],
    ids=["range", "averaging", "uneven", "reading", "wiring", "rate", "dark"],
)
def test_what_cannot_be_swept_is_stepped_and_says_why(bench: Bench, prepare, names, nm, told: str) -> None:
    prepare(bench)
    try:
        data, why = swept(bench, names, nm)
    finally:
        bench.lasers["las0"].enable()
        bench.lasers["las0"].wait_ready(30.0)
    assert data.complete
    assert not data.by_instrument.any()
    assert len(why) == 1
    assert told in why.pop()


def test_a_sweep_that_gave_another_number_of_pulses_is_stepped(bench: Bench, monkeypatch) -> None:
    monkeypatch.setattr(SweptLaser, "logged_nm", property(lambda self: np.array([1545.0])))
    data, why = swept(bench, SANTEC, NM[:2])
    assert data.complete
    assert not data.by_instrument.any()
    assert "the laser gave 1 trigger pulses for 2 scan points" in why.pop()


def test_pulses_that_do_not_arrive_end_the_scan_with_the_laser_at_rest(bench: Bench, monkeypatch) -> None:
    monkeypatch.setattr(bench.emulated, "_trigger_inputs", {})
    monkeypatch.setattr(bench.emulated.devices["tls0"].module, "_on_triggers", lambda times_s: None)
    with pytest.raises(DeviceTimeoutError, match="not complete") as caught:
        swept(bench, CABLE)
    assert "check the cable" in (caught.value.hint or "")
    laser, meter = bench.lasers["tls0"], bench.meters["pm0"]
    assert laser.wait_ready(10.0).emitting
    assert not laser.is_sweeping()
    assert meter.read(1).power_w > 0.0, "no run is left"


def test_meters_follow_a_wide_sweep_in_parts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    nm = np.linspace(1600.0, 1640.0, 81)
    pm0, middles = bench.meters["pm0"], []
    set_nm = pm0.set_wavelength_nm
    monkeypatch.setattr(pm0, "set_wavelength_nm", lambda n, nm: (middles.append(nm), set_nm(n, nm)))
    data, why = swept(bench, CABLE, nm)
    kept, _ = swept(bench, CABLE, nm, keep_meters=True)
    by_hand, _ = swept(bench, CABLE, nm[::8], by_hand=True)
    power, ours = CABLE[1], data.value[CABLE[1]]
    assert not why
    assert data.by_instrument.all()
    assert kept.by_instrument.all()
    # Each part has the response of its middle: 4 % at its ends, where the photodiode is steepest.
    assert ours[::8] == pytest.approx(by_hand.value[power], rel=0.045)
    assert kept.value[power][-1] < 0.85 * ours[-1]
    assert pm0.settings(1).wavelength_nm == 1550.0
    assert {1605.0, 1615.5, 1626.0, 1635.75} <= set(middles), "21 points each, and 18 are left"


def test_steps_too_wide_for_a_wavelength_of_the_meter_are_stepped(bench: Bench) -> None:
    nm = np.array([1500.0, 1512.0, 1524.0, 1536.0])
    data, why = swept(bench, CABLE, nm)
    assert not data.by_instrument.any()
    assert why == {"steps are wider than 10 nm, but a meter keeps one wavelength during a sweep"}


def test_no_part_of_a_sweep_is_a_single_point(bench: Bench) -> None:
    # 22 points of 1 nm: 11 and 11; 23: 11, 11 and 1 would be, so parts have 10.
    for n, parts in ((22, 11), (23, 10), (11, 11), (12, 10)):
        prepared = prepare_scan(bench, {CABLE[0]: 1520.0 + np.arange(n)}, [CABLE[1]])
        assert prepared.own is not None
        assert prepared.own.max_points_per_sweep == parts
    kept = prepare_scan(bench, {CABLE[0]: 1520.0 + np.arange(23)}, [CABLE[1]], keep_meters=True)
    assert kept.own is not None
    assert kept.own.max_points_per_sweep > 1000
