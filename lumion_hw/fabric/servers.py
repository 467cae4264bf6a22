"""Servers and accelerators, and the circuits that connect the members of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lumion_hw.bench.file.model import BenchModel, JobModel, ServerModel
from lumion_hw.circuits import CircuitRequest
from lumion_hw.errors import CircuitError, ConfigError, name_hint


@dataclass(frozen=True)
class FabricUnit:
    """What a spare can replace: a whole server, or one of its accelerators.

    Attributes:
        nics: Optical modules, in the order of the network ports (NICs).
        interfaces: Network interfaces, if the bench file names them.
        risks: Groups of servers that may fail together with this one: its risk groups and the server itself.
    """

    name: str
    server: str
    nics: tuple[str, ...]
    interfaces: tuple[str, ...]
    risks: frozenset[str]


def units(model: BenchModel) -> dict[str, FabricUnit]:
    """Return all servers and accelerators of a bench file by name."""
    result: dict[str, FabricUnit] = {}
    for server in model.servers:
        # Accelerators of one server fail together with it, so none of them is a spare for another.
        risks = server.risks | {f"server {server.name}"}
        named = dict(zip(server.nics, server.interfaces, strict=False))
        parts = [(server.name, server.nics), *((part.name, part.nics) for part in server.accelerators)]
        for name, nics in parts:
            result[name] = FabricUnit(name, server.name, nics, tuple(named[nic] for nic in nics if nic in named), risks)
    return result


def find_unit(model: BenchModel, name: str) -> FabricUnit:
    """Return a server or accelerator by name.

    Raises:
        ConfigError: The name is unknown.
    """
    all_units = units(model)
    if name not in all_units:
        raise ConfigError(f"there is no server {name!r}", hint=name_hint(name, all_units, "The servers are"))
    return all_units[name]


def server_of(model: BenchModel, transponder: str) -> ServerModel | None:
    """Return the server that contains a module, or ``None``."""
    return next((server for server in model.servers if transponder in server.nics), None)


def job_requests(model: BenchModel, job: JobModel, places: Mapping[str, str] | None = None) -> list[CircuitRequest]:
    """Return requests for the circuits that a job needs.

    The two members of a pair are connected NIC by NIC. In a ring, the last NIC of each member is connected to the first
    NIC of the next, in both directions; with one NIC per member, in one direction only. Links in a list use the next
    free NIC of both members.

    If a server or accelerator serves in the place of a member, ``places`` names it.

    Raises:
        ConfigError: A member does not exist, or has too few NICs.
    """
    members = [find_unit(model, (places or {}).get(name, name)) for name in job.members]
    if job.topology == "pair":
        return pair_requests(model, members[0].name, members[1].name)
    if job.topology == "ring":
        following = zip(members, [*members[1:], members[0]], strict=True)
        if all(len(member.nics) > 1 for member in members):
            return [request for first, second in following for request in _link(first.nics[-1], second.nics[0])]
        return [CircuitRequest(first.nics[0], second.nics[0]) for first, second in following]
    # Each NIC carries one link: links take them in the order in which the bench file lists both.
    free = {name: list(member.nics) for name, member in zip(job.members, members, strict=True)}
    requests: list[CircuitRequest] = []
    for first, second in job.links:
        if not (free[first] and free[second]):
            raise ConfigError(f"job {job.name}: {first} and {second} have too few NICs for all links")
        requests += _link(free[first].pop(0), free[second].pop(0))
    return requests


def pair_requests(model: BenchModel, first: str, second: str) -> list[CircuitRequest]:
    """Return the circuits that connect two servers NIC by NIC, in both directions.

    Raises:
        ConfigError: A server does not exist, or the two have different numbers of NICs.
    """
    first_unit, second_unit = find_unit(model, first), find_unit(model, second)
    if len(first_unit.nics) != len(second_unit.nics):
        raise ConfigError(
            f"{first} has {len(first_unit.nics)} NICs and {second} has {len(second_unit.nics)}; "
            "a pair needs equal numbers"
        )
    return [
        request
        for first_nic, second_nic in zip(first_unit.nics, second_unit.nics, strict=True)
        for request in _link(first_nic, second_nic)
    ]


def _link(first_nic: str, second_nic: str) -> tuple[CircuitRequest, CircuitRequest]:
    return CircuitRequest(first_nic, second_nic), CircuitRequest(second_nic, first_nic)


def replace_server(
    model: BenchModel, requests: Iterable[CircuitRequest], failed: str, spare: str
) -> list[CircuitRequest]:
    """Return the circuits with the failed server's NICs replaced by those of the spare.

    Raises:
        ConfigError: A server does not exist.
        CircuitError: The spare has too few NICs.
    """
    old, new = find_unit(model, failed).nics, find_unit(model, spare).nics
    requests = list(requests)
    # A spare with fewer modules will do if the missing ones carry no circuit.
    in_use = [nic for nic in old if any(nic in (request.source, request.target) for request in requests)]
    missing = [nic for nic in in_use if old.index(nic) >= len(new)]
    if missing:
        raise CircuitError(f"{spare} has {len(new)} NICs, too few to replace {', '.join(missing)}")
    replacement = {nic: new[old.index(nic)] for nic in in_use}
    return [CircuitRequest(replacement.get(r.source, r.source), replacement.get(r.target, r.target)) for r in requests]


def partners(model: BenchModel, requests: Iterable[CircuitRequest], server: str) -> list[str]:
    """Return the servers to which circuits connect one server, in the order of the circuits."""
    nics = set(find_unit(model, server).nics)
    names: list[str] = []
    for request in requests:
        ends = {request.source, request.target}
        if ends & nics:
            for end in ends - nics:
                other = server_of(model, end)
                if other is not None and other.name not in names:
                    names.append(other.name)
    return names


def requests_at(requests: Sequence[CircuitRequest], nics: Iterable[str]) -> list[CircuitRequest]:
    """Return the circuits that begin or end at one of the given modules."""
    own = set(nics)
    return [request for request in requests if {request.source, request.target} & own]
