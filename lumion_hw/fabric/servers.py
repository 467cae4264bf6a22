"""Which circuits join which servers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lumion_hw.bench.model import BenchModel, ServerModel
from lumion_hw.circuits import CircuitRequest
from lumion_hw.errors import CircuitError, ConfigError


def server_of(model: BenchModel, transponder: str) -> ServerModel | None:
    """Return the server a module sits in, ``None`` if it sits in none."""
    return next((server for server in model.servers if transponder in server.nics), None)


def find_server(model: BenchModel, name: str) -> ServerModel:
    """Return a server by name. Raises ``ConfigError`` naming those there are."""
    for server in model.servers:
        if server.name == name:
            return server
    raise ConfigError(
        f"there is no server {name!r}", hint=f"Servers: {', '.join(server.name for server in model.servers)}."
    )


def pair_requests(model: BenchModel, first: str, second: str) -> list[CircuitRequest]:
    """Return the circuits that join two servers, NIC by NIC, both directions.

    Raises:
        ConfigError: No such server, or the two have different numbers of NICs.
    """
    one, other = find_server(model, first), find_server(model, second)
    if len(one.nics) != len(other.nics):
        raise ConfigError(f"{first} has {len(one.nics)} NICs and {second} has {len(other.nics)}")
    requests = []
    for near, far in zip(one.nics, other.nics, strict=True):
        requests += [CircuitRequest(near, far), CircuitRequest(far, near)]
    return requests


def substituted(model: BenchModel, requests: Sequence[CircuitRequest], failed: str, spare: str) -> list[CircuitRequest]:
    """Return the circuits with a spare in the place of a failed server, NIC by NIC; the others as they are.

    Raises:
        ConfigError: No such server.
        CircuitError: The spare has too few NICs.
    """
    old, new = find_server(model, failed).nics, find_server(model, spare).nics
    in_use = [nic for nic in old if any(nic in (request.source, request.target) for request in requests)]
    missing = [nic for nic in in_use if old.index(nic) >= len(new)]
    if missing:
        raise CircuitError(f"{spare} has {len(new)} NICs, too few to take the place of {', '.join(missing)}")
    place = {nic: new[old.index(nic)] for nic in in_use}
    return [CircuitRequest(place.get(r.source, r.source), place.get(r.target, r.target)) for r in requests]


def partners(model: BenchModel, requests: Iterable[CircuitRequest], server: str) -> list[str]:
    """Return the servers that circuits join to one server, in order of appearance."""
    nics = set(find_server(model, server).nics)
    found: list[str] = []
    for request in requests:
        ends = {request.source, request.target}
        if ends & nics:
            for end in ends - nics:
                other = server_of(model, end)
                if other is not None and other.name not in found:
                    found.append(other.name)
    return found
