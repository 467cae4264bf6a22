"""``smartlight-line-server``: the control server of the SmartLight prototype (text lines over TCP)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from lumion_hw.bench.file.checks import BenchData, Check, Path, is_index
from lumion_hw.bench.file.devices import DeviceModel
from lumion_hw.bench.file.fields import WholeNumber
from lumion_hw.bench.file.kind import DeviceKind
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.mesh.line_server import LineServer
    from lumion_hw.interfaces import MeshStates

_N_PUCS = 72


class LineServerModel(DeviceModel):
    """The control server of the SmartLight prototype (text lines), which sets the states of PUCs.

    The mesh can be set, but not calibrated or used for circuits.
    """

    kind: Literal["smartlight-line-server"]
    n_pucs: WholeNumber = Field(_N_PUCS, ge=1, le=_N_PUCS, description="Number of PUCs, numbered from 0.")

    @field_validator("address")
    @classmethod
    def _on_tcp(cls, address: str | None) -> str | None:
        if address is not None and not address.startswith("tcp://"):
            raise ValueError(f"expected an address of the form tcp://host:65432, found {address!r}")
        return address


def _check(bench: BenchData, name: str) -> Iterator[Check]:
    if bench.mesh.get("controller") != name:
        return
    for key, missing in (("monitor_ports", "photodiodes"), ("heater_channels", "drive channels")):
        if key in bench.mesh:
            message = f"expected no {key}: {name!r} is of kind smartlight-line-server, which has no {missing}"
            yield Check(("mesh", key), message, ("devices", name), on_key=True)
    mesh, device = bench.topology(), bench.devices[name]
    n_pucs = device.get("n_pucs", _N_PUCS)
    if mesh is not None and is_index(n_pucs) and n_pucs != mesh.n_pucs:
        path: Path = ("devices", name, "n_pucs") if "n_pucs" in device else ("mesh", "controller")
        yield Check(path, f"expected the {mesh.n_pucs} PUCs of the mesh, found {n_pucs}")


def _open(name: str, model: LineServerModel, link: Link, clock: Clock) -> MeshStates:
    from lumion_hw.drivers.mesh.line_server import LineServerMesh

    return LineServerMesh(lambda: link, clock, device=name, n_pucs=model.n_pucs)


def _emulate(bench: EmulatedBench, name: str, _model: LineServerModel) -> LineServer:
    from lumion_hw.emulator.mesh.line_server import LineServer
    from lumion_hw.emulator.mesh.photonic_unit import unit_currents_ma

    def apply(states: dict[int, str]) -> None:
        if name in bench.spec.controllers:
            bench.world.drive_heaters(unit_currents_ma(bench.world.truth, states), bench.clock.now())

    server = LineServer(name, bench.clock, apply_states=apply)
    bench.world.before_reading.append(server.advance)
    return server


KIND = DeviceKind(
    title="control server of the SmartLight prototype",
    role=Role.MESH_STATES,
    model=LineServerModel,
    open=_open,
    emulate=_emulate,
    check=_check,
)
