"""The SFP driver through the UART-to-I2C bridge: the two together, with a module that is busy after writes."""

from __future__ import annotations

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.sfp import SfpTransponder
from lumion_hw.errors import LinkError, LinkTimeout
from lumion_hw.links import MemoryLink
from lumion_hw.sessions.module.registers import ModuleAbsentError, NotRespondingError
from lumion_hw.sessions.module.sc18im700 import Sc18im700
from lumion_hw.standards.registers import checksum, encode_unscaled
from lumion_hw.standards.sff8472.registers import FIELDS

BYTE_S = 10 / 9600


def memories() -> dict[int, bytearray]:
    """A small but valid 10GBASE-LR module: 25.5 degC, 3.3 V, 100 mA, 0 dBm out, -10 dBm in."""
    values: dict[str, int | str | float] = {
        "identifier": 3,
        "vendor_name": "MAKER",
        "part_number": "PART",
        "revision": "B",
        "serial_number": "S1",
        "date_code": "250131",
        "wavelength": 1310,
        "diagnostic_type": 0x68,
        "enhanced_options": 0xF0,
        "temperature": 0x1980,
        "supply": 0x80E8,
        "tx_bias": 0xC350,
        "tx_power": 0x2710,
        "rx_power": 0x03E8,
        "tx_power_high_alarm": 0x621F,
        "tx_power_low_alarm": 0x0D3C,
    }
    image = {0x50: bytearray(256), 0x51: bytearray(256)}
    image[0x50][3] = 0x20
    image[0x50][65] = 0x1A
    for name, value in values.items():
        field = FIELDS[name]
        image[field.space][field.byte : field.end] = encode_unscaled(field, value)
    for device, first, last in ((0x50, 0, 62), (0x50, 64, 94), (0x51, 0, 94)):
        image[device][last + 1] = checksum(image[device][first : last + 1])
    return image


class BridgeAndModule:
    """A bridge after its data sheet (clauses 7.1.1, 7.1.4, 7.1.7) with one module on its bus."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.memory = memories()
        self.plugged = True
        self.busy_until_s = 0.0
        self.busy_after_write_s = 0.08
        self.silent = False
        self.longest_message = 0
        self._status = 0xF0
        self._heard = b""
        self._under_way: list[tuple[float, bytes]] = []

    def receive(self, data: bytes) -> None:
        self._heard += data
        while self._heard:
            if self._heard[:1] == b"R" and len(self._heard) >= 3:
                self._send(bytes([self._status]))
                self._heard = self._heard[3:]
                continue
            address, n_bytes = self._heard[1], self._heard[2]
            payload, rest = self._heard[3 : 3 + n_bytes], self._heard[3 + n_bytes :]
            self.longest_message = max(self.longest_message, len(self._heard) - len(rest) + 1)
            if rest[:1] == b"S":
                self._read(address >> 1, payload[0], rest[2])
                self._heard = rest[4:]
            else:
                self._write(address >> 1, payload[0], payload[1:])
                self._heard = rest[1:]

    def _answers(self, device: int) -> bool:
        there = self.plugged and device in self.memory and self.clock.now() >= self.busy_until_s
        self._status = 0xF0 if there else 0xF1
        return there

    def _read(self, device: int, offset: int, length: int) -> None:
        assert length <= 16
        if self._answers(device):
            self._send(bytes(self.memory[device][offset : offset + length]))

    def _write(self, device: int, offset: int, data: bytes) -> None:
        if self._answers(device):
            self.memory[device][offset : offset + len(data)] = data
            lit = not self.memory[0x51][110] & 0x40
            self.memory[0x51][102:104] = bytes.fromhex("2710" if lit else "0000")
            self.busy_until_s = self.clock.now() + self.busy_after_write_s

    def _send(self, data: bytes) -> None:
        if not self.silent:
            starts = max([self.clock.now(), *(due for due, _ in self._under_way)])
            self._under_way.append((starts + len(data) * BYTE_S, data))

    def transmit(self) -> bytes:
        due = [piece for when, piece in self._under_way if when <= self.clock.now()]
        self._under_way = self._under_way[len(due) :]
        return b"".join(due)

    def next_event(self) -> float | None:
        return self._under_way[0][0] if self._under_way else None

    def close(self) -> None:
        self._under_way = []


@pytest.fixture
def slot() -> BridgeAndModule:
    return BridgeAndModule(VirtualClock())


def driver(slot: BridgeAndModule) -> tuple[SfpTransponder, Sc18im700]:
    registers = Sc18im700(MemoryLink(lambda: slot, slot.clock, "slot"), slot.clock, device="sfp")
    return SfpTransponder(registers, slot.clock, device="sfp"), registers


def test_the_whole_user_flow(slot: BridgeAndModule) -> None:
    sfp, registers = driver(slot)
    with sfp:
        identity = sfp.identify()
        assert (identity.technology, identity.wavelength_nm, identity.serial) == ("10GBASE-LR", 1310.0, "S1")
        monitors = sfp.monitors()
        assert (monitors.temperature_c, monitors.tx_power_dbm) == (25.5, 0.0)
        assert monitors.rx_power_dbm == pytest.approx(-10.0)
        sfp.disable()
        assert sfp.monitors().tx_power_dbm is None
        assert sfp.status().tx_disabled
        sfp.enable()
        assert sfp.monitors().tx_power_dbm == pytest.approx(0.0)
    assert slot.longest_message <= 16
    assert registers.counters.incomplete == 0


def test_a_module_busy_after_a_write_is_waited_for(slot: BridgeAndModule) -> None:
    sfp, _ = driver(slot)
    sfp.open()
    started = slot.clock.now()
    sfp.disable()
    assert slot.clock.now() - started >= 0.08


def test_an_empty_slot_is_told_from_a_silent_bridge(slot: BridgeAndModule) -> None:
    slot.plugged = False
    sfp, _ = driver(slot)
    with pytest.raises(ModuleAbsentError, match="plugged in"):
        sfp.open()
    slot.silent = True
    with pytest.raises(LinkError, match="SC18IM700"):
        sfp.open()


def test_a_module_pulled_out_in_operation_is_absent_and_back_again(slot: BridgeAndModule) -> None:
    sfp, _ = driver(slot)
    sfp.open()
    slot.plugged = False
    with pytest.raises(NotRespondingError):  # 0x51 alone cannot tell
        sfp.monitors()
    with pytest.raises(ModuleAbsentError):
        sfp.identify()
    slot.plugged = True
    assert sfp.identify().serial == "S1"
    assert sfp.monitors().temperature_c == 25.5


def test_a_bridge_that_is_silent_for_a_while_is_resynchronised(slot: BridgeAndModule) -> None:
    sfp, registers = driver(slot)
    sfp.open()
    slot.silent = True
    with pytest.raises(LinkTimeout):
        sfp.status()
    slot.silent = False
    assert sfp.monitors().temperature_c == 25.5
    assert registers.counters.resyncs == 1
