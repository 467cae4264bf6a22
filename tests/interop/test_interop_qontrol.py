"""The official client, package `qontrol` as published, drives the emulated chain over a pty and over `socket://`.

What it sends, waits for and prints was read in its source. It spins while it waits, and shares the interpreter with
the server here, on a machine that may be busy: its time-outs of 100 and 50 ms are made longer, and what times tell
apart is an immediate answer from one such time-out.
"""

from __future__ import annotations

import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.emulator.mesh.qontrol import (
    IDEAL_READBACK,
    OPEN,
    ChainProfile,
    ErrorOrder,
    HeaterLoad,
    ModuleSpec,
    QontrolChain,
    ReplyMode,
)
from lumion_hw.emulator.wires.server import EmulatorServer
from lumion_hw.links.base import Peer
from tests.waiting import PATIENCE_S, promptly, until

OPENING_TIMEOUT_S = 0.2
"""The client runs into it four times while it opens."""
RESPONSE_TIMEOUT_S = 1.0
WORD_V = 12 / 65535 + 0.00005
"""The client cuts values off to a word, the module rounds readings to four decimals."""
VIP_LINE = re.compile(r"\d+,\d: [+-]\d+\.\d{4} V, [+-]\d+\.\d{4} mA(, +\d+\.\d{4} mW, +\d+ Ohm)?\n")
TWO = (ModuleSpec(number=1), ModuleSpec())


def official_client() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in its plain strings
        return pytest.importorskip("qontrol", reason="needs the package qontrol: pip install 'lumion-hw[test]'")


qontrol = official_client()


class Recorded(QontrolChain):
    """A chain that keeps the bytes hosts have sent."""

    def connect(self) -> Peer:
        self.heard = bytearray()
        peer = super().connect()
        receive = peer.receive

        def listen(data: bytes) -> None:
            self.heard += data
            receive(data)

        peer.receive = listen
        return peer


ON_BOTH_WIRES = pytest.mark.parametrize("wire", ["pty", pytest.param("socket", marks=pytest.mark.long)], indirect=True)
"""The modules sit on a serial line; that a socket carries the same is shown once for each way of talking to them."""


@pytest.fixture
def wire(request: pytest.FixtureRequest) -> str:
    wire = getattr(request, "param", "pty")
    if wire == "pty" and sys.platform == "win32":
        pytest.skip("no pseudo-terminals on Windows")
    return wire


Dial = Callable[..., tuple[Any, Recorded]]


@pytest.fixture
def dial(wire: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dial]:
    """Serve a chain on the wire and open the official client on it."""
    import serial

    clients: list[Any] = []
    with EmulatorServer(SystemClock()) as server, server.in_thread():

        def open_client(
            modules: tuple[ModuleSpec, ...] = TWO, *, loads: object = None, client: object = None, **settings: object
        ) -> tuple[Any, Recorded]:
            chain = Recorded(
                "heaters",
                SystemClock(),
                np.random.default_rng(1),
                drive=lambda currents, at_s: None,
                modules=modules,
                loads=loads,
                profile=ChainProfile(readback=IDEAL_READBACK, **settings),
            )
            if wire == "pty":
                port = server.add_pty(chain, tmp_path / "chain").removeprefix("serial://")
                until(Path(port).exists)
            else:
                monkeypatch.setattr(serial, "Serial", serial.serial_for_url)
                port = "socket://" + server.add_tcp(chain).removeprefix("tcp://")
            made = (client or qontrol.QXOutput)(
                serial_port_name=port, response_timeout=OPENING_TIMEOUT_S, inter_response_timeout=OPENING_TIMEOUT_S
            )
            made.response_timeout = made.inter_response_timeout = RESPONSE_TIMEOUT_S
            clients.append(made)
            return made, chain

        yield open_client
        for made in clients:
            made.close()


def timed(action: Callable[[], object]) -> tuple[object, float]:
    start = time.monotonic()
    result = action()
    return result, time.monotonic() - start


def fastest(action: Callable[[], object], tries: int = 5) -> float:
    return min(timed(action)[1] for _ in range(tries))


def errors_in(client: Any) -> list[tuple[int, int]]:
    return [(int(entry["id"]), int(entry["ch"])) for entry in client.log if entry["type"] == "err"]


def test_the_client_enumerates_the_chain(dial: Dial) -> None:
    opened: list[Any] = []
    promptly(lambda: opened.append(dial()), 8.0 * OPENING_TIMEOUT_S, at_least_s=3.9 * OPENING_TIMEOUT_S)
    client, chain = opened[-1]
    assert client.device_id == "Q8iv-0001"
    assert client.n_chs == 16
    assert (client.v_full, client.i_full) == (12.0, 24.0)
    assert [(entry["device_id"], entry["index"]) for entry in client.chain] == [("Q8iv-0001", 0), ("Q8iv-****", 1)]
    assert bytes(chain.heard) == b"id?\nnup=0\nnupall?\nvfull?\nifull?\n"


@pytest.mark.long
def test_a_first_module_without_a_number_has_no_id(dial: Dial) -> None:
    client, _ = dial((ModuleSpec(), ModuleSpec(number=1)))
    assert client.device_id is None
    assert client.n_chs == 16


def test_text_sets_and_reads_without_time_outs(dial: Dial) -> None:
    client, chain = dial(loads=HeaterLoad(500.0))
    assert fastest(lambda: client.v.__setitem__(3, 4.5)) < RESPONSE_TIMEOUT_S
    assert chain.heard.endswith(b"V3=4.5\n")
    assert fastest(lambda: client.v[3]) < RESPONSE_TIMEOUT_S
    assert client.v[3] == pytest.approx(4.5, abs=0.0005)
    assert client.i[3] == pytest.approx(9.0, abs=0.0005)
    client.i[11] = 2.0
    assert client.v[11] == pytest.approx(1.0, abs=0.0005)
    assert errors_in(client) == []


@ON_BOTH_WIRES
def test_vectors_and_reads_of_all_without_time_outs(dial: Dial) -> None:
    client, chain = dial()
    values = [channel / 2 for channel in range(16)]
    elapsed = fastest(lambda: client.set_all_values("V", list(values)))
    assert elapsed < RESPONSE_TIMEOUT_S
    assert chain.heard.endswith(b"VVEC8=4.0,4.5,5.0,5.5,6.0,6.5,7.0,7.5\n")
    assert fastest(lambda: client.get_all_values("V")) < RESPONSE_TIMEOUT_S
    assert client.get_all_values("V") == pytest.approx(values, abs=0.0005)
    assert client.get_all_values("I") == pytest.approx(values, abs=0.0005)
    assert chain.heard.endswith(b"Iall?\n")


def test_binary_sets_reads_and_vectors_without_time_outs(dial: Dial) -> None:
    client, chain = dial()
    client.binary_mode = True
    chain.heard.clear()
    client.v[3] = 1.0
    assert client.v[3] == pytest.approx(1.0, abs=WORD_V)
    assert chain.heard == bytes.fromhex("81 00 00 00 03 15 55  88 00 00 00 03 00 00")
    values = [channel / 2 for channel in range(16)]
    assert fastest(lambda: client.set_all_values("V", list(values))) < RESPONSE_TIMEOUT_S
    assert fastest(lambda: client.get_all_values("V")) < RESPONSE_TIMEOUT_S
    assert chain.heard.endswith(bytes.fromhex("a9 00 00 00 00 00 00"))
    assert client.get_all_values("V") == pytest.approx(values, abs=WORD_V)
    assert errors_in(client) == []


@ON_BOTH_WIRES
def test_text_and_binary_may_be_mixed(dial: Dial) -> None:
    client, _ = dial()
    for channel in range(16):
        client.binary_mode = channel % 2 == 0
        client.v[channel] = channel / 4
        client.binary_mode = channel % 3 == 0
        assert client.v[channel] == pytest.approx(channel / 4, abs=WORD_V)
    assert client.get_all_values("V") == pytest.approx([channel / 4 for channel in range(16)], abs=WORD_V)


def test_the_client_raises_what_the_limits_refuse_when_told_to(dial: Dial) -> None:
    client, chain = dial()
    client.vmax[3] = 5.0
    client.log_handler = qontrol.generic_log_handler("all")
    with pytest.raises(RuntimeError, match="E01:03"):
        client.v[3] = 11.0
    client.log_handler = None
    assert chain.currents_ma[3] == 0.0


@pytest.mark.long
def test_an_unknown_command_costs_the_time_out_and_is_logged(dial: Dial) -> None:
    client, _ = dial()
    _, elapsed = timed(lambda: client.issue_command("bogus", operator="?"))
    assert elapsed > 0.9 * RESPONSE_TIMEOUT_S
    assert errors_in(client) == [(10, 0)]


def test_an_error_nobody_asked_for_is_logged_and_the_next_read_is_right(dial: Dial) -> None:
    client, chain = dial()
    client.v[3] = 2.5
    chain.trip(10)
    deadline = time.monotonic() + PATIENCE_S
    while not errors_in(client) and time.monotonic() < deadline:
        assert client.v[3] == pytest.approx(2.5)
    assert errors_in(client) == [(1, 2)]
    assert client.v[3] == pytest.approx(2.5)


@pytest.mark.long
@pytest.mark.parametrize("order", list(ErrorOrder))
def test_supervision_in_any_order_disturbs_no_reading(dial: Dial, order: ErrorOrder) -> None:
    client, chain = dial(loads=[OPEN] * 4 + [HeaterLoad()] * 12, error_order=order)
    for channel in range(4):
        client.i[channel] = 5.0
    until(lambda: chain.next_due() is None)  # all four have been reported
    client.v[8] = 3.0
    assert client.v[8] == pytest.approx(3.0)
    assert client.get_all_values("V") == pytest.approx([12.0] * 4 + [0.0] * 4 + [3.0] + [0.0] * 7)
    assert sorted(errors_in(client)) == [(1, channel) for channel in range(4)]


@pytest.mark.long
def test_voltage_current_and_power_of_all_channels(dial: Dial) -> None:
    client, _ = dial()
    client.i[5] = 10.0
    answer = client.issue_command("vipall", operator="?", n_lines_requested=16, output_regex=r"((?s:.*))")
    lines = [line for (line,) in answer]
    assert len(lines) == 16
    assert all(VIP_LINE.fullmatch(line) for line in lines)
    assert lines[5] == "0,5: +10.0000 V, +10.0000 mA, 100.0000 mW,   1000 Ohm\n"


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(ReplyMode.USB1, marks=pytest.mark.long),
        pytest.param(ReplyMode.FTDI16, marks=pytest.mark.long),
        ReplyMode.RECORDED,
    ],
)
def test_the_client_gets_along_with_the_timing_of_real_modules(dial: Dial, mode: ReplyMode) -> None:
    opened: list[Any] = []
    promptly(lambda: opened.append(dial(reply_mode=mode)), 8.0 * OPENING_TIMEOUT_S)
    client, _ = opened[-1]
    assert (client.device_id, client.n_chs) == ("Q8iv-0001", 16)
    client.v[3] = 4.5
    assert client.v[3] == pytest.approx(4.5)
    client.set_all_values("V", 2.5)
    assert client.get_all_values("V") == pytest.approx([2.5] * 16)
    client.binary_mode = True
    client.set_all_values("I", [1.5] * 16)
    assert client.get_all_values("I") == pytest.approx([1.5] * 16, abs=2 * WORD_V)
    assert errors_in(client) == []


@pytest.mark.long
def test_the_client_repeats_a_line_that_is_too_long_until_the_errors_are_suppressed(dial: Dial) -> None:
    client, chain = dial()
    chain.heard.clear()
    client.issue_command("V", ch=0, operator="=", value=[4.55] * 13 + [4.555] * 3)
    assert errors_in(client)[:3] == [(14, 0), (15, 0), (14, 0)]
    assert errors_in(client)[-1] == (30, 0)
    assert chain.heard.count(b"\n") <= 4
    assert client.v[0] == 0.0


@pytest.mark.long
def test_a_64_channel_chain_is_enumerated_set_and_read(dial: Dial) -> None:
    client, chain = dial((ModuleSpec(number=1),) + (ModuleSpec(),) * 7)
    assert client.n_chs == 64
    assert [entry["index"] for entry in client.chain] == list(range(8))
    client.v[:] = [channel / 8 for channel in range(64)]
    assert client.get_all_values("V") == pytest.approx([channel / 8 for channel in range(64)], abs=0.0005)
    # no command runs into a time-out: 8 vectors in far less than 8 time-outs
    assert fastest(lambda: client.set_all_values("V", 1.5)) < 4 * RESPONSE_TIMEOUT_S
    assert chain.currents_ma == pytest.approx([1.5] * 64)


@pytest.mark.long
def test_other_questions_of_the_client(dial: Dial) -> None:
    client, _ = dial()
    assert client.firmware.strip() == "v2.4.1"
    assert client.vfull.strip() == "+12.0000 V"
    assert re.fullmatch(r"\d+ s", client.lifetime.strip())
    assert client.imax[15] == 24.0


@ON_BOTH_WIRES
def test_outputs_stay_when_the_client_goes_and_the_next_client_finds_them(dial: Dial, wire: str) -> None:
    client, chain = dial()
    client.v[3] = 4.5
    port = client.serial_port_name
    client.close()
    assert chain.currents_ma[3] == pytest.approx(4.5)
    again = qontrol.QXOutput(serial_port_name=port)
    assert again.v[3] == pytest.approx(4.5)
    again.close()


@pytest.mark.long
def test_the_input_client_stops_after_enumeration(dial: Dial) -> None:
    client, chain = dial(client=qontrol.SXInput)
    assert bytes(chain.heard) == b"id?\nnup=0\nnupall?\n"
    assert len(client.chain) == 2
