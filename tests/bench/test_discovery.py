"""Finding instruments: emulated devices on real wires, strangers, silence, and what must never be done."""

from __future__ import annotations

import socket
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from pydantic import TypeAdapter

from lumion_hw.bench.bench import load
from lumion_hw.bench.discovery import DiscoveredInstrument, discover, discovery_probes, draft_bench_file
from lumion_hw.bench.emulated import emulated_bench
from lumion_hw.bench.file.known_kinds import builtin_kinds
from lumion_hw.bench.file.model import Device
from lumion_hw.cli import main
from lumion_hw.clock import SystemClock
from lumion_hw.emulator.lasers.itla import Itla
from lumion_hw.emulator.lasers.santec_tsl import EmulatedSantecTsl
from lumion_hw.emulator.wires.server import EmulatorServer
from lumion_hw.errors import ConfigError
from lumion_hw.sessions.codecs.itla import FRAME_BYTES, bip4
from tests.waiting import until

DATA = Path(__file__).parents[1] / "data"
CLOCK = SystemClock()
PROBES = discovery_probes(builtin_kinds())
QUERIES = [each.query for each in PROBES]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Addresses of a mesh controller and a meter on TCP, a polarization controller and a Qontrol chain on ptys."""
    directory = tmp_path_factory.mktemp("devices")
    small = emulated_bench(load(DATA / "small.yaml"), CLOCK, 1)
    chain = emulated_bench(load(DATA / "small_qontrol.yaml"), CLOCK, 1)
    with EmulatorServer(CLOCK) as server:
        addresses = {
            "board": server.add_tcp(small.devices["mesh0"]),
            "meter": server.add_tcp(small.devices["meter0"]),
            "epc": server.add_pty(small.devices["pol-a"], directory / "epc"),
            "chain": server.add_pty(
                chain.devices[load(DATA / "small_qontrol.yaml").mesh.controller], directory / "chain"
            ),
        }
        laser = EmulatedSantecTsl("laser1", CLOCK, np.random.default_rng(1), model="TSL-570")
        addresses["laser"] = server.add_tcp(laser)
        addresses["itla"] = server.add_pty(Itla("laser0", CLOCK, np.random.default_rng(1)), directory / "itla")
        with server.in_thread():
            yield addresses


def known(kinds: list[str], addresses: list[str], failing: Collection[str] = ()) -> list[DiscoveredInstrument]:
    """Ask until all is known: a busy machine may answer later than discovery waits."""
    for _ in range(20):
        found, failures = discover(addresses, CLOCK)
        if sorted(str(device.kind) for device in found) == sorted(kinds) and set(failures) == set(failing):
            return found
    return pytest.fail(f"found {found}, could not reach {failures}")


@pytest.mark.parametrize(
    ("name", "kind", "identity"),
    [
        # The last to be asked for: six seconds of silence.
        pytest.param("board", "lumion-mesh", "LUMION mesh controller, outputs BOOT", marks=pytest.mark.long),
        ("meter", "keysight-n77xx", "N7744A"),
        ("epc", "oz-epc04", "OZ Optics EPC04"),
        ("chain", "qontrol-q8", "Q8iv-"),
        ("itla", "itla-laser", "ITLA"),
        ("laser", "santec-tsl", "TSL-570"),  # answers to, and with, CR alone
    ],
)
def test_each_device_is_known_by_its_own_answer(served: dict[str, str], name: str, kind: str, identity: str) -> None:
    (device,) = known([kind], [served[name].partition("?")[0]])
    assert device.kind == kind
    assert identity in device.identity
    assert device.address.startswith(served[name].partition("?")[0])


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("Agilent Technologies,N7745A,DE1,V1.16", "keysight-n77xx"),
        ("Agilent Technologies,8163B,DE1,V5.25", "keysight-816x"),
        ("Keysight Technologies,N7776C,MY1,1.0", "keysight-laser"),
        ("Keysight Technologies,N7785C,MY1,1.0", "keysight-n7785c"),
        ("Thorlabs,PM100USB,P1,1.4.0", "thorlabs-pm"),
        ("THORLABS,PM100,P1,1.0", None),  # the legacy meter, another dialect
        ("SANTEC,MPM-210H,17110001,Ver. 1.02", "santec-mpm"),
        ("SANTEC,TSL-570,22050001,0001.000", "santec-tsl"),
        ("ACME,Toaster 9,7,1.0", None),
    ],
)
def test_an_identity_is_drafted_as_a_device_the_bench_file_takes(answer: str, kind: str | None) -> None:
    told = PROBES[0].identify(answer.encode() + b"\n")
    assert told is not None
    identity, found, entry = told
    assert (identity, found) == (answer, kind)
    if kind is not None:
        TypeAdapter(Device).validate_python({"kind": kind, **entry})


@pytest.mark.long
def test_the_draft_opens_what_was_found(served: dict[str, str], tmp_path: Path) -> None:
    found = known(["lumion-mesh", "keysight-n77xx"], [served["board"], served["meter"]])
    document = yaml.safe_load(draft_bench_file(found))
    assert document["devices"]["lumion-mesh-0"] == {"kind": "lumion-mesh", "address": served["board"]}
    meter = document["devices"]["keysight-n77xx-0"]
    assert (meter["model"], meter["serial"]) == ("N7744A", "MY00000044")
    path = tmp_path / "bench.yaml"
    path.write_text(
        draft_bench_file(found) + "mesh: {controller: lumion-mesh-0, columns: [2]}\nwiring: {inputs: [], outputs: []}\n"
    )
    assert set(load(path).devices) == {"lumion-mesh-0", "keysight-n77xx-0"}


def stranger(answers: bytes) -> tuple[str, socket.socket]:
    """A server that says the same to everybody; returns its address and its socket."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.sendall(answers)
                connection.settimeout(1.0)
                try:
                    connection.recv(100)
                except OSError:
                    continue

    threading.Thread(target=serve, daemon=True).start()
    return f"tcp://127.0.0.1:{listener.getsockname()[1]}", listener


def test_an_instrument_without_a_driver_is_named_and_left_out_of_the_draft() -> None:
    address, listener = stranger(b"ACME,Frobnicator 9,123,1.0\n")
    with listener:
        found, _ = discover([address], CLOCK)
    assert found == [DiscoveredInstrument(address, "ACME,Frobnicator 9,123,1.0", None)]
    assert yaml.safe_load(draft_bench_file(found))["devices"] == {}


@pytest.mark.parametrize("answers", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(range(256)) * 40, b"1,2,3\n"])
def test_a_stranger_is_nothing(answers: bytes) -> None:
    address, listener = stranger(answers)
    with listener:
        assert discover([address], CLOCK) == ([], {})


def test_a_place_that_cannot_be_reached_is_told_and_the_others_are_asked(served: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    known(["keysight-n77xx"], [closed, served["meter"]], failing={closed})


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a device address"):
        discover(["gopher://somewhere:70"], CLOCK)


def test_lines_of_text_are_asked_before_what_is_none() -> None:
    """Bytes without an end of line would stay in the input of whoever reads lines, and spoil the next query."""
    is_text = [query.request.isascii() and query.request.endswith(b"\n") for query in QUERIES]
    assert is_text == sorted(is_text, reverse=True)
    assert QUERIES[-1].request.startswith(b"\0")  # ends what a mesh controller has taken for a frame so far


def kind_of(answer: bytes) -> str | None:
    told = [found for inquiry in PROBES if (found := inquiry.identify(answer)) is not None]
    return told[0][1] if told else None


def test_paddles_are_known_by_their_parameters() -> None:
    parameters = bytes.fromhex("32 05 0C 00 81 50 00 00 64 00 AD 02 C9 00 C9 00 C9 00")
    status = bytes.fromhex("91 04 0E 00 81 50 02 00 6B 01 00 00 00 00 00 00 00 24 00 80")
    assert kind_of(status + parameters) == "thorlabs-mpc"
    assert kind_of(status) is None


def test_one_of_the_questions_to_paddles_begins_where_a_frame_does_whatever_was_sent_before() -> None:
    (query,) = [query for query in QUERIES if "APT" in query.name]
    request = bytes.fromhex("31 05 00 00 50 01")
    for n_before in range(6):
        stream = bytes(n_before) + query.request
        assert request in [stream[start : start + 6] for start in range(0, len(stream), 6)]


@pytest.mark.parametrize("answer", [b"PM1000", b"504D\r3130\r3030\r"])  # LAN, USB 2
def test_a_polarimeter_is_known_by_its_type(answer: bytes) -> None:
    assert kind_of(answer) == "novoptel-pm1000"


def test_questions_to_a_polarimeter_ask_for_its_type() -> None:
    lines, binary = [query.request for query in QUERIES if "PM1000" in query.name]
    assert lines == b"R2900000\rR2910000\rR2920000\r\n"  # 512 + 144 …
    assert binary == bytes.fromhex("52 02 90 52 02 91 52 02 92")


def test_without_places_nothing_is_sent_and_the_ports_are_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lumion_hw.bench.discovery.serial_ports", lambda: [("/dev/ttyX7", "A thing")])
    monkeypatch.setattr("lumion_hw.bench.discovery.discover", lambda *_: pytest.fail("somebody was asked"))
    assert main(["discover"]) == 0
    captured = capsys.readouterr()
    assert "/dev/ttyX7" in captured.out
    assert "--host, --serial or --visa" in captured.err


def test_the_command_writes_a_draft_once(
    served: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "draft.yaml"
    arguments = ["discover", "--host", served["meter"].removeprefix("tcp://"), "-o", str(out)]

    def drafted() -> bool:
        out.unlink(missing_ok=True)
        return main(arguments) == 0 and "keysight-n77xx" in capsys.readouterr().out

    until(drafted)
    before = out.read_text()
    assert main(arguments) == 2
    assert out.read_text() == before


def test_no_question_is_a_command_to_a_laser_wherever_its_frames_begin() -> None:
    """Everything that is sent at an ITLA's rate, cut into frames from any byte on: no write among them is valid."""
    sent = b"".join(query.request for query in QUERIES if 9600 in query.bauds or not query.bauds)
    for start in range(FRAME_BYTES):
        for frame in (sent[i : i + FRAME_BYTES] for i in range(start, len(sent) - FRAME_BYTES + 1, FRAME_BYTES)):
            assert frame[0] >> 4 != bip4(frame) or not frame[0] & 0x01, frame
