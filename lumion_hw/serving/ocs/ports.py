"""Ports of the optical circuit switch: each end of a module that is wired to the mesh.

Names follow SONiC's OCS design (sonic-net/SONiC, doc/ocs/ocs_hld.md, revision 0.5): light enters at A-side ports such
as ``12A`` and leaves at B-side ports such as ``18B``, and ``12A-18B`` is a cross-connect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from lumion_hw.circuits import CircuitRequest
from lumion_hw.errors import ConfigError, name_hint
from lumion_hw.interfaces.wiring import Wiring

Side = Literal["A", "B"]


@dataclass(frozen=True)
class OcsPort:
    """One simplex port of the switch.

    Attributes:
        port_id: The lowest of its mesh ports and the side, such as ``12A``.
        module: Module, or lane of a module, behind the port.
        mesh_ports: Mesh ports; two for a module with two polarizations.
    """

    port_id: str
    side: Side
    module: str
    mesh_ports: tuple[int, ...]


class OcsPorts(Mapping[str, OcsPort]):
    """All ports of a bench by their id, in the order of the mesh ports."""

    def __init__(self, wiring: Wiring) -> None:
        ends: dict[tuple[Side, str], list[int]] = {}
        for path in wiring.inputs:
            if path.transponder is not None:
                ends.setdefault(("A", path.transponder), []).append(path.port)
        for output in wiring.outputs:
            if output.transponder is not None:
                ends.setdefault(("B", output.transponder), []).append(output.port)
        ports = [
            OcsPort(f"{min(numbers)}{side}", side, module, tuple(sorted(numbers)))
            for (side, module), numbers in ends.items()
        ]
        ports.sort(key=lambda port: (port.mesh_ports, port.side))
        self._ports = {port.port_id: port for port in ports}
        self._ids = {(port.side, port.module): port.port_id for port in ports}

    def __getitem__(self, port_id: str) -> OcsPort:
        return self._ports[port_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ports)

    def __len__(self) -> int:
        return len(self._ports)

    def of_side(self, side: Side) -> list[OcsPort]:
        """Return the ports of one side."""
        return [port for port in self.values() if port.side == side]

    def find(self, port_id: str, side: Side | None = None) -> OcsPort:
        """Return a port.

        Raises:
            ConfigError: No port has this id, or it is on the other side.
        """
        port = self._ports.get(port_id)
        if port is None:
            raise ConfigError(f"there is no port {port_id[:40]!r}", hint=name_hint(port_id, self, "The ports are"))
        if side not in (None, port.side):
            raise ConfigError(
                f"port {port_id} is on side {port.side}, not on side {side}",
                hint="A cross-connect goes from an A-side port, where light enters, to a B-side port.",
            )
        return port

    def name_of(self, request: CircuitRequest) -> str:
        """Return the cross-connect of a circuit."""
        return f"{self._ids['A', request.source]}-{self._ids['B', request.target]}"

    def ends_of(self, cross_connect: str) -> tuple[OcsPort, OcsPort]:
        """Return both ports of a cross-connect such as ``12A-18B``.

        Raises:
            ConfigError: The text is not a cross-connect of this switch.
        """
        a_side, dash, b_side = cross_connect.partition("-")
        if not (a_side and dash and b_side):
            raise ConfigError(
                f"{cross_connect[:40]!r} is not a cross-connect",
                hint="Write an A-side and a B-side port, such as 12A-18B.",
            )
        return self.find(a_side, "A"), self.find(b_side, "B")
