"""Addresses of the bench file."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.errors import ConfigError
from lumion_hw.links import SerialLink, TcpLink, VisaLink, open_link
from lumion_hw.links.address import serial_baud
from tests.waiting import PATIENCE_S

CLOCK = SystemClock()


@pytest.mark.parametrize(
    ("address", "kind", "name"),
    [
        ("tcp://192.0.2.7:5025", TcpLink, "tcp://192.0.2.7:5025"),
        ("tcp://[2001:db8::7]:5025", TcpLink, "tcp://[2001:db8::7]:5025"),
        ("serial:///dev/ttyUSB0?baud=9600", SerialLink, "serial:///dev/ttyUSB0?baud=9600"),
        ("serial:///dev/serial/by-id/usb-x", SerialLink, "serial:///dev/serial/by-id/usb-x?baud=115200"),
        ("serial://COM3?baud=9600", SerialLink, "serial://COM3?baud=9600"),
        ("visa://TCPIP0::192.0.2.7::hislip0::INSTR", VisaLink, "visa://TCPIP0::192.0.2.7::hislip0::INSTR"),
    ],
)
def test_an_address_gives_its_kind_of_link_unopened(address: str, kind: type, name: str) -> None:
    link = open_link(address, CLOCK)
    assert isinstance(link, kind)
    assert link.name == name
    link.close()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "192.0.2.7:5025",
        "udp://192.0.2.7:5025",
        "tcp://192.0.2.7",
        "tcp://:5025",
        "tcp://192.0.2.7:seven",
        "tcp://192.0.2.7:99999",
        "tcp://192.0.2.7:0",
        "tcp://192.0.2.7:5025/path",
        "serial://",
        "serial:///dev/ttyUSB0?baud=fast",
        "serial:///dev/ttyUSB0?baud=0",
        "serial:///dev/ttyUSB0?baud=",
        "serial:///dev/ttyUSB0?parity=even",
        "visa://instrument",
    ],
)
def test_another_form_is_refused_with_what_was_expected(address: str) -> None:
    with pytest.raises(ConfigError, match="Expected tcp://host:port") as caught:
        open_link(address, CLOCK)
    assert address in str(caught.value)


def test_parsing_addresses_loads_no_heavy_library() -> None:
    code = (
        "import sys; from lumion_hw.clock import SystemClock; from lumion_hw.links import open_link; "
        "[open_link(a, SystemClock()) for a in ('tcp://h:1', 'serial:///dev/x', 'visa://ASRL1::INSTR')]; "
        "sys.exit(sorted({'serial', 'pyvisa', 'numpy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("address", "baud"),
    [
        ("serial:///dev/ttyUSB0?baud=9600", 9600),
        ("serial:///dev/ttyUSB0", 115200),
        ("tcp://192.0.2.7:5025", None),
        ("visa://ASRL1::INSTR", None),
        ("emulated mesh0", None),
        ("serial:///dev/x?baud=fast", None),
    ],
)
def test_only_serial_addresses_have_a_line_rate(address: str, baud: int | None) -> None:
    assert serial_baud(address) == baud
