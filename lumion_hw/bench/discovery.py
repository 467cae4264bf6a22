"""Finding instruments: ask what answers at places the user has named, and draft the entries of a bench file.

Nobody is written to unasked: some instruments move, or arm, on a stray line. Serial ports that nobody named are listed
with what the USB descriptor says of them, and left alone.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from firmware_protocol import (
    BadFrame,
    Command,
    Decoder,
    Frame,
    Kind,
    PingReply,
    PingRequest,
    ProtocolError,
    encode_frame,
)
from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError, ConnectError, LinkLost, LumionError
from lumion_hw.links.address import open_link
from lumion_hw.sessions.codecs.apt import AptDecoder, DecodedAptMessage, command, parameters_of
from lumion_hw.sessions.codecs.itla import FRAME_BYTES, ItlaRegister, decode_reply, read_request
from lumion_hw.sessions.codecs.novoptel import LAN, USB2

SCPI_PORT = 5025
"""Where SCPI instruments listen (IANA: scpi-raw)."""

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


Recognise = Callable[[bytes], tuple[str, str | None, dict[str, Any]] | None]
"""From an answer to identity, kind and entry; ``None`` if it is no answer to this question."""


@dataclass(frozen=True)
class Question:
    """One harmless question and how its answer looks.

    Attributes:
        name: What it asks for, for ``--help`` and logs.
        bauds: Line rates to ask at, where there is a serial line.
        asked: Bytes to send.
        recognise: Reads the answer.
    """

    name: str
    bauds: tuple[int, ...]
    asked: bytes
    recognise: Recognise


# Vendor, model as *IDN? says them -> kind of the bench file, and whether its entry can name the model. An 8164 is taken
# for its power sensors: whether a laser is in slot 0 the identity does not say.
_SCPI_KINDS = (
    (r"keysight|agilent|hewlett", r"N774[45][AC]$", "keysight-n77xx", True),
    (r"keysight|agilent|hewlett", r"816[346][AB]$", "keysight-816x", True),
    (r"keysight|agilent", r"N7776C$", "keysight-laser", True),
    (r"keysight|agilent", r"N7785C$", "keysight-n7785c", False),
    (r"thorlabs", r"PM(100(D|A|USB)|400|101|160)$", "thorlabs-pm", True),
    (r"santec", r"MPM-210H?$", "santec-mpm", False),
    (r"santec", r"TSL-(510|550|570|710)$", "santec-tsl", True),
)


def _idn(answer: bytes) -> tuple[str, str | None, dict[str, Any]] | None:
    text = answer.decode("ascii", "replace").strip()
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 4 or "\n" in text or not all(part.isprintable() for part in parts) or not parts[1]:
        return None
    vendor, model, serial, _ = parts
    for vendors, models, kind, names_model in _SCPI_KINDS:
        if re.search(vendors, vendor, re.IGNORECASE) and re.match(models, model, re.IGNORECASE):
            entry = {"model": model.upper()} if names_model else {}
            return text, kind, entry | ({"serial": serial} if serial not in ("", "0") else {})
    return text, None, {}


def _board(answer: bytes) -> tuple[str, str | None, dict[str, Any]] | None:
    for item in Decoder(_LONGEST).feed(answer):
        if isinstance(item, BadFrame) or item.kind != Kind.RSP or item.command != Command.PING:
            continue
        with contextlib.suppress(ProtocolError):
            reply = PingReply.decode(item.payload)
            return f"LUMION mesh controller, outputs {reply.outputs_state.name}", "lumion-mesh", {}
    return None


def _qontrol(answer: bytes) -> tuple[str, str | None, dict[str, Any]] | None:
    match = re.search(rb"\b(Q\d\w*-[0-9A-Fa-f]{4})\b", answer)
    return None if match is None else (match[1].decode(), "qontrol-q8", {})


def _epc04(answer: bytes) -> tuple[str, str | None, dict[str, Any]] | None:
    text = " ".join(answer.decode("ascii", "replace").split())
    if not re.search(r"CH1 [+-]?\d+ CH2 [+-]?\d+ CH3 [+-]?\d+ CH4 [+-]?\d+ Done", text):
        return None
    return "OZ Optics EPC04", "oz-epc04", {}


def _paddles(answer: bytes) -> tuple[str, str | None, dict[str, Any]] | None:
    for frame in AptDecoder().feed(answer):
        if frame.message == DecodedAptMessage.PARAMETERS:
            velocity = parameters_of(frame).velocity_percent
            return f"Thorlabs paddles (APT) at {velocity} % of their velocity", "thorlabs-mpc", {}
    return None


def _pm1000(answer: bytes) -> tuple[str, str | None, dict[str, Any]] | None:
    words = re.findall(rb"([0-9A-Fa-f]{4})\r", answer)
    name = bytes.fromhex(b"".join(words).decode()) if words else answer
    return ("Novoptel PM1000", "novoptel-pm1000", {}) if name.startswith(b"PM1000") else None


def _itla(answer: bytes) -> tuple[str, str | None, dict[str, Any]] | None:
    for start in range(len(answer) - FRAME_BYTES + 1):
        reply = decode_reply(answer[start : start + FRAME_BYTES])
        if reply is not None and not reply.damaged and reply.register == ItlaRegister.NOP:
            return "ITLA laser (answers NOP)", "itla-laser", {}
    return None


_TYPE_NAME = range(656, 659)  # the first three of the registers with the type's name, two letters each

QUESTIONS = (
    Question("SCPI instrument (*IDN?)", (9600, 115200), b"*IDN?\r\n", _idn),
    Question("OZ Optics EPC04 (V?)", (9600,), b"V?\r\n", _epc04),
    Question("Qontrol chain (ID?)", (115200,), b"id?\n", _qontrol),
    Question(
        "Novoptel PM1000 over USB 2 (type)",
        (230400,),
        b"".join(map(USB2.read_request, _TYPE_NAME)) + b"\n",
        _pm1000,
    ),
    Question("Novoptel PM1000 over LAN (type)", (), b"".join(map(LAN.read_request, _TYPE_NAME)), _pm1000),
    Question(
        # Four times: the first ones may fill up frames that other questions have begun. None of those has a valid
        # checksum and the mark of a write, wherever it begins.
        "ITLA laser (NOP)",
        (9600,),
        read_request(ItlaRegister.NOP) * 4,
        _itla,
    ),
    Question(
        # Six times, a byte apart: one of them begins where the device expects a frame, whatever it was sent before.
        "Thorlabs paddles (APT, parameters)",
        (115200,),
        (command(DecodedAptMessage.REQUEST_PARAMETERS) + b"\0") * 6,
        _paddles,
    ),
    Question(
        "LUMION mesh controller (PING outside of sessions)",
        (115200, 921600),
        b"\0" + encode_frame(Frame(Kind.REQ, Command.PING, payload=PingRequest().encode())),
        _board,
    ),
)
"""In this order: what is no line of text comes last, for it would stay in the input of whoever reads lines. The very
last begins with the byte that ends what mesh controllers have taken for a frame so far."""


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
    for place in places:
        try:
            answer = _ask_everything(place, clock)
        except ConnectError as error:
            failures[place] = error
            continue
        if answer is not None:
            found.append(answer)
    return found, failures


def _ask_everything(place: str, clock: Clock) -> FoundInstrument | None:
    """Put the questions one by one. Raises ``ConnectError`` if the place cannot be reached."""
    scheme, _, rest = place.partition("://")
    if scheme == "tcp" and ":" not in rest.rpartition("]")[2]:
        place = f"{place}:{SCPI_PORT}"
    for question in QUESTIONS:
        if scheme == "visa" and question.recognise is not _idn:
            continue
        rates = question.bauds if scheme == "serial" and "?" not in rest else (None,)
        for address in (place if rate is None else f"{place}?baud={rate}" for rate in rates):
            told = question.recognise(_ask(address, question.asked, clock))
            if told is not None:
                identity, kind, entry = told
                return FoundInstrument(address, identity, kind, entry)
    return None


def _ask(address: str, asked: bytes, clock: Clock) -> bytes:
    """Send a question over a link of its own and return all that comes until the line is quiet, or closed."""
    link = open_link(address, clock)
    link.open(clock.now() + 3.0)
    answer, until = b"", clock.now() + _ANSWER_S
    try:
        with contextlib.suppress(LinkLost):
            link.write(asked, clock.now() + 1.0)
            while clock.now() < until and len(answer) < _LONGEST:
                data = link.read(until)
                answer += data
                if data:
                    until = min(until, clock.now() + _QUIET_S)
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
