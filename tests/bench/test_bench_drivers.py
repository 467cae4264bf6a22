"""What a driver is told when a bench opens it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumion_hw import Bench
from lumion_hw.bench.file.known_kinds import builtin_kinds
from lumion_hw.bench.kinds.lumion_mesh import MeshControllerModel
from lumion_hw.bench.opening import open_device
from lumion_hw.clock import SystemClock
from lumion_hw.errors import ConnectError
from lumion_hw.links import open_link


@pytest.mark.parametrize(
    ("address", "baud"),
    [
        ("serial:///dev/ttyUSB0?baud=921600", 921_600),
        ("serial:///dev/ttyUSB0", 115_200),
        ("tcp://192.0.2.7:7000", None),
    ],
)
def test_the_mesh_controller_is_told_the_rate_of_its_serial_line(
    monkeypatch: pytest.MonkeyPatch, address: str, baud: int | None
) -> None:
    seen: dict[str, object] = {}

    class Controller:
        def __init__(self, link: object, clock: object, **options: object) -> None:
            seen.update(options)

        def open(self) -> None:
            raise ConnectError("no hardware here")

    monkeypatch.setattr("lumion_hw.drivers.mesh.lumion.controller.LumionMeshController", Controller)
    clock = SystemClock()
    with pytest.raises(ConnectError):
        open_device("mesh0", MeshControllerModel(kind="lumion-mesh", serial="LM1"), open_link(address, clock), clock)
    assert seen.items() >= {"device": "mesh0", "expected_serial": "LM1", "baud": baud}.items()


@pytest.mark.parametrize(
    ("entry", "baud"),
    [
        ("kind: arroyo-tec", 38_400),
        ("kind: amonics-aedfa", 19_200),
        ("kind: oz-da100", 9_600),
        ("kind: oz-epc04", 9_600),
        ("kind: itla-laser", 9_600),
        ("kind: sfp-8472", 9_600),
        ("kind: cmis", 9_600),
        ("kind: novoptel-pm1000", 230_400),
        ("kind: thorlabs-mpc", 115_200),
        ("kind: thorlabs-pm", 115_200),
    ],
)
@pytest.mark.parametrize("asked", [None, 57_600])
def test_a_serial_address_without_a_rate_has_that_of_its_kind(
    tmp_path: Path, entry: str, baud: int, asked: int | None
) -> None:
    rate = "" if asked is None else f"?baud={asked}"
    file = tmp_path / "bench.yaml"
    file.write_text(f'version: 1\nname: b\ndevices:\n  it: {{{entry}, address: "serial:///dev/none-such{rate}"}}\n')
    with pytest.raises(ConnectError) as missing:
        Bench.open(file)
    assert missing.value.address == f"serial:///dev/none-such?baud={asked or baud}"


def test_every_kind_is_asked_at_the_rate_that_it_has() -> None:
    for kind in builtin_kinds():
        for query in kind.queries():
            assert not query.bauds or kind.baud in query.bauds, kind.name
