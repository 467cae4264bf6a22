"""The bench as a model: published defaults, the wiring it hands on, and what Python data may not hold."""

import math
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from lumion_hw.bench.file.loader import load_bench
from lumion_hw.bench.file.model import BenchModel, EmulationModel, MeshSection, TypicalMeshModel
from lumion_hw.bench.kinds.keysight_n77xx import PowerMeterModel
from lumion_hw.bench.kinds.sfp_8472 import SfpModel
from lumion_hw.interfaces.wiring import InputPath, OutputPath


@pytest.fixture
def data(small: str) -> dict[str, Any]:
    return yaml.safe_load(small)


def test_module_limits_default_to_10gbase_er() -> None:
    # 10GBASE-ER, data sheets: sensitivity -15.8 dBm, overload -1.0 dBm; LOS of the emulated module -21 and -19.5 dBm
    module = SfpModel(kind="sfp-8472")
    assert (module.sensitivity_dbm, module.overload_dbm) == (-15.8, -1.0)
    assert (module.los_assert_dbm, module.los_release_dbm) == (-21.0, -19.5)
    assert module.wavelength_nm == 1550.0


def test_typical_losses_give_13_7_db_fibre_to_fibre() -> None:
    # Sánchez-Jácome 2025: typical 13.7 + 0.50 n dB over n PUCs
    typical = TypicalMeshModel()
    assert 2 * typical.access_loss_db == pytest.approx(13.7)
    assert typical.puc_loss_db == 0.5


@pytest.mark.parametrize(("model", "channels"), [("N7744A", 4), ("N7745A", 8), ("N7744C", 4), ("N7745C", 8)])
def test_the_meter_model_decides_the_number_of_channels(model: Any, channels: int) -> None:
    assert PowerMeterModel(kind="keysight-n77xx", model=model).n_channels == channels


def test_hidden_physics_default_to_the_published_figures() -> None:
    # docs/sources.md: couplers and heater power per pi as published, access spread and photodiode noise assumed
    physics = EmulationModel()
    assert (physics.p_pi_mw.min, physics.p_pi_mw.typical, physics.p_pi_mw.max) == (1.2, 1.34, 2.0)
    assert (physics.coupler_common_sigma, physics.coupler_difference_rad) == (0.011, 0.0063)
    assert physics.access_loss_sigma_db == 1.0
    assert (physics.monitor_noise_relative, physics.monitor_noise_floor_dbm) == (0.005, -60.0)


def test_smartlight_monitors_follow_the_28_fibre_ports() -> None:
    assert load_bench("lumion-prototype").monitors() == tuple(range(22)) + tuple(range(34, 40))


@pytest.mark.parametrize("kind", ["qontrol-q8", "smartlight-line-server"])
def test_a_controller_without_photodiodes_has_no_monitors(data: dict[str, Any], kind: str) -> None:
    data["devices"]["mesh0"] = {"kind": kind}
    assert BenchModel.model_validate(data).monitors() == ()


def test_heaters_follow_the_puc_numbers_unless_told_otherwise() -> None:
    table = MeshSection(controller="mesh0", heater_channels={5: (300, 301)}).channels()
    assert len(table) == 144
    assert table[:2] == (0, 1)
    assert table[10:12] == (300, 301)
    assert table[142:] == (142, 143)


def test_the_wiring_hands_on_every_fibre(data: dict[str, Any]) -> None:
    wiring = BenchModel.model_validate(data).to_wiring()
    assert wiring.input_of("sfp-a") == InputPath("sfp-a", port=0, polarization="pol-a", loss_db=0.5, gain_db=10.0)
    assert wiring.input_of("sfp-b") == InputPath("sfp-b", port=1, polarization=None, loss_db=0.0, gain_db=0.0)
    assert wiring.output_of("sfp-a") == OutputPath(
        port=3, transponder="sfp-a", loss_db=0.0, meter="meter0", meter_channel=1, tap_fraction=0.1
    )
    untapped = wiring.output_of("sfp-b")
    assert (untapped.meter, untapped.meter_channel, untapped.tap_fraction) == (None, None, 0.0)


def test_a_laser_feeds_an_input_in_place_of_a_module(data: dict[str, Any]) -> None:
    data["devices"]["tls"] = {"kind": "santec-tsl"}
    data["wiring"]["inputs"].append({"laser": "tls", "port": 6, "loss_db": 0.2})
    wiring = BenchModel.model_validate(data).to_wiring()
    path = wiring.inputs[-1]
    assert path == InputPath(None, port=6, polarization=None, loss_db=0.2, gain_db=0.0, laser="tls")
    assert (path.source, wiring.inputs[0].source) == ("tls", "sfp-a")
    with pytest.raises(KeyError):
        wiring.input_of("tls")


@pytest.mark.parametrize(
    ("keys", "complete"),
    [
        ({"model": "TSL-550"}, False),
        ({"model": "TSL-550", "power_min_dbm": -10.0, "power_max_dbm": 10.0}, False),
        ({"model": "TSL-550", "wavelength_min_nm": 1500.0, "wavelength_max_nm": 1630.0}, True),
        ({"model": "TSL-570"}, True),
        ({}, True),
    ],
)
def test_an_older_tsl_does_not_tell_its_range_so_the_file_must(
    data: dict[str, Any], keys: dict[str, Any], complete: bool
) -> None:
    data["devices"]["tls"] = {"kind": "santec-tsl", **keys}
    if complete:
        BenchModel.model_validate(data)
    else:
        with pytest.raises(ValidationError, match="a TSL-550 does not report its range"):
            BenchModel.model_validate(data)


def test_one_laser_feeds_one_input(data: dict[str, Any]) -> None:
    data["devices"]["tls"] = {"kind": "santec-tsl"}
    data["wiring"]["inputs"] += [{"laser": "tls", "port": 6}, {"laser": "tls", "port": 7}]
    with pytest.raises(ValidationError, match="laser 'tls' to be used once"):
        BenchModel.model_validate(data)


def test_servers_are_found_by_name(data: dict[str, Any]) -> None:
    model = BenchModel.model_validate(data)
    assert model.server("b").nics == ("sfp-b",)
    with pytest.raises(KeyError):
        model.server("d")


def test_python_data_gets_the_same_cross_checks_as_a_file(data: dict[str, Any]) -> None:
    data["fabric"]["spares"] = ["d"]
    data["wiring"]["inputs"][1]["port"] = 0
    with pytest.raises(ValidationError) as caught:
        BenchModel.model_validate(data)
    assert "wiring.inputs[1].port: expected port 0 to be used once" in str(caught.value)
    assert "fabric.spares[0]: expected the name of a server, found 'd'" in str(caught.value)


def test_a_model_survives_the_way_through_plain_data(data: dict[str, Any]) -> None:
    model = BenchModel.model_validate(data)
    assert BenchModel.model_validate(model.model_dump(exclude_unset=True)) == model
    assert BenchModel.model_validate_json(model.model_dump_json(exclude_unset=True)) == model


def test_a_model_cannot_be_changed(data: dict[str, Any]) -> None:
    model = BenchModel.model_validate(data)
    with pytest.raises(ValidationError, match="frozen"):
        model.name = "other"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "1.0", True, None, 10**400])
def test_no_number_is_made_of_what_is_none(data: dict[str, Any], value: object) -> None:
    data["wiring"]["inputs"][0]["loss_db"] = value
    with pytest.raises(ValidationError, match=r"loss_db"):
        BenchModel.model_validate(data)


ADDRESSES = [
    "tcp://192.0.2.20:5025",
    "tcp://[::1]:65535",
    "serial:///dev/serial/by-id/usb-X_1-if00",
    "serial:///dev/pts/3?baud=9600",
    "visa://TCPIP0::192.0.2.20::inst0::INSTR",
]
NOT_ADDRESSES = ["", "meter0", "tcp://host", "tcp://host:0", "tcp://host:65536", "http://x:1", "serial://", "/dev/x"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_addresses_of_every_link_are_taken(address: str) -> None:
    assert SfpModel(kind="sfp-8472", address=address).address == address


@pytest.mark.parametrize("address", NOT_ADDRESSES)
def test_what_no_link_could_open_is_refused(address: str) -> None:
    with pytest.raises(ValidationError, match="expected an address"):
        SfpModel(kind="sfp-8472", address=address)


@pytest.mark.parametrize("serial", ["A", "LM-0001 rev B", "0123456789ABCDEF"])
def test_serial_numbers_that_fit_the_device_are_taken(serial: str) -> None:
    assert SfpModel(kind="sfp-8472", serial=serial).serial == serial


@pytest.mark.parametrize("serial", ["", "0123456789ABCDEF0", "Ä1", "A\n", " A", "A "])
def test_serial_numbers_that_no_module_can_hold_are_refused(serial: str) -> None:
    with pytest.raises(ValidationError, match="1 to 16 ASCII characters"):
        SfpModel(kind="sfp-8472", serial=serial)


def test_an_address_is_not_needed(small: str) -> None:
    assert load_bench("small", text=small).devices["mesh0"].address is None
