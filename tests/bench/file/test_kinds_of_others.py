"""A package of others adds a kind of device by an entry point; kinds that are broken or there twice are told apart."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lumion_hw import Bench
from lumion_hw.acquisition import Settings
from lumion_hw.bench.discovery import discover
from lumion_hw.bench.emulated import emulated_bench
from lumion_hw.bench.file import known_kinds, registered
from lumion_hw.bench.file.loader import bench_schema, check_bench, load_bench
from lumion_hw.cli import main
from lumion_hw.clock import SystemClock
from lumion_hw.emulator.wires.server import EmulatorServer
from lumion_hw.errors import ConfigError
from tests.waiting import until

DATA = Path(__file__).parents[2] / "data"
FILE = """\
version: 1
name: acme
devices:
  mesh0: {kind: lumion-mesh}
  tls0: {kind: itla-laser}
  acme0: {kind: acme-pm2, averaging_s: 0.1}
mesh: {controller: mesh0, columns: [2]}
wiring:
  inputs: [{laser: tls0, port: 5}]
  outputs: [{port: 4, tap: {meter: acme0, channel: 2}}]
"""


def install(site: Path, name: str, *entries: str) -> None:
    """Write what pip leaves of a package that has entry points."""
    folder = site / f"{name.replace('-', '_')}-1.2.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (folder / "entry_points.txt").write_text("\n".join(["[lumion_hw.kinds]", *entries]) + "\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place where packages are installed, with the lab's own in it."""
    site = tmp_path / "site"
    shutil.copytree(DATA / "acme_lumion", site / "acme_lumion")
    install(site, "acme-lumion", "acme-pm2 = acme_lumion.kind:KIND")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    for module in [name for name in sys.modules if name.partition(".")[0] == "acme_lumion"]:
        monkeypatch.delitem(sys.modules, module)
    return site


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "acme.yaml"
    path.write_text(FILE)
    return path


def test_a_bench_is_checked_emulated_and_opened_with_it(site: Path, file: Path, capsys) -> None:
    assert main(["bench", "check", str(file)]) == 0
    assert main(["bench", "show", str(file)]) == 0
    assert "acme-pm2" in capsys.readouterr().out
    with Bench.emulate(file, seed=3) as bench:
        laser, meter, faults = bench.lasers["tls0"], bench.meters["acme0"], bench.emulated.faults
        assert (meter.model, meter.serial) == ("PM2", "EMU-acme0")
        assert {setting.device for setting in Settings(bench).values()} == {"mesh0", "tls0"}, "acme0 has nothing"
        laser.enable()
        laser.wait_ready(60.0)
        seen_w = meter.read(2).power_w
        assert seen_w == pytest.approx(bench.emulated.world.meter_w("acme0", 2), rel=1e-5)
        assert seen_w > 0.0
        assert {"no_power", "no_cable", "lens_cap"} == {fault.name for fault in faults.list_faults("acme0")}
        faults.inject("acme0", "lens_cap")
        assert meter.read(2).power_w == 0.0
        faults.end("acme0", "lens_cap")
        assert meter.read(2).power_w == pytest.approx(seen_w, rel=1e-5)


def test_it_is_served_found_and_opened_over_a_real_wire(site: Path, file: Path) -> None:
    clock = SystemClock()
    emulated = emulated_bench(load_bench(file), clock, 1)
    with EmulatorServer(clock) as server:
        address = server.add_tcp(emulated.devices["acme0"])
        with server.in_thread():
            found, _ = discover([address], clock)
            assert [(each.kind, each.entry) for each in found] == [("acme-pm2", {"serial": "EMU-acme0"})]
            with Bench.open(file, addresses={"acme0": address}, only=["acme0"]) as bench:
                assert bench.meters["acme0"].serial == "EMU-acme0"


def test_lumion_emulate_serves_it_on_its_wire(site: Path, file: Path, tmp_path: Path) -> None:
    endpoints = tmp_path / "endpoints.json"
    command = [sys.executable, "-m", "lumion_hw.cli", "emulate", str(file), "--endpoints", str(endpoints)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: endpoints.exists() or process.poll() is not None)
            assert process.poll() is None, process.communicate()
            addresses = json.loads(endpoints.read_text())
        finally:
            process.terminate()
            process.wait(60)
    assert addresses["acme0"].startswith("tcp://")
    assert addresses["tls0"].startswith("serial://")


def test_its_keys_are_in_the_schema_and_in_messages(site: Path) -> None:
    assert bench_schema()["$defs"]["AcmeMeterModel"]["properties"]["averaging_s"]["maximum"] == 1.0
    assert "AcmeMeterModel" not in bench_schema(known_kinds.builtin_kinds())["$defs"]

    def mistakes(old: str, new: str) -> str:
        return "\n".join(str(problem) for problem in check_bench("f.yaml", text=FILE.replace(old, new)))

    said = mistakes("averaging_s: 0.1", "avraging_s: 0.1")
    assert "f.yaml:6:27: devices.acme0.avraging_s: expected one of the keys address, emulated_port" in said
    assert "Did you mean 'averaging_s'?" in said
    assert "devices.acme0.averaging_s: expected at most 1, found the number 5" in mistakes("0.1", "5")
    said = mistakes("acme-pm2", "acme-pm3")
    assert "f.yaml:6:17: devices.acme0.kind: expected one of acme-pm2, amonics-aedfa, arroyo-tec, cmis" in said
    assert "found 'acme-pm3'. Did you mean 'acme-pm2'?" in said
    assert "expected a channel from 1 to 2 ('acme0' is a acme-pm2), found 3" in mistakes("channel: 2", "channel: 3")
    assert "a device of kind acme-pm2, keysight-816x" in mistakes("meter: acme0", "meter: mesh0")


# Broken kinds ---------------------------------------------------------------------------------------------------------

GOOD = FILE.replace("acme-pm2, averaging_s: 0.1", "thorlabs-pm").replace("channel: 2", "channel: 1")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("acme_gone:KIND", "ModuleNotFoundError: No module named 'acme_gone'"),
        ("acme_lumion.kind:GONE", "AttributeError"),
        ("acme_lumion.kind:AcmeMeterModel", "it is a ModelMetaclass and not a DeviceKind"),
        ("acme_lumion.kind:KIND", "its model is of kind 'acme-pm2'"),
        ("acme_lumion.broken:KIND", "ValueError: {no} such {0} thing"),
    ],
)
def test_a_broken_kind_is_named_with_its_package_and_breaks_no_other_bench(
    site: Path, value: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "acme_lumion" / "broken.py").write_text("raise ValueError('{no} such {0} thing')\n")
    install(site, "bad-lab", f"bad-pm = {value}")
    with pytest.raises(ConfigError) as caught:
        load_bench("f.yaml", text=FILE.replace("acme-pm2, averaging_s: 0.1", "bad-pm"))
    said = str(caught.value)
    assert "f.yaml:6:17: devices.acme0.kind: the kind 'bad-pm' cannot be used" in said
    assert f"package bad-lab, entry point 'bad-pm = {value}'" in said
    assert why in said
    assert check_bench("f.yaml", text=FILE) == ()
    with_mistake = check_bench("f.yaml", text=GOOD.replace("meter: acme0", "meter: mesh0"))
    assert [problem.path for problem in with_mistake] == ["wiring.outputs[0].tap.meter"]
    assert main(["bench", "schema"]) == 0
    captured = capsys.readouterr()
    assert "acme-pm2" in captured.out
    assert "package bad-lab" in captured.err


def test_a_name_that_is_there_twice_is_refused_where_it_is_used(site: Path) -> None:
    install(site, "other-lab", "acme-pm2 = acme_lumion.kind:KIND", "thorlabs-pm = acme_lumion.kind:KIND")
    for text, name, packages in (
        (FILE, "acme-pm2", ("acme-lumion", "other-lab")),
        (GOOD, "thorlabs-pm", ("lumion-hw", "other-lab")),
    ):
        (problem,) = check_bench("f.yaml", text=text)
        assert problem.path == "devices.acme0.kind"
        assert f"the kind {name!r} is registered 2 times" in problem.message
        assert all(f"package {package}, entry point" in problem.message for package in packages)
    assert check_bench("f.yaml", text=FILE.replace("acme-pm2, averaging_s: 0.1", "keysight-n77xx")) == ()


def test_a_package_that_is_found_twice_is_one(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "again", "Acme_Lumion", "acme-pm2 = acme_lumion.kind:KIND")
    monkeypatch.syspath_prepend(str(tmp_path / "again"))
    assert check_bench("f.yaml", text=FILE) == ()


# Kinds of this package -----------------------------------------------------------------------------------------------


def test_without_its_checkout_the_kinds_are_those_it_was_installed_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "lumion-hw", "cmis = lumion_hw.bench.kinds.cmis:KIND")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(registered, "_CHECKOUT", tmp_path / "pyproject.toml")
    assert [kind.name for kind in known_kinds.builtin_kinds()] == ["cmis"]


def test_an_installation_without_kinds_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "lumion-hw")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(registered, "_CHECKOUT", tmp_path / "pyproject.toml")
    with pytest.raises(ConfigError, match=r"lumion-hw has no entry points in the group lumion_hw.kinds.*pip install"):
        load_bench(DATA / "small.yaml")


def test_a_bench_loads_the_kinds_it_names_and_no_others(tmp_path: Path) -> None:
    script = """
import sys
from lumion_hw import Bench
with Bench.emulate(sys.argv[1], only=["meter0"]) as bench:
    bench.meters["meter0"].read_all()
print(*(name for name in sys.modules if name.startswith("lumion_hw.")))
"""
    path = tmp_path / "two.yaml"
    path.write_text("version: 1\nname: two\ndevices:\n  meter0: {kind: keysight-n77xx}\n  tls0: {kind: santec-tsl}\n")
    said = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True).stdout
    loaded = said.split()

    def below(room: str) -> set[str]:
        return {name.removeprefix(room).split(".")[0] for name in loaded if name.startswith(room)}

    assert below("lumion_hw.bench.kinds.") == {"keysight_n77xx", "santec_tsl"}
    assert below("lumion_hw.drivers.") >= {"meters"}
    assert not below("lumion_hw.drivers.") & {"mesh", "lasers", "transponders", "polarization"}
    assert not below("lumion_hw.emulator.") & {"mesh", "transponders", "polarization"}
