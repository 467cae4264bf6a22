"""Random and mutated input for emulated instruments, shared by the fuzz tests."""

from __future__ import annotations

import gc
import logging
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock

COMMON = [b"*IDN?", b"*ESE 32;*SRE 36;*STB?", b"*OPC?;*WAI;*OPC", b"SYST:ERR:NEXT?", b"*RST", b"*CLS", b"*TST?"]
STATUS = [b"STAT:OPER:ENAB 512;PTR 512;NTR #H00;:STAT:QUES?", b"STAT:PRES;OPER:COND?", b"SYST:VERS?"]
SPICE = [
    b";",
    b":",
    b"?",
    b"\n",
    b",",
    b'"',
    b"'",
    b"#",
    b"#13",
    b"\x00",
    b"\xff",
    b"*",
    b"9" * 30,
    b" ",
    b"e99999",
    b"MIN",
]
SCPI_ERROR = re.compile(rb'([+-]?\d+),"[^"]+"[\r\n]+')
LONGEST = 65536
MOST_MORE_BLOCKS = 3000


class Host:
    """One connection and its clock."""

    def __init__(self, device, clock: VirtualClock) -> None:
        self.clock = clock
        self.device = device
        self.peer = device.connect()

    def raw(self, data: bytes) -> bytes:
        self.peer.receive(data)
        return self.peer.transmit()

    def wait(self) -> bytes:
        """Run until all pending operations have ended."""
        output = b""
        while (event := self.peer.next_event()) is not None:
            self.clock.sleep(max(event - self.clock.now(), 1e-6))
            output += self.peer.transmit()
        return output


def scpi_alive(host: Host) -> None:
    """Check: the identity is returned, the queue holds only known codes and empties, a wrong header gives one entry."""
    host.raw(b" " * (LONGEST + 1) + b"\n\n")  # an announced block may be as long as the input buffer
    other = host.device.connect()  # the first connection may be waiting for a trigger that never comes
    for _ in range(20):
        host.wait()
        other.receive(b"*RST\n")
        if host.raw(b"") == b"" and host.peer.next_event() is None:
            break
    other.close()
    if not host.raw(b"*OPC?\n"):  # it obeys a request to wait again and again: the host reconnects
        host.peer.close()
        host.peer = host.device.connect()
    host.raw(b"*RST\n")
    host.wait()
    assert host.raw(b"*IDN?\n").count(b",") == 3
    for _ in range(40):
        match = SCPI_ERROR.fullmatch(host.raw(b"SYST:ERR?\n"))
        assert match
        assert int(match[1]) != -310
        if int(match[1]) == 0:
            break
    else:
        pytest.fail("the queue does not empty")
    assert host.raw(b"*CLS;FOO:BAR;*ESR?\n").rstrip() == b"32"
    assert SCPI_ERROR.fullmatch(host.raw(b"SYST:ERR?\n"))[1] == b"-113"
    assert int(SCPI_ERROR.fullmatch(host.raw(b"SYST:ERR?\n"))[1]) == 0


@dataclass(frozen=True)
class Target:
    """One instrument under test."""

    make: Callable[[VirtualClock], object]
    corpus: list[bytes]
    alive: Callable[[Host], None] = scpi_alive
    ending: bytes = b"\n"


def mutate(rng: np.random.Generator, corpus: list[bytes]) -> bytes:
    """Return a corpus line unchanged, with a few random edits, or replaced by noise."""
    if rng.random() < 0.05:
        return rng.bytes(int(rng.integers(1, 40)))
    data = bytearray(corpus[rng.integers(len(corpus))])
    for _ in range(int(rng.integers(0, 4))):
        at = int(rng.integers(0, len(data) + 1))
        match rng.integers(5):
            case 0:
                data[at:at] = SPICE[rng.integers(len(SPICE))]
            case 1:
                del data[at : at + int(rng.integers(1, 4))]
            case 2:
                data[at : at + 1] = bytes([rng.integers(256)])
            case 3:
                data[at:] = corpus[rng.integers(len(corpus))][int(rng.integers(0, 6)) :]
            case _:
                data[at:at] = data[: int(rng.integers(0, 12))]
    return bytes(data)


def blocks() -> int:
    """Return the number of live objects after garbage collection; later searches ignore the present objects."""
    gc.collect()
    gc.freeze()
    return sys.getallocatedblocks()


def hammer(target: Target, seed: int, lines: int, caplog) -> None:
    """Send mutated lines; the instrument keeps working, reports correctly, and its memory does not grow."""
    clock, rng = VirtualClock(), np.random.default_rng(seed)
    checks = min(max(lines // 5, 2), 1000)
    with caplog.at_level(logging.ERROR):
        device = target.make(clock)
        host = Host(device, clock)
        for line in target.corpus:
            host.raw(line + target.ending)
        target.alive(host)
        before = blocks()
        for number in range(lines):
            host.raw(mutate(rng, target.corpus) + target.ending)
            if number % checks == checks - 1:
                target.alive(host)
                host.peer.close()
                host = Host(device, clock)
            elif rng.random() < 0.1:
                clock.sleep(float(rng.exponential(0.1)))
                device.advance()
        target.alive(host)
        assert blocks() - before < MOST_MORE_BLOCKS, "memory grows"
    assert caplog.text == "", "an internal error was logged"
