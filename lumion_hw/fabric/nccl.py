"""Set up NCCL for a job: rank order along the circuits, network interfaces, and the topology file of each server.

The rules are those of NCCL 2.30.7 (src/graph/xml.cc and topo.cc). They were not tried with NCCL itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from xml.etree import ElementTree

from lumion_hw.bench.file.model import BenchModel
from lumion_hw.circuits import CircuitRequest
from lumion_hw.errors import CircuitError, ConfigError
from lumion_hw.fabric.servers import FabricUnit, find_unit
from lumion_hw.files.own_files import CREATOR

MAX_SEARCH_STEPS = 100_000
"""Largest number of steps of the search for a ring."""
_MAX_ELEMENTS, _MAX_ATTRIBUTES, _MAX_CHARACTERS, _MAX_CHILDREN = 255, 16, 254, 640
"""Limits of NCCL's reader, per file, element, name or value, and element."""
_CHILDREN: Mapping[str, Collection[str]] = MappingProxyType(
    {
        "system": ("cpu",),
        "cpu": ("pci", "nic"),
        "pci": ("pci", "gpu", "nic", "pcilink"),
        "gpu": ("nvlink", "c2c"),
        "nic": ("net",),
    }
)
"""Elements that NCCL reads inside each element."""
_REQUIRED: Mapping[str, Collection[str]] = MappingProxyType(
    {
        "system": ("version",),
        "cpu": ("numaid", "arch"),
        "pci": ("busid", "class", "link_speed", "link_width"),
        "net": ("name",),
    }
)
"""Attributes without which NCCL refuses a file, or may not complete it in the same way on every rank."""
_VENDORS_WITH_MODEL = ("GenuineIntel", "CentaurHauls", "  Shanghai  ")
"""CPU vendors whose family and model NCCL needs; the last one has these spaces."""
_OF_THE_DUMP = ("rank", "keep", "host_hash", "mlopart")
"""Attributes that belong to the job that wrote the dump; NCCL sets them."""
_UNIQUE: Mapping[str, str] = MappingProxyType({"cpu": "numaid", "pci": "busid", "net": "name"})


@dataclass(frozen=True)
class NcclSetup:
    """Rank order of a job and the network interfaces that its circuits connect.

    Attributes:
        ranks: Servers or accelerators in rank order; neighbours, and the last and the first, have circuits.
        hosts: Server of each rank.
        interfaces: Network interfaces of each server that a circuit connects.
        is_rail: Whether every circuit connects ports of the same number.
    """

    job: str
    ranks: tuple[str, ...]
    hosts: tuple[str, ...]
    interfaces: Mapping[str, tuple[str, ...]]
    is_rail: bool

    @property
    def servers(self) -> tuple[str, ...]:
        """Servers in rank order, each one once."""
        return tuple(dict.fromkeys(self.hosts))

    def hostfile(self) -> str:
        """Return one line with the server of each rank, in rank order, for ``mpirun --hostfile``."""
        return f"# {CREATOR}\n" + "".join(f"{host}\n" for host in self.hosts)

    def environment(self, server: str, topology: Path | None = None) -> dict[str, str]:
        """Return the environment of the ranks on a server, with the path of its topology file there."""
        found = {} if topology is None else {"NCCL_TOPO_FILE": str(topology)}
        if self.interfaces[server]:
            found["NCCL_SOCKET_IFNAME"] = "=" + ",".join(self.interfaces[server])
        found["NCCL_CROSS_NIC"] = "0" if self.is_rail else "1"
        if len(self.servers) > 2:  # trees need connections between servers that are not neighbours
            found["NCCL_ALGO"] = "Ring"
        return found


def nccl_setup(model: BenchModel, job: str, members: Sequence[str], circuits: Collection[str]) -> NcclSetup:
    """Return the rank order of a job that follows its circuits, and the interfaces that they connect.

    Accelerators of one server get consecutive ranks.

    Args:
        model: The bench file; its servers need ``interfaces``.
        job: Name of the job.
        members: Servers or accelerators that serve the job, in the rank order of the bench file.
        circuits: Names of the circuits that are set up.

    Raises:
        CircuitError: No ring of circuits in both directions leads through all servers.
        ConfigError: A server has no interfaces, or a member does not exist.
    """
    units = [find_unit(model, name) for name in members]
    links = [link for link in _links(units, circuits) if link[0][0].server != link[1][0].server]
    servers = tuple(dict.fromkeys(unit.server for unit in units))
    pairs = {frozenset((first.server, second.server)) for (first, _), (second, _) in links}
    order = find_ring(servers, pairs)
    if order is None:
        raise _no_ring(job, servers, pairs)
    ranks = [unit for server in order for unit in units if unit.server == server]
    lit = {nic for ends in links for _, nic in ends}
    numbers = [tuple(find_unit(model, unit.server).nics.index(nic) for unit, nic in ends) for ends in links]
    return NcclSetup(
        job,
        ranks=tuple(unit.name for unit in ranks),
        hosts=tuple(unit.server for unit in ranks),
        interfaces={server: _interfaces(find_unit(model, server), lit) for server in order},
        is_rail=all(first == second for first, second in numbers),
    )


def find_ring(names: Sequence[str], pairs: Collection[frozenset[str]]) -> tuple[str, ...] | None:
    """Return the names in an order in which neighbours, and the last and the first, are a pair.

    The given order is kept as far as possible. ``None`` if there is no such order, or if the search for it needs more
    than ``MAX_SEARCH_STEPS`` steps. Two names need one pair, one name none.
    """
    path, choices = [names[0]], [iter(names)]
    for _ in range(MAX_SEARCH_STEPS):
        if len(path) == len(names) and (len(names) == 1 or frozenset((path[-1], path[0])) in pairs):
            return tuple(path)
        following = next(
            (name for name in choices[-1] if name not in path and frozenset((path[-1], name)) in pairs), None
        )
        if following is not None:
            path.append(following)
            choices.append(iter(names))
        else:
            path.pop()
            choices.pop()
            if not path:
                return None
    return None


def nccl_topology(dump: bytes, server: str, interfaces: Collection[str]) -> str:
    """Return the topology file of a server for one job, made from the topology that NCCL dumped there.

    Interfaces without a circuit are left out. The others lose their speed, so that NCCL reads it when the job starts:
    a dump that was written while a port had no light has a wrong one.

    Args:
        dump: File that NCCL wrote on this server with ``NCCL_TOPO_DUMP_FILE``.
        server: Name of the server.
        interfaces: Network interfaces that a circuit connects.

    Raises:
        ConfigError: NCCL would refuse or misread the file, or it does not have an interface.
    """
    try:
        if b"<!DOCTYPE" in dump:  # whose entities could fill the memory
            raise ValueError("it has a document type, which NCCL does not read")
        system = ElementTree.fromstring(dump)
    except (ElementTree.ParseError, ValueError) as error:
        raise ConfigError(f"the NCCL topology of {server} cannot be read: {error}") from error
    _check(system, server)
    nets = {net.get("name"): net for net in system.iter("net")}
    for name in interfaces:
        if name not in nets:
            raise ConfigError(
                f"the NCCL topology of {server} has no interface {name}; it has {', '.join(map(str, nets)) or 'none'}",
                hint="Write the names that NCCL uses to 'interfaces' of the server in the bench file.",
            )
    for parent in system.iter("nic"):
        for net in list(parent):
            if net.get("name") in interfaces:
                net.attrib.pop("speed", None)
            else:
                parent.remove(net)
    for element in system.iter():
        for attribute in _OF_THE_DUMP:
            element.attrib.pop(attribute, None)
    # The name tells the file from those of other programs.
    system.attrib = {"version": "1", "name": f"{CREATOR} {server}"}
    return "".join(_lines(system, ""))


def _links(
    units: Sequence[FabricUnit], circuits: Collection[str]
) -> list[tuple[tuple[FabricUnit, str], tuple[FabricUnit, str]]]:
    """Return the pairs of ports of different members with circuits in both directions."""
    ports = [(unit, nic) for unit in units for nic in unit.nics]
    return [
        (first, second)
        for number, first in enumerate(ports)
        for second in ports[number + 1 :]
        if first[0] is not second[0]
        and CircuitRequest(first[1], second[1]).name in circuits
        and CircuitRequest(second[1], first[1]).name in circuits
    ]


def _no_ring(job: str, servers: Sequence[str], pairs: Collection[frozenset[str]]) -> CircuitError:
    counts = Counter(name for pair in pairs for name in pair)
    worst = min(servers, key=lambda name: counts[name])
    return CircuitError(
        f"job {job}: found no ring of circuits in both directions through its {len(servers)} servers. {worst} has such "
        f"circuits to {counts[worst]} of them",
        hint="Give the job the topology ring, with two NICs per member, or add the missing links to its links and run "
        "`lumion fabric recover BENCH`. Otherwise use one NCCL communicator per pair of connected servers.",
    )


def _interfaces(server: FabricUnit, nics: Collection[str]) -> tuple[str, ...]:
    used = [nic for nic in server.nics if nic in nics]
    if used and not server.interfaces:
        raise ConfigError(
            f"the bench file does not name the network interfaces of {server.name}",
            hint="Add 'interfaces' to the server, one name per NIC, as NCCL names them.",
        )
    return tuple(server.interfaces[server.nics.index(nic)] for nic in used)


def _check(system: ElementTree.Element, server: str) -> None:
    """Check the elements and attributes of a topology file by the rules of NCCL's reader."""
    for problem in _problems(system):
        raise ConfigError(
            f"the NCCL topology of {server}: {problem}",
            hint="Write the file anew: run NCCL once on this server with NCCL_TOPO_DUMP_FILE.",
        )


def _problems(system: ElementTree.Element) -> Iterator[str]:
    if system.tag != "system" or system.get("version") != "1":
        yield "expected the element 'system' with version=\"1\" at the top"
        return
    elements = list(system.iter())
    if len(elements) > _MAX_ELEMENTS:
        yield f"{len(elements)} elements; NCCL reads at most {_MAX_ELEMENTS}"
    for element in elements:
        yield from _element_problems(element)
    for tag, key in _UNIQUE.items():
        for value, count in Counter(element.get(key) for element in system.iter(tag)).items():
            if count > 1:
                yield f"{count} elements '{tag}' with {key}=\"{value}\"; a file describes one server"


def _element_problems(element: ElementTree.Element) -> Iterator[str]:
    tag, attributes = element.tag, element.attrib
    required = [*_REQUIRED.get(tag, ())]
    if attributes.get("arch") == "x86_64":
        required.append("vendor")
    if tag == "cpu" and attributes.get("vendor") in _VENDORS_WITH_MODEL:
        required += ["familyid", "modelid"]
    for child in element:
        if child.tag not in _CHILDREN.get(tag, ()):
            yield f"'{child.tag}' in '{tag}', where NCCL ignores it"
    for name in required:
        if name not in attributes:
            yield f"'{tag}' without the attribute '{name}'"
    if len(attributes) > _MAX_ATTRIBUTES or len(element) > _MAX_CHILDREN:
        yield f"'{tag}' with {len(attributes)} attributes and {len(element)} elements, too many for NCCL"
    for name, value in attributes.items():
        if len(value.encode()) > _MAX_CHARACTERS or set(value) & set("<>&\"'\n\t"):
            yield f"a value of '{name}' that NCCL cannot read: {value[:40]!r}"


def _lines(element: ElementTree.Element, indent: str) -> Iterator[str]:
    """Write an element as NCCL does: it reads no XML declaration, no escapes, and no space before the end of a tag."""
    start = f"{indent}<{element.tag}" + "".join(f' {name}="{value}"' for name, value in element.attrib.items())
    if len(element) == 0:
        yield f"{start}/>\n"
        return
    yield f"{start}>\n"
    for child in element:
        yield from _lines(child, indent + "  ")
    yield f"{indent}</{element.tag}>\n"
