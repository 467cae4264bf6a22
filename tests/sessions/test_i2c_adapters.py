"""Every I2C adapter reaches every module: the same promises over stand-ins for three libraries, on one wire."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.drivers.transponders.sfp import SfpTransponder
from lumion_hw.emulator.transponders.cmis import CmisModule
from lumion_hw.emulator.transponders.sfp import SfpModule
from lumion_hw.errors import ConnectError, LinkLost, NotSupportedError
from lumion_hw.sessions.module.adapter import AdapterRegisters, I2cAdapter
from lumion_hw.sessions.module.adapter_libraries import FtdiAdapter, Mcp2221Adapter, SmbusAdapter
from lumion_hw.sessions.module.paged_i2c import BridgedI2c
from lumion_hw.sessions.module.registers import ModuleAbsentError, NotRespondingError
from lumion_hw.standards.cmis.codes import ModuleState
from tests.sessions.i2c_libraries import Wire, mcp2221_on, pyftdi_on, smbus2_on


@dataclass(frozen=True)
class Case:
    kind: type[I2cAdapter]
    address: str
    absent: str
    extra: str
    largest_read: int
    library_on: Callable[[Wire], SimpleNamespace]


SMBUS = Case(SmbusAdapter, "i2c://1", "i2c://9", "i2c", 128, smbus2_on)
FTDI = Case(FtdiAdapter, "ftdi://ftdi:232h/1", "ftdi://absent/1", "ftdi", 128, pyftdi_on)
MCP = Case(Mcp2221Adapter, "mcp2221://0", "mcp2221://absent", "mcp2221", 60, mcp2221_on)
every_adapter = pytest.mark.parametrize("case", [SMBUS, FTDI, MCP], ids=lambda case: case.extra)
with_pins = pytest.mark.parametrize("case", [FTDI, MCP], ids=lambda case: case.extra)


class Memory:
    def __init__(self) -> None:
        self.data = bytearray(range(256))
        self.busy = 0

    def _acknowledge(self) -> None:
        if self.busy:
            self.busy -= 1
            raise NotRespondingError("busy")

    def read(self, offset: int, length: int) -> bytes:
        self._acknowledge()
        return bytes(self.data[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        self._acknowledge()
        self.data[offset : offset + len(data)] = data


def adapter_on(case: Case, wire: Wire, **others: object) -> Any:
    adapter = case.kind(case.address, device="m1", library=case.library_on(wire), **others)  # type: ignore[arg-type]
    adapter.open()
    return adapter


@every_adapter
def test_reads_are_as_long_as_the_adapter_can_and_a_write_is_one_transaction(case: Case) -> None:
    wire = Wire(x50=Memory())
    adapter = adapter_on(case, wire)
    assert adapter.read(0x50, 10, 130) == bytes(range(10, 140))
    lengths = [n_read for _, _, n_read in wire.transfers]
    assert lengths == [case.largest_read] * (130 // case.largest_read) + [130 % case.largest_read]
    adapter.write(0x50, 126, b"\x00\x11")
    assert wire.transfers[-1] == (0x50, b"\x7e\x00\x11", 0)
    short = adapter_on(case, wire, largest_read=16)
    wire.transfers.clear()
    assert short.read(0x50, 0, 20) == bytes(range(20))
    assert [n_read for _, _, n_read in wire.transfers] == [16, 4]


@every_adapter
def test_silence_a_lost_adapter_and_a_closed_one_are_three_errors(case: Case) -> None:
    wire = Wire(x50=Memory())
    adapter = adapter_on(case, wire)
    with pytest.raises(NotRespondingError, match=r"m1 @ .*: reading 2 bytes at 3: .*Is a module plugged in\?"):
        adapter.read(0x51, 3, 2)
    wire.pulled = OSError(19, "No such device")
    with pytest.raises(LinkLost, match=r"writing 1 bytes at 26: .*No such device"):
        adapter.write(0x50, 26, b"\x10")
    adapter.close()
    adapter.close()
    with pytest.raises(LinkLost, match="is closed"):
        adapter.read(0x50, 0, 1)


@every_adapter
def test_a_missing_adapter_or_library_is_a_connect_error(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = case.kind(case.absent, library=case.library_on(Wire()))
    with pytest.raises(ConnectError, match="cannot open"):
        absent.open()
    with pytest.raises(LinkLost):
        absent.read(0x50, 0, 1)

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ConnectError, match=rf"pip install 'lumion-hw\[{case.extra}\]'"):
        case.kind(case.address).open()


@pytest.mark.parametrize(("case", "khz"), [(FTDI, 400.0), (MCP, 47.0), (FTDI, None), (MCP, None)])
def test_the_clock_is_100_khz_unless_told(case: Case, khz: float | None) -> None:
    wire = Wire()
    adapter_on(case, wire, **({} if khz is None else {"clock_khz": khz}))
    assert wire.frequency == 1e3 * (khz or 100.0)  # type: ignore[attr-defined]


# -- modules behind them


@every_adapter
def test_registers_are_asked_again_while_a_module_is_busy_and_written_by_rows(case: Case, clock: VirtualClock) -> None:
    memory = Memory()
    wire = Wire(x50=memory)
    registers = AdapterRegisters(adapter_on(case, wire), clock, device="m1", retry_s=0.1)
    memory.busy = 3
    assert registers.read(0x50, 20, 3) == bytes([20, 21, 22])
    registers.write(0x50, 6, bytes(4))
    assert [out for _, out, n_read in wire.transfers if not n_read] == [b"\x06\x00\x00", b"\x08\x00\x00"]
    memory.busy = 10**6
    began = clock.now()
    with pytest.raises(ModuleAbsentError, match=r"for 0\.1 s"):
        registers.read(0x50, 0, 1)
    assert clock.now() - began == pytest.approx(0.1, abs=0.01)
    with pytest.raises(NotRespondingError):
        registers.read(0x51, 0, 1)


class SfpTarget:
    """One device address of an emulated SFP+, by whole transfers."""

    def __init__(self, module: SfpModule, address: int, clock: VirtualClock) -> None:
        self.module, self.address, self.clock = module, address, clock

    def _start(self, read: bool) -> None:
        if not self.module.i2c_start(self.address, read, self.clock.now()):
            raise NotRespondingError("not acknowledged")

    def read(self, offset: int, length: int) -> bytes:
        self._start(False)
        self.module.i2c_write(offset)
        self._start(True)
        data = bytes(self.module.i2c_read() for _ in range(length))
        self.module.i2c_stop(self.clock.now())
        return data

    def write(self, offset: int, data: bytes) -> None:
        self._start(False)
        for value in (offset, *data):
            self.module.i2c_write(value)
        self.module.i2c_stop(self.clock.now())


@every_adapter
def test_an_sfp_is_read_and_switched_behind_every_adapter(case: Case, clock: VirtualClock) -> None:
    launched_w = [0.0]
    module = SfpModule(
        "sfp0",
        clock,
        np.random.default_rng(1),
        emit_w=launched_w.append,
        rx_power_w=lambda: 1e-4,
        serial="ER000001",
        warm=True,
    )
    wire = Wire(x50=SfpTarget(module, 0x50, clock), x51=SfpTarget(module, 0x51, clock))
    registers = AdapterRegisters(adapter_on(case, wire), clock, device="sfp0")
    with SfpTransponder(registers, clock, device="sfp0", expected_serial="ER000001") as driver:
        driver.disable()
        assert launched_w[-1] == 0.0
        driver.enable()
        assert launched_w[-1] > 0.0
        assert driver.monitors().rx_power_dbm == pytest.approx(-10.0, abs=3.0)


@every_adapter
def test_a_cmis_module_is_powered_up_behind_every_adapter(case: Case, clock: VirtualClock) -> None:
    module = CmisModule.from_profile("400zr", clock=clock, serial="ZR1", warm=True)
    wire = Wire(x50=module)
    with CmisTransponder(BridgedI2c(adapter_on(case, wire)), clock, device="zr1", expected_serial="ZR1") as driver:
        driver.power_up()
        assert module.state is ModuleState.READY
        driver.power_down()
        assert module.state is ModuleState.LOW_PWR


# -- the signals of the socket


PINS = {"ftdi": {"reset_l": 3, "lp_mode": 12, "int_l": 5, "mod_prs_l": 6}}
PINS["mcp2221"] = {"reset_l": 0, "lp_mode": 1, "int_l": 2, "mod_prs_l": 3}


def socket_of(module: CmisModule, wire: Wire, pins: dict[str, int]) -> None:
    """Wire an emulated module's pins to those of an adapter; pull-ups where nobody drives."""

    def on_drive(pin: int, level: bool) -> None:
        if pin == pins["reset_l"] and level:
            module.reset()
        if pin == pins["lp_mode"]:
            module.set_low_power_pin(level)

    def sense(pin: int) -> bool:
        if pin == pins["int_l"]:
            return not module.interrupt
        if pin == pins["mod_prs_l"]:
            return not module.plugged
        return wire.levels[pin]

    wire.on_drive, wire.sense = on_drive, sense


@with_pins
def test_opening_changes_no_level_and_signals_have_their_own_sense(case: Case) -> None:
    pins = PINS[case.extra]
    wire = Wire()
    wire.levels[pins["lp_mode"]] = False  # a board holds it low
    driven: list[tuple[int, bool]] = []
    wire.on_drive = lambda pin, level: driven.append((pin, level))
    adapter = adapter_on(case, wire, pins=pins)
    assert driven == []
    assert wire.outputs == {pins["reset_l"], pins["lp_mode"]}
    assert [adapter.is_asserted(signal) for signal in ("reset_l", "lp_mode", "int_l")] == [False, False, False]
    adapter.assert_signal("reset_l", True)
    adapter.assert_signal("lp_mode", True)
    assert driven == [(pins["reset_l"], False), (pins["lp_mode"], True)]
    wire.levels[pins["int_l"]] = False
    assert [adapter.is_asserted(signal) for signal in ("reset_l", "lp_mode", "int_l")] == [True, True, True]


def test_pins_that_an_adapter_does_not_have_and_signals_that_are_not_wired_are_refused() -> None:
    with pytest.raises(NotSupportedError, match=r"pin 4 for reset_l.*0 to 3"):
        Mcp2221Adapter("mcp2221://0", pins={"reset_l": 4})
    with pytest.raises(NotSupportedError, match=r"pin 3 for mod_sel_l.*signals are reset_l"):
        FtdiAdapter("ftdi://ftdi:232h/1", pins={"mod_sel_l": 3})
    with pytest.raises(NotSupportedError, match=r"int_l is not wired.*Wired signals: reset_l"):
        adapter_on(MCP, Wire(), pins={"reset_l": 0}).is_asserted("int_l")


@with_pins
def test_a_module_is_reset_powered_and_heard_through_its_pins(case: Case, clock: VirtualClock) -> None:
    module = CmisModule.from_profile("400zr", clock=clock, warm=True)
    wire = Wire(x50=module)
    socket_of(module, wire, PINS[case.extra])
    adapter = adapter_on(case, wire, pins=PINS[case.extra])
    quirks = {"power_request": "pin"}
    with CmisTransponder(BridgedI2c(adapter), clock, device="zr1", quirks=quirks, pins=adapter) as driver:
        driver.power_up()
        assert module.state is ModuleState.READY
        driver.power_down()
        assert adapter.is_asserted("lp_mode")
        assert module.state is ModuleState.LOW_PWR
        driver.power_up()
        driver.flags()
        assert not driver.interrupt()
        before = len(module.history)
        driver.reset()
        assert len(module.history) > before
        assert not adapter.is_asserted("reset_l")
        clock.sleep(1.0)
        assert driver.interrupt()  # the flag of a changed module state is up
    module.unplug()
    with pytest.raises(ModuleAbsentError, match="ModPrsL is high"):
        CmisTransponder(BridgedI2c(adapter), clock, device="zr1", pins=adapter).open()


def test_without_pins_the_interrupt_cannot_be_seen(clock: VirtualClock) -> None:
    wire = Wire(x50=CmisModule.from_profile("400zr", clock=clock, warm=True))
    with (
        CmisTransponder(BridgedI2c(adapter_on(SMBUS, wire)), clock, device="zr1") as driver,
        pytest.raises(NotSupportedError, match="IntL is not wired"),
    ):
        driver.interrupt()


# -- the stand-ins are like the libraries


CALLS = {
    "smbus2": (smbus2_on, ["SMBus.i2c_rdwr", "SMBus.close", "i2c_msg.write", "i2c_msg.read"]),
    "pyftdi.i2c": (
        pyftdi_on,
        [
            *(f"I2cController.{name}" for name in ("configure", "get_port", "get_gpio", "close")),
            *(f"I2cGpioPort.{name}" for name in ("set_direction", "read", "write")),
            *(f"I2cPort.{name}" for name in ("exchange", "write")),
        ],
    ),
    "EasyMCP2221": (
        mcp2221_on,
        [f"Device.{name}" for name in ("I2C_speed", "I2C_write", "I2C_read", "GPIO_read")],
    ),
}


@pytest.mark.parametrize("module", CALLS)
def test_the_stand_ins_take_what_the_libraries_take(module: str) -> None:
    real = pytest.importorskip(module, reason=f"{module} is not installed")
    stand_in, calls = CALLS[module]
    for call in calls:
        owner, _, name = call.partition(".")
        found = inspect.signature(getattr(getattr(stand_in(Wire()), owner), name)).parameters
        wanted = inspect.signature(getattr(getattr(real, owner), name)).parameters
        for parameter in found.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                assert parameter.kind in {one.kind for one in wanted.values()}, call
            else:
                assert parameter.name in wanted, f"{call} has no {parameter.name}: {list(wanted)}"
    if module == "EasyMCP2221":
        assert {"gp0", "out3"} <= set(inspect.signature(real.Device.set_pin_function).parameters)
        assert {"gp0", "gp3"} <= set(inspect.signature(real.Device.GPIO_write).parameters)
        assert {"devnum", "usbserial"} <= set(inspect.signature(real.Device.__init__).parameters)
        assert issubclass(real.exceptions.NotAckError, Exception)
