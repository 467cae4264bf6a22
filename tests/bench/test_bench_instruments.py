"""Power meters and lasers of a bench file: which driver opens them, what it is told, and where the bench keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumion_hw.bench.devices import (
    DeviceModel,
    ItlaModel,
    KeysightLaserModel,
    MainframeMeterModel,
    SantecLaserModel,
    SantecMeterModel,
    ThorlabsMeterModel,
)
from lumion_hw.bench.drivers import open_device
from lumion_hw.bench.loader import check_bench
from lumion_hw.clock import VirtualClock
from lumion_hw.errors import ConnectError, IdentityError
from lumion_hw.links import Exchange, ReplayPeer, replay_link

BENCH = """
version: 1
name: b
devices:
  mesh0: {{kind: lumion-mesh}}
  other0: {{{device}}}
  sfp0: {{kind: sfp-8472}}
mesh: {{controller: mesh0, columns: [2]}}
{rest}
"""


def problems(tmp_path: Path, device: str, rest: str = "") -> list[str]:
    path = tmp_path / "bench.yaml"
    path.write_text(BENCH.format(device=device, rest=rest))
    return [str(problem) for problem in check_bench(path)]


@pytest.mark.parametrize(
    ("model", "driver", "told"),
    [
        (
            MainframeMeterModel(kind="keysight-816x", model="8164B", serial="DE1"),
            "meters.keysight_816x.Keysight816x",
            {"expected_model": "8164B", "expected_serial": "DE1"},
        ),
        (
            ThorlabsMeterModel(kind="thorlabs-pm", model="PM400", sample_s=1e-3),
            "meters.thorlabs_pm.ThorlabsPm",
            {"expected_model": "PM400", "expected_serial": None, "sample_s": 1e-3},
        ),
        (SantecMeterModel(kind="santec-mpm", serial="1"), "meters.santec_mpm.SantecMpm", {"expected_serial": "1"}),
        (ItlaModel(kind="itla-laser", serial="SN42"), "lasers.itla.ItlaLaser", {"expected_serial": "SN42"}),
        (
            KeysightLaserModel(kind="keysight-laser", model="N7776C", pin="0042"),
            "lasers.keysight_laser.KeysightLaser",
            {"expected_model": "N7776C", "expected_serial": None, "pin": "0042"},
        ),
        (
            SantecLaserModel(kind="santec-tsl", wavelength_min_nm=1500.0, wavelength_max_nm=1630.0),
            "lasers.santec_tsl.SantecTsl",
            {
                "expected_model": None,
                "expected_serial": None,
                "limits_nm": (1500.0, 1630.0),
                "limits_dbm": None,
            },
        ),
    ],
)
def test_a_driver_is_told_what_the_file_says(
    monkeypatch: pytest.MonkeyPatch, model: DeviceModel, driver: str, told: dict[str, object]
) -> None:
    seen: dict[str, object] = {}

    class Driver:
        def __init__(self, link: object, clock: object, **options: object) -> None:
            seen.update(options)

        def open(self) -> None:
            raise ConnectError("no hardware here")

    monkeypatch.setattr(f"lumion_hw.drivers.{driver}", Driver)
    clock = VirtualClock()
    with pytest.raises(ConnectError):
        open_device("x0", model, replay_link(ReplayPeer([], clock), clock), clock)
    assert seen == {"device": "x0", **told}


@pytest.mark.parametrize(
    ("model", "ending"),
    [
        (MainframeMeterModel(kind="keysight-816x"), b"\n"),
        (ThorlabsMeterModel(kind="thorlabs-pm"), b"\n"),
        (SantecMeterModel(kind="santec-mpm"), b"\r\n"),
        (KeysightLaserModel(kind="keysight-laser"), b"\n"),
        (SantecLaserModel(kind="santec-tsl"), b"\r\n"),
    ],
)
def test_another_instrument_at_the_address_is_refused_by_name(model: DeviceModel, ending: bytes) -> None:
    clock = VirtualClock()
    peer = ReplayPeer([Exchange(b"*IDN?" + ending, b"ACME,Toaster 9,7,1.0\n")], clock)
    with pytest.raises(IdentityError, match="Toaster 9") as caught:
        open_device("x0", model, replay_link(peer, clock), clock)
    assert caught.value.device == "x0"


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("kind: santec-tsl, wavelength_min_nm: 1500.0", "wavelength_min_nm below wavelength_max_nm"),
        ("kind: santec-tsl, power_min_dbm: 5.0, power_max_dbm: 5.0", "power_min_dbm below power_max_dbm"),
        ("kind: keysight-laser, pin: 1234", "pin"),
        ("kind: thorlabs-pm, wavelength_nm: 1.55e-6", "wavelength_nm"),
        ("kind: thorlabs-pm, model: PM100", "PM100D"),
        ("kind: santec-mpm, averaging_s: 100.0", "averaging_s"),
        ("kind: itla-laser, baud: 9600", "baud"),
    ],
)
def test_a_mistake_is_found_before_anything_is_opened(tmp_path: Path, device: str, said: str) -> None:
    found = problems(tmp_path, device)
    assert found
    assert said in found[0]


TAP = """
wiring:
  outputs: [{{port: 0, transponder: sfp0, tap: {{meter: other0, channel: {channel}, fraction: 0.05}}}}]
"""


@pytest.mark.parametrize("kind", ["keysight-816x", "thorlabs-pm", "santec-mpm"])
def test_any_power_meter_can_be_on_a_tap(tmp_path: Path, kind: str) -> None:
    assert problems(tmp_path, f"kind: {kind}", TAP.format(channel=1)) == []


def test_a_meter_with_one_channel_has_no_second(tmp_path: Path) -> None:
    found = problems(tmp_path, "kind: thorlabs-pm", TAP.format(channel=2))
    assert any("expected a channel from 1 to 1" in each for each in found)


def test_a_laser_is_no_meter(tmp_path: Path) -> None:
    found = problems(tmp_path, "kind: itla-laser", TAP.format(channel=1))
    assert any("which is of kind itla-laser" in each for each in found)
