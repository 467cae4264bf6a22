"""The emulated Polatis switch: power monitors, state kept without power, query of all errors, line endings."""

from __future__ import annotations

import pytest

from lumion_hw import Bench
from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.switches.polatis import EmulatedPolatis
from tests.emulator.scpi.scpi_testbench import Host

BENCH = """
version: 1
name: monitored
devices:
  itla: {kind: itla-laser}
  sw: {kind: polatis, n_inputs: 4, n_outputs: 4, insertion_loss_db: 1.5}
  pm: {kind: keysight-n77xx}
wiring:
  fibres:
    - {laser: itla, through: [{device: sw, enters: 2, leaves: 7}], taps: [{meter: pm, channel: 1, fraction: 0.9}]}
"""


def powers(reply: str) -> list[float]:
    assert reply.startswith("(")
    assert reply.endswith(")")
    return [float(each) for each in reply[1:-1].split(",")]


def test_monitors_read_what_comes_in_and_what_goes_out(tmp_path) -> None:
    path = tmp_path / "bench.yaml"
    path.write_text(BENCH)
    with Bench.emulate(path, seed=2) as bench:
        bench.lasers["itla"].enable()
        bench.lasers["itla"].wait_ready(60.0)
        sent_dbm = bench.lasers["itla"].state().measured_power_dbm
        host = Host(bench.emulated.devices["sw"])
        before = powers(host.ask(":PMON:POW? (@1,2,7)"))
        assert before[0] == before[2] == -60.0
        assert before[1] == pytest.approx(sent_dbm, abs=0.5), "light that ends at the port is seen"
        bench.switches["sw"].connect({2: 7})
        one, two, seven = powers(host.ask(":pmon:pow? (@1,2,7)"))
        assert one == -60.0
        assert two == before[1]
        assert seven == pytest.approx(two - 1.5, abs=0.011)
        assert host.errors() == []


def test_at_most_256_monitors_are_read_at_once() -> None:
    host = Host(EmulatedPolatis("sw", VirtualClock(), n_inputs=192, n_outputs=192))
    assert len(powers(host.ask(":PMON:POW? (@1:256)"))) == 256
    assert host.ask(":PMON:POW? (@1:257)") is None
    assert host.errors() == [-222]
    assert host.ask(":PMON:POW? (@385)") is None
    assert host.errors() == [-222]


@pytest.mark.parametrize(("mode", "after"), [("VOLatile", "(@),(@)"), ("AUTO", "(@1),(@17)")])
def test_the_boot_mode_says_what_a_loss_of_power_leaves(mode: str, after: str) -> None:
    device = EmulatedPolatis("sw", VirtualClock())
    host = Host(device)
    assert host.ask(":OXC:SWIT:BOOT:MODE?") == "VOL"
    host.ask(f":OXC:SWITch:BOOT:MODE {mode};:OXC:SWIT:CONN:ADD (@1),(@17)")
    assert host.ask(":OXC:SWIT:BOOT:MODE?") == mode[:4].rstrip("a")
    device.power_off()
    device.power_on()
    host = Host(device)
    assert host.ask(":OXC:SWIT:CONN:STAT?") == after
    host.ask(":OXC:SWIT:BOOT:MODE LATER")
    assert host.errors() == [-224]


def test_all_errors_are_told_and_forgotten_at_once() -> None:
    host = Host(EmulatedPolatis("sw", VirtualClock()))
    assert host.ask(":SYST:ERR:ALL?") == '+0,"No error"'
    host.ask("NONSENSE")
    host.ask(":OXC:SWIT:CONN:ADD (@1),(@33)")
    assert host.ask(":SYST:ERR:ALL?") == '-113,"Undefined header",-222,"Data out of range"'
    assert host.ask(":SYST:ERR:ALL?;:SYST:ERR?") == '+0,"No error";+0,"No error"'


@pytest.mark.parametrize("end", [b"\r", b"\r\n", b"\n"])
def test_a_line_may_end_with_cr_alone(end: bytes) -> None:
    host = Host(EmulatedPolatis("sw", VirtualClock()))
    assert host.raw(b":OXC:SWIT:CONN:ADD (@1),(@17)" + end + b":OXC:SWIT:CONN:STAT?" + end) == b"(@1),(@17)\n"
    assert host.errors() == []
