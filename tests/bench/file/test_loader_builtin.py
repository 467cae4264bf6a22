"""The built-in bench is the published prototype, and the JSON Schema describes bench files to others."""

import json

import jsonschema
import pytest
import yaml

from lumion_hw.bench.file.known_kinds import builtin_kinds
from lumion_hw.bench.file.loader import bench_schema, builtin_names, builtin_path, check_bench, load_bench
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.bench.kinds.keysight_n77xx import PowerMeterModel
from lumion_hw.bench.kinds.lumion_mesh import MeshControllerModel
from lumion_hw.bench.kinds.oz_epc04 import PolarizationControllerModel
from lumion_hw.bench.kinds.sfp_8472 import SfpModel
from lumion_hw.errors import ConfigError

# Morphlux 2025, artefact: (server, NIC) -> (mesh port fed by its transmitter, mesh port that feeds its receiver)
PUBLISHED_WIRING = {
    (0, 0): (12, 18),
    (0, 1): (20, 36),
    (1, 0): (5, 9),
    (1, 1): (37, 6),
    (2, 0): (2, 17),
    (2, 1): (1, 0),
    (3, 0): (7, 13),
    (3, 1): (35, 34),
}
FREE_PORTS = {3, 4, 8, 10, 11, 14, 15, 16, 19, 21, 38, 39}  # the other fibre ports


@pytest.fixture(scope="module")
def prototype() -> BenchModel:
    return load_bench("lumion-prototype")


def test_the_built_in_bench_is_right() -> None:
    assert builtin_names() == ("laser-bench", "lumion-prototype", "small-bench")
    assert [check_bench(builtin_path(name)) for name in builtin_names()] == [(), (), ()]


def test_a_built_in_bench_that_does_not_exist_names_those_that_do() -> None:
    with pytest.raises(ConfigError, match="lumion-prototype"):
        builtin_path("lumion")


def test_the_wiring_is_the_published_one(prototype: BenchModel) -> None:
    wiring = prototype.to_wiring()
    for (server, nic), (tx_port, rx_port) in PUBLISHED_WIRING.items():
        module = prototype.server(f"server{server}").nics[nic]
        assert wiring.input_of(module).port == tx_port
        assert wiring.output_of(module).port == rx_port


def test_sixteen_of_the_28_fibre_ports_are_used(prototype: BenchModel) -> None:
    wiring = prototype.to_wiring()
    used = {path.port for path in (*wiring.inputs, *wiring.outputs)}
    assert len(used) == 16
    assert set(prototype.topology().fibre_ports) - used == FREE_PORTS


def test_every_module_has_its_own_controller_tap_and_identity(prototype: BenchModel) -> None:
    wiring = prototype.to_wiring()
    assert len({path.polarization for path in wiring.inputs} - {None}) == 8
    assert [path.meter_channel for path in wiring.outputs] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {path.tap_fraction for path in wiring.outputs} == {0.1}
    assert len({device.address for device in prototype.devices.values()} - {None}) == len(prototype.devices)


def test_the_devices_are_those_of_the_prototype(prototype: BenchModel) -> None:
    kinds = [type(device) for device in prototype.devices.values()]
    assert kinds.count(MeshControllerModel) == 1
    assert kinds.count(PowerMeterModel) == 1
    assert kinds.count(SfpModel) == 8
    assert kinds.count(PolarizationControllerModel) == 8


def test_server_0_is_joined_to_server_1_and_two_stand_by(prototype: BenchModel) -> None:
    assert prototype.fabric.pairs == (("server0", "server1"),)
    assert prototype.fabric.spares == ("server2", "server3")


def test_every_input_is_amplified_enough_for_fifteen_cells_and_not_too_much_for_one(prototype: BenchModel) -> None:
    # launch + gain - fibre - (13.7 + 0.5 n) - fibre - 90 % of a tap (0.46 dB), within sensitivity and overload
    wiring = prototype.to_wiring()
    for entry in wiring.inputs:
        module = prototype.devices[entry.transponder]
        assert isinstance(module, SfpModel)
        before = module.tx_power_dbm + entry.gain_db - entry.loss_db - 0.3 - 0.46
        assert before - (13.7 + 0.5 * 15) > module.sensitivity_dbm
        assert before - (13.7 + 0.5 * 1) < module.overload_dbm


def test_the_schema_is_a_json_schema_and_takes_the_built_in_bench() -> None:
    schema = bench_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    data = yaml.safe_load(builtin_path("lumion-prototype").read_text())
    jsonschema.validate(data, schema)


@pytest.mark.parametrize(
    ("old", "new"),
    [("watchdog_s: 2.0", "watchdog: 2.0"), ("kind: oz-epc04", "kind: oz"), ("loss_db: 0.3", "loss_db: '0.3'")],
)
def test_the_schema_finds_faults_without_this_package(old: str, new: str) -> None:
    data = yaml.safe_load(builtin_path("lumion-prototype").read_text().replace(old, new, 1))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, bench_schema())


def test_the_schema_that_editors_read_is_up_to_date() -> None:
    stored = builtin_path("lumion-prototype").with_name("bench.schema.json")
    assert json.loads(stored.read_text()) == bench_schema(builtin_kinds()), f"run: lumion bench schema > {stored}"
