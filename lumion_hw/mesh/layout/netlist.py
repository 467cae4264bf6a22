"""Meshes from gdsfactory netlists: instances become cells, waveguides become joints, outside ports become mesh ports.

Port names determine how cells are joined; positions only determine where heaters lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.cells import CELL_KINDS
from lumion_hw.mesh.layout.circuit import Circuit, CircuitInstance, Pin, flat_circuit
from lumion_hw.mesh.layout.components import (
    COMPONENTS,
    ELECTRICAL,
    FIBRE,
    KINDS,
    MZI,
    TERMINATION,
    WAVEGUIDE,
    Component,
    PortFamily,
    cell_kind,
    find_component,
    is_electrical,
    length_um,
    port_families,
)
from lumion_hw.mesh.layout.documents import check_graph, graph_entries, read_integers, read_numbers
from lumion_hw.mesh.layout.placing import placed_corners
from lumion_hw.mesh.layout.topology import MeshTopology, TopologyKind

NETLIST_NAME = "netlist"
"""Name of the topology in bench files and documents."""

_MAX_CELLS = 10_000


@dataclass(frozen=True, eq=False, repr=False)
class NetlistMesh(MeshTopology):
    """An immutable mesh that a netlist describes.

    The first ports are the outside ports of the netlist, then other couplers to fibres. Ports with higher numbers are
    ends of unused waveguides.

    Attributes:
        kinds: Kind of every cell.
        instances: Name of the instance of each cell.
        port_names: Name of every port with a fibre.
        places: Position of each PUC-port in PUC lengths, shape ``(4 n_pucs, 2)``.
        lengths_um: Length of every joint (waveguide between cells), shape ``(n_joints,)``; 0 if unknown.
    """

    topology = NETLIST_NAME

    kinds: tuple[str, ...]
    instances: tuple[str, ...]
    port_names: tuple[str, ...]
    places: NDArray[np.float64]
    lengths_um: NDArray[np.float64]

    @property
    def cell_kinds(self) -> tuple[str, ...]:
        """Kind of every cell."""
        return self.kinds

    @property
    def cell_names(self) -> tuple[str, ...]:
        """Name of the instance of each cell."""
        return self.instances

    @property
    def corners(self) -> NDArray[np.float64]:
        """Position of every PUC-port in PUC lengths, shape ``(4 n_pucs, 2)``."""
        return self.places

    @cached_property
    def drawing_mesh(self) -> MeshTopology:
        """Copy of the mesh for a picture, with the cells moved apart."""
        fibres = self.port_puc_port[: len(self.fibre_ports)].tolist()
        return replace(self, places=placed_corners([None] * self.n_pucs, self.mate, fibres))

    def port_name(self, port: int) -> str:
        """Return the name of a port in the netlist."""
        if port < len(self.port_names):
            return self.port_names[port]
        cell, _, end = super().port_name(port).partition(".")
        return f"{self.instances[int(cell)]}.{end}"

    def to_dict(self) -> dict[str, Any]:
        """Return the mesh as plain numbers, strings and lists, ready for JSON."""
        return graph_entries(self) | {
            "kinds": list(self.kinds),
            "instances": list(self.instances),
            "port_names": list(self.port_names),
            "corners": self.places.tolist(),
            "lengths_um": self.lengths_um.tolist(),
        }


def read_netlist(text: str, name: str, cells: Mapping[str, str] | None = None, top: str | None = None) -> NetlistMesh:
    """Return the mesh that a netlist of gdsfactory or SAX describes.

    Args:
        text: The netlist in YAML or JSON, of one component or of several.
        name: Name of the netlist, for messages and the label of the mesh.
        cells: Kind (:data:`~lumion_hw.mesh.layout.components.KINDS`) by component or instance; overrides the table of
            known components.
        top: Component to read if the text has several; by default the first.

    Raises:
        ConfigError: The netlist is invalid or not a mesh; the message names the instance and the port.
    """
    # Reading takes long, and equal meshes as one object keep all that is cached on a mesh.
    return _read_cached(text, name, tuple(sorted((cells or {}).items())), top)


@lru_cache(maxsize=8)
def _read_cached(text: str, name: str, cells: tuple[tuple[str, str], ...], top: str | None) -> NetlistMesh:
    given = dict(cells)
    for key, kind in given.items():
        if kind not in KINDS:
            raise ConfigError(f"cells: {key!r} has unknown kind {kind!r}", hint=f"Kinds are {', '.join(KINDS)}.")

    def is_known(instance: str, component: str) -> bool:
        return find_component(instance, component, given) is not None

    circuit = flat_circuit(text, name, is_known, top)
    return _Builder(circuit, given).build()


@dataclass(frozen=True)
class _Part:
    """An instance, with its component and its kind.

    Attributes:
        kind: Kind of the cell, or ``waveguide``, ``fibre`` or ``termination``.
        used: Optical ports of the instance that the netlist mentions.
        ports: Names of all optical ports of a cell, each with its PUC-port.
        cell: Number of the cell, or -1.
    """

    instance: CircuitInstance
    component: Component
    kind: str
    used: Sequence[str]
    ports: PortFamily
    cell: int = -1


class _Builder:
    """Converts a flat circuit into a mesh of cells that waveguides join."""

    def __init__(self, circuit: Circuit, cells: Mapping[str, str]) -> None:
        self._circuit = circuit
        self._components = {
            name: find_component(name, entry.component, cells) for name, entry in circuit.instances.items()
        }
        self._partner: dict[Pin, Pin] = {}
        self._outside: dict[Pin, str] = {}
        self._check_pins()
        self._join()
        self._parts: dict[str, _Part] = {}
        self._classify()
        # Port number by pin; couplers to fibres count by their instance.
        self._ports: list[str] = []
        self._port_of: dict[Pin, int] = {}
        self._number_ports()

    def build(self) -> NetlistMesh:
        """Return the mesh. Raises ``ConfigError`` for fewer than two or too many cells, and for separate parts."""
        parts = [part for part in self._parts.values() if part.cell >= 0]
        if not parts:
            raise self._circuit.error("the netlist has no cell with a coupler or heater", "Check the key 'instances'.")
        if len(parts) == 1:
            raise self._circuit.error(
                f"{parts[0].instance.name!r} is the only cell; a mesh needs at least two cells that are joined",
                "Check whether 'cells' calls other cells a waveguide.",
                parts[0].instance,
            )
        if len(parts) > _MAX_CELLS:
            raise self._circuit.error(
                f"the netlist has {len(parts)} cells; at most {_MAX_CELLS} are supported", "Split the chip into parts."
            )
        mate = np.full(4 * len(parts), -1, dtype=np.int64)
        lengths: dict[int, float] = {}
        open_at: dict[int, int] = {}
        for part in parts:
            for port, puc_port in part.ports.items():
                own_port = 4 * part.cell + puc_port
                end, length = self._follow((part.instance.name, port))
                if isinstance(end, str):
                    continue  # a termination
                if end < 0:
                    open_at[-1 - end] = own_port
                else:
                    mate[own_port] = end
                    lengths[min(own_port, end)] = length
        self._check_ports(open_at)
        self._check_connected(parts, mate)
        fibres = [open_at[port] for port in range(len(self._ports))]
        open_ports = sorted(set(np.flatnonzero(mate < 0).tolist()) - set(fibres))
        kinds = tuple(part.kind for part in parts)
        first = np.flatnonzero(mate > np.arange(len(mate)))
        return NetlistMesh(
            label=f"{NETLIST_NAME} {self._circuit.name}",
            mate=mate,
            port_puc_port=np.array([*fibres, *open_ports], dtype=np.int64),
            fibre_ports=tuple(range(len(fibres))),
            kinds=kinds,
            instances=tuple(part.instance.name for part in parts),
            port_names=tuple(self._ports),
            places=placed_corners([_placed(part) for part in parts], mate, fibres),
            lengths_um=np.array([lengths[puc_port] for puc_port in first.tolist()]),
        )

    def _is_optical(self, pin: Pin) -> bool:
        component = self._components[pin[0]]
        return not is_electrical(pin[1]) and (component is None or component.kind != ELECTRICAL)

    def _check_pins(self) -> None:
        joined = [pin for joint in self._circuit.joints for pin in joint]
        for pin in (*joined, *(pin for _, pin in self._circuit.ports)):
            if pin[0] not in self._circuit.instances:
                raise self._circuit.error(
                    f"port {_text(pin)!r} belongs to no instance", f"Correct the name {pin[0]!r}.", pin
                )

    def _join(self) -> None:
        for first, second in self._circuit.joints:
            if not (self._is_optical(first) and self._is_optical(second)):
                continue
            if first == second:
                raise self._circuit.error(f"port {_text(first)!r} is joined to itself", "Correct the joint.", first)
            for pin, other in ((first, second), (second, first)):
                if self._partner.get(pin, other) != other:
                    raise self._circuit.error(
                        f"port {_text(pin)!r} has two joints, to {_text(self._partner[pin])!r} and {_text(other)!r}",
                        "A waveguide has two ends; remove one joint.",
                        other,
                    )
                self._partner[pin] = other
        for name, pin in self._circuit.ports:
            if not self._is_optical(pin):
                continue
            if pin in self._partner:
                raise self._circuit.error(
                    f"outside port {name!r} is {_text(pin)!r}, which is joined to {_text(self._partner[pin])!r}",
                    "Remove the joint or the outside port.",
                    pin,
                )
            if pin in self._outside:
                raise self._circuit.error(
                    f"outside ports {self._outside[pin]!r} and {name!r} are both {_text(pin)!r}", "Remove one.", pin
                )
            self._outside[pin] = name

    def _classify(self) -> None:
        used: dict[str, list[str]] = {name: [] for name in self._circuit.instances}
        for instance_name, port in (*self._partner, *self._outside):
            used[instance_name].append(port)
        cells = 0
        for instance in self._circuit.instances.values():
            names = used[instance.name]
            component = self._components[instance.name]
            if component is None and names:
                raise self._unknown(instance, instance.component)
            if component is None or component.kind == ELECTRICAL or (component.kind not in _CELLS and not names):
                continue
            kind = cell_kind(component, instance.component, instance.settings)
            if kind is None:
                raise self._unknown(instance, f"{instance.component} with arms of unknown components")
            is_cell = kind in CELL_KINDS
            ports = self._port_family(instance, component, kind, names) if is_cell else {}
            part = _Part(instance, component, kind, names, ports, cells if is_cell else -1)
            self._check_waveguide(part)
            self._parts[instance.name] = part
            cells += is_cell

    def _unknown(self, instance: CircuitInstance, component: str) -> ConfigError:
        patterns = ", ".join(dict.fromkeys(entry.pattern for entry in COMPONENTS))
        return self._circuit.error(
            f"instance {instance.name!r} is of the unknown component {component!r}",
            f"Say what it is in 'cells', such as {{{instance.component}: upper-arm}}, with one of {', '.join(KINDS)}. "
            f"Known components are {patterns}.",
            instance,
        )

    def _port_family(
        self, instance: CircuitInstance, component: Component, kind: str, used: Sequence[str]
    ) -> PortFamily:
        """Return the set of port names that fits the joints of a cell best."""
        families = port_families(component, kind, instance.component, instance.settings)
        # Ties go to the first family, the names of gdsfactory.
        family = max(families, key=lambda family: len(family.keys() & set(used)))
        if unknown_ports := [port for port in used if port not in family]:
            raise self._circuit.error(
                f"instance {instance.name!r} ({instance.component}) has no port {unknown_ports[0]!r}",
                f"Its ports are {', '.join(family)}.",
                (instance.name, unknown_ports[0]),
            )
        return family

    def _check_waveguide(self, part: _Part) -> None:
        max_ports = {WAVEGUIDE: (2, 2), FIBRE: (1, 2), TERMINATION: (1, 1)}.get(part.kind)
        if max_ports is None or max_ports[0] <= len(part.used) <= max_ports[1]:
            return
        named = ", ".join(map(repr, part.used))
        name, component = part.instance.name, part.instance.component
        if part.kind == WAVEGUIDE and len(part.used) == 1:
            raise self._dangling((name, "its other port"))
        raise self._circuit.error(
            f"instance {name!r} ({component}) is a {part.kind} with {max_ports[1]} port{'s' * (max_ports[1] > 1)}, "
            f"but ports {named} are used",
            "Say in 'cells' what it is.",
            part.instance,
        )

    def _dangling(self, pin: Pin) -> ConfigError:
        instance = self._circuit.instances[pin[0]]
        port = pin[1] if pin[1].startswith("its") else f"port {pin[1]!r}"
        return self._circuit.error(
            f"instance {pin[0]!r} ({instance.component}): {port} is not joined",
            "Join it, name it in 'ports', or join a terminator to it.",
            instance,
        )

    def _number_ports(self) -> None:
        for pin, name in self._outside.items():
            self._port_of[self._port_pin(pin)] = len(self._ports)
            self._ports.append(name)
        for part in self._parts.values():
            pin = part.instance.name, ""
            if part.kind == FIBRE and pin not in self._port_of:
                self._port_of[pin] = len(self._ports)
                self._ports.append(part.instance.name)
        if not self._ports:
            raise self._circuit.error("the netlist has no outside port", "Name the ports of the chip in 'ports'.")

    def _port_pin(self, pin: Pin) -> Pin:
        return (pin[0], "") if self._parts[pin[0]].kind == FIBRE else pin

    def _follow(self, start: Pin) -> tuple[int | str, float]:
        """Follow a waveguide from a port of a cell to its other end.

        Returns:
            The PUC-port at the other end, ``-1 - port`` for a mesh port, or the name of a termination; and the length
                in µm.
        """
        # This ends: every pin has one partner, so a walk that begins at a cell cannot enter a ring of waveguides.
        pin, length = start, 0.0
        while True:
            if pin in self._port_of:
                return -1 - self._port_of[pin], length
            if pin not in self._partner:
                raise self._dangling(pin)
            name, port = self._partner[pin]
            part = self._parts[name]
            if part.kind == TERMINATION:
                return name, length
            if part.kind == FIBRE:
                return -1 - self._port_of[name, ""], length
            if part.cell >= 0:
                return 4 * part.cell + part.ports[port], length
            length += length_um(part.component, part.instance.settings)
            pin = name, part.used[1 - part.used.index(port)]

    def _check_ports(self, open_at: Mapping[int, int]) -> None:
        for port, name in enumerate(self._ports):
            if port not in open_at:
                raise self._circuit.error(
                    f"no cell is behind outside port {name!r}", "Remove this port and its waveguides from the netlist."
                )

    def _check_connected(self, parts: Sequence[_Part], mate: NDArray[np.int64]) -> None:
        group = list(range(len(parts)))

        def root(cell: int) -> int:
            while group[cell] != cell:
                group[cell] = cell = group[group[cell]]
            return cell

        for puc_port in np.flatnonzero(mate >= 0).tolist():
            group[root(puc_port // 4)] = root(int(mate[puc_port]) // 4)
        members: dict[int, list[str]] = {}
        for part in parts:
            members.setdefault(root(part.cell), []).append(part.instance.name)
        if len(members) > 1:
            smallest = min(members.values(), key=len)
            member_names = ", ".join(map(repr, smallest[:5])) + (
                f" and {len(smallest) - 5} others" if len(smallest) > 5 else ""
            )
            raise self._circuit.error(
                f"no waveguide joins {member_names} to the other cells",
                "Remove them from the netlist: one netlist describes one mesh.",
                self._circuit.instances[smallest[0]],
            )


_CELLS = frozenset(CELL_KINDS) | {MZI}


def _placed(part: _Part) -> tuple[complex, complex] | None:
    transform = part.instance.place
    if transform is None:
        return None
    start = part.component.start_um
    # Every cell needs a direction: with both ends at one point, the distances of its heaters would be undefined.
    end = start + max(length_um(part.component, part.instance.settings), 1.0)
    return transform.apply(complex(start)), transform.apply(complex(end))


def _text(pin: Pin) -> str:
    return f"{pin[0]},{pin[1]}"


def _read(document: Mapping[str, Any]) -> NetlistMesh:
    names = {key: document.get(key) for key in ("label", "kinds", "instances", "port_names")}
    for key, value in names.items():
        expected = [value] if key == "label" else value
        if not isinstance(expected, list) or not all(isinstance(item, str) for item in expected):
            raise ConfigError(f"entry {key!r} of the mesh document is missing or does not contain names")
    kinds = [str(kind) for kind in names["kinds"] or ()]
    if unknown := [kind for kind in kinds if kind not in CELL_KINDS]:
        raise ConfigError(f"unknown kind of cell {unknown[0]!r}", hint=f"Use one of {', '.join(CELL_KINDS)}.")
    mesh = NetlistMesh(
        label=str(names["label"]),
        mate=read_integers(document, "mate"),
        port_puc_port=read_integers(document, "port_puc_port"),
        fibre_ports=tuple(read_integers(document, "fibre_ports").tolist()),
        kinds=tuple(kinds),
        instances=tuple(names["instances"] or ()),
        port_names=tuple(names["port_names"] or ()),
        places=read_numbers(document, "corners", columns=2),
        lengths_um=read_numbers(document, "lengths_um"),
    )
    sizes = [len(mesh.mate), len(mesh.places), 4 * len(mesh.kinds), 4 * len(mesh.instances)]
    if len(set(sizes)) > 1 or not kinds or len(mesh.port_names) != len(mesh.fibre_ports):
        raise ConfigError("the entries of the mesh document have different lengths")
    if not np.isfinite(mesh.places).all() or not np.isfinite(mesh.lengths_um).all():
        raise ConfigError("'corners' or 'lengths_um' of the mesh document holds numbers that are not finite")
    check_graph(mesh, document)
    if len(mesh.lengths_um) != len(mesh.joints):
        raise ConfigError("'lengths_um' of the mesh document must have one number for every joint")
    return mesh


NETLIST = TopologyKind(NETLIST_NAME, {}, _read)
