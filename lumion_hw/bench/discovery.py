"""Finding instruments: ask what answers at places the user has named, and draft the entries of a bench file.

Nobody is written to unasked: some instruments move, or arm, on a stray line. Serial ports that nobody named are listed
with what the USB descriptor says of them, and left alone.
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
"""Where SCPI instruments listen (IANA: scpi-raw)."""

# Recorded Qontrol chains took up to 0.27 s for their first byte; every question at every place costs this much.
_ANSWER_S = 0.6
_QUIET_S = 0.08
_LONGEST = 4096


@dataclass(frozen=True)
class FoundInstrument:
    """Something that answered.

    Attributes:
        address: Where, as a bench file writes it.
        identity: What it said of itself.
        kind: Kind of the bench file, ``None`` if this package has no driver for it.
        entry: Keys of its entry in a bench file besides kind and address.
    """

    address: str
    identity: str
    kind: str | None
    entry: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Inquiry:
    """A question to any device, and what its answer tells.

    Attributes:
        question: What is asked; its own reading of an answer does not tell the kind.
        recognise: Returns identity, kind and entry of what gave an answer; ``None`` if it is no answer to it.
    """

    question: DiscoveryQuery
    recognise: Callable[[bytes], tuple[str, str | None, dict[str, Any]] | None]


def inquiries(kinds: Sequence[DeviceKind]) -> list[Inquiry]:
    """Return what to ask, in this order.

    What is no line of text comes after all lines, for it would stay in the input of whoever reads lines, and last what
    begins with the byte that ends frames. Slow lines come first.
    """
    # First of all, since most instruments know it, and most others pass over a line of text.
    scpi = DiscoveryQuery("SCPI instrument (*IDN?)", (9600, 115200), b"*IDN?\r\n", _scpi_identity)
    own = [Inquiry(question, partial(_recognise, kind, question)) for kind in kinds for question in kind.questions()]
    own.sort(key=lambda each: (*_rank(each.question.asked), min(each.question.bauds, default=0)))
    return [Inquiry(scpi, partial(_recognise_scpi, kinds)), *own]


def _rank(asked: bytes) -> tuple[bool, bool]:
    return not (asked.isascii() and asked.endswith(b"\n")), asked.startswith(b"\0")


def _recognise(kind: DeviceKind, question: DiscoveryQuery, answer: bytes) -> tuple[str, str, dict[str, Any]] | None:
    told = question.recognise(answer)
    return None if told is None else (told[0], kind.name, told[1])


def _scpi_identity(answer: bytes) -> tuple[str, dict[str, Any]] | None:
    """Return the answer to ``*IDN?`` as text, and vendor, model and serial number in it."""
    text = answer.decode("ascii", "replace").strip()
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 4 or "\n" in text or not all(part.isprintable() for part in parts) or not parts[1]:
        return None
    return text, {"vendor": parts[0], "model": parts[1], "serial": parts[2]}


def _recognise_scpi(kinds: Sequence[DeviceKind], answer: bytes) -> tuple[str, str | None, dict[str, Any]] | None:
    told = _scpi_identity(answer)
    if told is None:
        return None
    text, said = told
    for kind in kinds:
        if kind.scpi is not None and kind.scpi.fits(said["vendor"], said["model"]):
            entry = {"model": said["model"].upper()} if kind.scpi.names_model else {}
            return text, kind.name, entry | ({"serial": said["serial"]} if said["serial"] not in ("", "0") else {})
    return text, None, {}


def discover(places: Sequence[str], clock: Clock) -> tuple[list[FoundInstrument], dict[str, LumionError]]:
    """Ask at every place what is there.

    Args:
        places: ``tcp://host`` (SCPI port) or ``tcp://host:port``, ``serial://port`` (every rate a question knows) or
            ``serial://port?baud=...``, ``visa://RESOURCE``.
        clock: A wall clock.

    Returns:
        What was found, in the order of the places, and by place why a place could not be reached. A place that was
        reached and stayed silent is in neither.

    Raises:
        ConfigError: A place is no address.
    """
    found: list[FoundInstrument] = []
    failures: dict[str, LumionError] = {}
    asked = inquiries(all_kinds()[0])
    for place in places:
        try:
            answer = _ask_everything(place, clock, asked)
        except ConnectError as error:
            failures[place] = error
            continue
        if answer is not None:
            found.append(answer)
    return found, failures


def _ask_everything(place: str, clock: Clock, asked: Sequence[Inquiry]) -> FoundInstrument | None:
    """Put the questions one by one. Raises ``ConnectError`` if the place cannot be reached."""
    scheme, _, rest = place.partition("://")
    # The brackets of an IPv6 address hold colons of their own.
    if scheme == "tcp" and ":" not in rest.rpartition("]")[2]:
        place = f"{place}:{SCPI_PORT}"
    for each in asked[:1] if scheme == "visa" else asked:  # VISA resources are asked for their SCPI identity alone
        question = each.question
        rates = question.bauds if scheme == "serial" and "?" not in rest else (None,)
        for address in (place if rate is None else f"{place}?baud={rate}" for rate in rates):
            told = each.recognise(_ask(address, question.asked, clock))
            if told is not None:
                return FoundInstrument(address, *told)
    return None


def _ask(address: str, asked: bytes, clock: Clock) -> bytes:
    """Send a question over a link of its own and return all that comes until the line is quiet, or closed."""
    # Its own link for every question: what a wrong question has left in an instrument's input goes with the connection.
    link = open_link(address, clock)
    link.open(Deadline(clock.now() + 3.0))
    answer, until = b"", Deadline(clock.now() + _ANSWER_S)
    try:
        with contextlib.suppress(LinkLost):
            link.write(asked, Deadline(clock.now() + 1.0))
            while clock.now() < until and len(answer) < _LONGEST:
                data = link.read(until)
                answer += data
                if data:
                    until = Deadline(min(until, clock.now() + _QUIET_S))
        return answer
    finally:
        link.close()


def serial_ports() -> list[tuple[str, str]]:
    """Return the serial ports of this computer with what their USB descriptors say; nothing is opened."""
    from serial.tools import list_ports

    return [(port.device, port.description) for port in sorted(list_ports.comports())]


def visa_resources() -> list[str]:
    """Return the VISA resources that pyvisa lists; nothing is asked.

    Raises:
        ConfigError: There is no VISA backend.
    """
    import pyvisa

    try:
        return list(pyvisa.ResourceManager("@py").list_resources("?*::INSTR"))
    except (pyvisa.Error, ValueError, OSError) as error:
        raise ConfigError(f"VISA cannot list its resources: {error}") from error


def draft(found: Iterable[FoundInstrument]) -> str:
    """Return the start of a bench file with the devices found; mesh and wiring are left to be written."""
    import yaml

    known = [item for item in found if item.kind is not None]
    counts: dict[str, int] = {}
    devices: dict[str, dict[str, Any]] = {}
    for item in known:
        number = counts.setdefault(str(item.kind), 0)
        counts[str(item.kind)] += 1
        devices[f"{item.kind}-{number}"] = {"kind": item.kind, "address": item.address, **item.entry}
    text = yaml.safe_dump({"version": 1, "name": "my-bench", "devices": devices}, sort_keys=False, allow_unicode=True)
    return (
        text + "# Still to be written: mesh, wiring and servers (docs/bench-file.md).\n"
        "# `lumion bench check` names what is missing.\n"
    )
