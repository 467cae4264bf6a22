"""Discovery of instruments: queries addresses and drafts the entries of a bench file.

Only addresses given by the user receive data, because an unexpected command can move an instrument. Serial ports are
listed without sending anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lumion_hw.bench.file.kind import DeviceKind, DiscoveryQuery
from lumion_hw.bench.file.known_kinds import all_kinds
from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import ConfigError, ConnectError, LinkLost, LumionError
from lumion_hw.links.address import open_link

SCPI_PORT = 5025
"""TCP port of SCPI instruments (IANA: scpi-raw)."""

# Recorded Qontrol chains took up to 0.27 s for their first byte. Each query without a reply takes this time.
_REPLY_TIMEOUT_S = 0.6
_QUIET_S = 0.08
_MAX_REPLY_BYTES = 4096


@dataclass(frozen=True)
class DiscoveredInstrument:
    """An instrument that has replied to a discovery query.

    Attributes:
        address: Address of the instrument, as in bench files.
        kind: Kind of the instrument in bench files; ``None`` if no driver is available.
        entry: Further keys for the entry in the bench file.
    """

    address: str
    identity: str
    kind: str | None
    entry: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DiscoveryProbe:
    """A discovery query and the function that interprets the reply.

    Attributes:
        identify: Returns the identity, kind and bench-file keys of the instrument that sent a reply; ``None`` if the
            bytes do not answer this query.
    """

    query: DiscoveryQuery
    identify: Callable[[bytes], tuple[str, str | None, dict[str, Any]] | None]


def discovery_probes(kinds: Sequence[DeviceKind]) -> list[DiscoveryProbe]:
    """Return the discovery queries of the given kinds, in the order in which they are sent.

    Within each group, lower baud rates come first.
    """
    # *IDN? comes first: most instruments know it, and most others ignore a line of text.
    scpi = DiscoveryQuery("SCPI instrument (*IDN?)", (9600, 115200), b"*IDN?\r\n", _scpi_identity)
    probes = [DiscoveryProbe(query, partial(_identify, kind, query)) for kind in kinds for query in kind.queries()]
    probes.sort(key=lambda probe: (*_rank(probe.query.request), min(probe.query.bauds, default=0)))
    return [DiscoveryProbe(scpi, partial(_identify_scpi, kinds)), *probes]


def _rank(request: bytes) -> tuple[bool, bool]:
    return not (request.isascii() and request.endswith(b"\n")), request.startswith(b"\0")


def _identify(kind: DeviceKind, query: DiscoveryQuery, reply: bytes) -> tuple[str, str, dict[str, Any]] | None:
    result = query.identify(reply)
    return None if result is None else (result[0], kind.name, result[1])


def _scpi_identity(reply: bytes) -> tuple[str, dict[str, Any]] | None:
    """Return the text, vendor, model and serial number of a reply to ``*IDN?``, or ``None`` if it is another reply."""
    text = reply.decode("ascii", "replace").strip()
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 4 or "\n" in text or not all(part.isprintable() for part in parts) or not parts[1]:
        return None
    return text, {"vendor": parts[0], "model": parts[1], "serial": parts[2]}


def _identify_scpi(kinds: Sequence[DeviceKind], reply: bytes) -> tuple[str, str | None, dict[str, Any]] | None:
    result = _scpi_identity(reply)
    if result is None:
        return None
    text, identity = result
    for kind in kinds:
        if kind.scpi is not None and kind.scpi.fits(identity["vendor"], identity["model"]):
            entry = {"model": identity["model"].upper()} if kind.scpi.names_model else {}
            serial = {"serial": identity["serial"]} if identity["serial"] not in ("", "0") else {}
            return text, kind.name, entry | serial
    return text, None, {}


def discover(addresses: Sequence[str], clock: Clock) -> tuple[list[DiscoveredInstrument], dict[str, LumionError]]:
    """Query all given hosts, serial ports and VISA resources for instruments.

    Args:
        addresses: ``tcp://host`` (SCPI port), ``tcp://host:port``, ``serial://port`` (tries the usual baud rates),
            ``serial://port?baud=...`` or ``visa://RESOURCE``.
        clock: A wall clock.

    Returns: The instruments found, in the order of ``addresses``, and the errors of addresses that could not be
        reached. An address that was reached but did not reply is in neither list.

    Raises:
        ConfigError: An entry of ``addresses`` is not a valid address.
    """
    instruments: list[DiscoveredInstrument] = []
    failures: dict[str, LumionError] = {}
    probes = discovery_probes(all_kinds()[0])
    for address in addresses:
        try:
            instrument = _query(address, clock, probes)
        except ConnectError as error:
            failures[address] = error
            continue
        if instrument is not None:
            instruments.append(instrument)
    return instruments, failures


def _query(target: str, clock: Clock, probes: Sequence[DiscoveryProbe]) -> DiscoveredInstrument | None:
    scheme, _, location = target.partition("://")
    # An IPv6 address in brackets contains colons that do not precede a port.
    if scheme == "tcp" and ":" not in location.rpartition("]")[2]:
        target = f"{target}:{SCPI_PORT}"
    for probe in probes[:1] if scheme == "visa" else probes:  # only *IDN? for VISA resources
        rates = probe.query.bauds if scheme == "serial" and "?" not in location else (None,)
        for address in (target if rate is None else f"{target}?baud={rate}" for rate in rates):
            result = probe.identify(_exchange(address, probe.query.request, clock))
            if result is not None:
                return DiscoveredInstrument(address, *result)
    return None


def _exchange(address: str, request: bytes, clock: Clock) -> bytes:
    """Send a request over a new link; return all bytes received until the line is quiet or closed."""
    # A new link for every query, because closing it discards the remains of a wrong query in the instrument's input.
    link = open_link(address, clock)
    link.open(Deadline(clock.now() + 3.0))
    reply, until = b"", Deadline(clock.now() + _REPLY_TIMEOUT_S)
    try:
        with contextlib.suppress(LinkLost):
            link.write(request, Deadline(clock.now() + 1.0))
            while clock.now() < until and len(reply) < _MAX_REPLY_BYTES:
                data = link.read(until)
                reply += data
                if data:
                    until = Deadline(min(until, clock.now() + _QUIET_S))
        return reply
    finally:
        link.close()


def serial_ports() -> list[tuple[str, str]]:
    """Return the serial ports of this computer with their USB descriptions; no port is opened."""
    from serial.tools import list_ports

    return [(port.device, port.description) for port in sorted(list_ports.comports())]


def visa_resources() -> list[str]:
    """Return the VISA resources of this computer; no instrument is queried.

    Raises:
        ConfigError: No VISA backend is available.
    """
    import pyvisa

    try:
        return list(pyvisa.ResourceManager("@py").list_resources("?*::INSTR"))
    except (pyvisa.Error, ValueError, OSError) as error:
        raise ConfigError(f"cannot list the VISA resources: {error}", hint="Check the VISA installation.") from error


def draft_bench_file(instruments: Iterable[DiscoveredInstrument]) -> str:
    """Return the text of a bench file with the given instruments; the user must add mesh and wiring."""
    import yaml

    supported = [item for item in instruments if item.kind is not None]
    counts: dict[str, int] = {}
    devices: dict[str, dict[str, Any]] = {}
    for item in supported:
        number = counts.setdefault(str(item.kind), 0)
        counts[str(item.kind)] += 1
        devices[f"{item.kind}-{number}"] = {"kind": item.kind, "address": item.address, **item.entry}
    text = yaml.safe_dump({"version": 1, "name": "my-bench", "devices": devices}, sort_keys=False, allow_unicode=True)
    return (
        text + "# Add the sections mesh, wiring and servers (docs/bench-file.md).\n"
        "# `lumion bench check` lists what is missing.\n"
    )
