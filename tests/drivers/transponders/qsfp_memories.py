"""The memories of a 100GBASE-LR4 module and of a copper cable, written down from SFF-8636, and a module with them."""

from __future__ import annotations

from collections.abc import Callable

from lumion_hw.clock import VirtualClock
from lumion_hw.sessions.module.registers import NotRespondingError

# 11h, revision 2.8; 30.5 degC, 3.3 V; received 0, -3.01, -6.02, -10 dBm; 40 mA; launched 0 dBm; clock recoveries on.
LOWER = (
    bytes.fromhex("110800" + "00" * 19 + "1E80" + "0000" + "80E8" + "000000000000")
    + bytes.fromhex("2710138809C403E8" + "4E20" * 4 + "2710" * 4)
    + bytes(28)
    + bytes(12)
    + bytes.fromhex("FF")
    + bytes(29)
)
# Class 4 with both clock recoveries, LC, 64B/66B, 10 km, cooled 1310 nm EML, 1302.35 +- 1.03 nm, 70 degC.
BASE = (
    bytes.fromhex("11CC07" + "8000000000000000" + "05FF00" + "0A00000000" + "64")
    + b"LUMION TEST     "
    + bytes.fromhex("00" + "020406")
    + b"QSFP28-LR4-TEST A1"
    + bytes.fromhex("65BF" + "00CE" + "46" + "00")
)
# 100GBASE-LR4; all options except rate select and page 01h; all monitors, average power; software reset.
EXTENDED = (
    bytes.fromhex("03" + "07FF9E")
    + b"QT0000000001    "
    + b"260101  "
    + bytes.fromhex("3C" + "11" + "67" + "00")
    + bytes(32)
)
# 75/-5/70/0 degC, 3.63/2.97/3.465/3.135 V, 5/-14.5/4/-12.5 dBm, 75/10/70/15 mA, 5/-8.5/4/-7.5 dBm.
THRESHOLDS = (
    bytes.fromhex("4B00FB0046000000" + "00" * 8 + "8DCC7404875A7A76" + "00" * 24)
    + bytes.fromhex("7B860163621F0232" + "927C138888B81D4C" + "7B860584621F06F2")
    + bytes(56)
)
USER = b"lumion".ljust(128, b"\x00")
# Passive cable of 3 m: no separable connector, 40GBASE-CR4 and 100GBASE-CR4, 4, 6, 8, 11 and 22 dB, flat memory.
CABLE_LOWER = bytes.fromhex("110806") + bytes(125)
CABLE_BASE = (
    bytes.fromhex("110023" + "8800000000000000" + "00FF00" + "00000016" + "03" + "A0")
    + b"LUMION TEST     "
    + bytes.fromhex("00" + "020406")
    + b"DAC-3M          A "
    + bytes.fromhex("0406080B" + "00" + "00")
)
CABLE_EXTENDED = (
    bytes.fromhex("0B" + "000000") + b"CB0000000001    " + b"260102  " + bytes.fromhex("00006700") + bytes(32)
)


def sealed(page: bytes) -> bytearray:
    """Return page 00h with the check sums that its bytes need."""
    data = bytearray(page)
    for first, last, at in ((0, 62, 63), (64, 94, 95)):
        data[at] = sum(data[first : last + 1]) % 256
    return data


def lr4() -> dict[int | None, bytearray]:
    """Return the pages of the 100GBASE-LR4 module."""
    return {
        None: bytearray(LOWER),
        0x00: sealed(BASE + EXTENDED),
        0x02: bytearray(USER),
        0x03: bytearray(THRESHOLDS),
    }


def cable() -> dict[int | None, bytearray]:
    """Return the two pages of the cable."""
    return {None: bytearray(CABLE_LOWER), 0x00: sealed(CABLE_BASE + CABLE_EXTENDED)}


def old_cable() -> dict[int | None, bytearray]:
    """Return the pages of a cable before revision 2.0: no compliance code, NUL bytes as the vendor's revision."""
    pages = cable()
    pages[None][1] = pages[0][131 - 128] = pages[0][192 - 128] = 0x00
    pages[0][184 - 128 : 186 - 128] = bytes(2)
    return pages | {0: sealed(bytes(pages[0]))}


def sr4() -> dict[int | None, bytearray]:
    """Return the pages of a 100GBASE-SR4 module: MPO, 850 nm VCSELs, 70 m of OM3 and 100 m of OM4 fibre."""
    pages = lr4()
    pages[0][130 - 128], pages[0][192 - 128], pages[0][147 - 128] = 0x0C, 0x02, 0x00
    pages[0][142 - 128 : 147 - 128] = bytes((0, 35, 0, 0, 50))
    return pages | {0: sealed(bytes(pages[0]))}


def silent() -> dict[int | None, bytearray]:
    """Return the pages of a module before revision 2.8 whose readings are all 0."""
    pages = lr4()
    pages[None][1] = 0x00
    pages[None][22:58] = bytes(36)
    return pages


ALL = {"lr4": lr4, "cable": cable, "old cable": old_cable, "sr4": sr4, "silent": silent}
"""Each of these memories, by name."""


def linear(pages: dict[int | None, bytearray]) -> bytes:
    """Return a memory file: the lower memory, then pages 00h to 03h as far as they exist."""
    last = max(page for page in pages if page is not None)
    return bytes(pages[None]) + b"".join(bytes(pages.get(page, bytearray(128))) for page in range(last + 1))


class Module:
    """A module at one I2C address: pages, flags that reading clears, and transmitters with a delay."""

    name = "cage 1"

    def __init__(self, clock: VirtualClock, pages: dict[int | None, bytearray] | None = None) -> None:
        self.clock = clock
        self.pages = lr4() if pages is None else pages
        self.causes: dict[int, int] = {}  # flag byte and bits whose cause persists
        self.obeys = True
        self.stuck_on = 0  # lanes whose transmitter ignores the bit
        self.laser_delay_s = 0.05
        self.silent_until_s = 0.0
        self.is_open = False
        self.writes: list[tuple[int, bytes]] = []
        self.on_read: Callable[[int], None] = lambda offset: None
        self._switched_s = -1.0

    def open(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False

    @property
    def upper(self) -> bytearray:
        return self.pages[self.pages[None][127]]

    def read(self, offset: int, length: int) -> bytes:
        self._acknowledge()
        self.on_read(offset)
        self._shine()
        data = bytes(self.pages[None] + self.upper)[offset : offset + length]
        for byte in range(max(offset, 3), min(offset + length, 22)):
            self.pages[None][byte] = self.causes.get(byte, 0)
        return data

    def write(self, offset: int, data: bytes) -> None:
        self._acknowledge()
        if self.pages[None][2] & 0x04:
            raise NotRespondingError("a cable without memory for writes")
        self.writes.append((offset, data))
        for at, byte in enumerate(data, start=offset):
            if at >= 128:
                self.upper[at - 128] = byte
            elif at == 127:
                self.pages[None][127] = byte if byte in self.pages else 0
            elif self.obeys:
                self.pages[None][at] = byte
        if offset <= 93 < offset + len(data) and self.pages[None][93] & 0x80:
            self.reset()
        self._switched_s = self.clock.now()

    def reset(self) -> None:
        """Return the controls to their defaults and be silent for a while."""
        self.pages[None][86:94] = bytes(8)
        self.pages[None][98] = 0xFF
        self.pages[None][127] = 0
        self.silent_until_s = self.clock.now() + 0.5

    def _acknowledge(self) -> None:
        if self.clock.now() < self.silent_until_s:
            raise NotRespondingError("not acknowledged")

    def _shine(self) -> None:
        if self.clock.now() < self._switched_s + self.laser_delay_s or not self.pages[0x00][92] & 0x04:
            return
        lower = self.pages[None]
        asleep = lower[93] & 0x03 == 0x03
        for lane in range(4):
            off = asleep or lower[86] >> lane & 1
            lit = not off or self.stuck_on >> lane & 1
            lower[50 + 2 * lane : 52 + 2 * lane] = b"\x27\x10" if lit else bytes(2)
