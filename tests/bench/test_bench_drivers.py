"""What a driver is told when a bench opens it."""

from __future__ import annotations

import pytest

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
