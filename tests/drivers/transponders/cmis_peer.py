"""A scripted 400ZR module: bytes after CMIS 5.2 and C-CMIS, and what happens when a host writes some.

It knows nothing of the register table: addresses are written out, so that the driver is judged by bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from lumion_hw.clock import VirtualClock
from lumion_hw.sessions.module.registers import ModuleAbsentError

READY, LOW_PWR, PWR_UP, PWR_DN, FAULT = 3, 1, 2, 4, 5
DEACTIVATED, INIT, DEINIT, ACTIVATED, TURN_ON, TURN_OFF, INITIALIZED = range(1, 8)
COR = {  # flags that are cleared by a read; 33h is of C-CMIS
    0x00: range(8, 14),
    0x11: range(134, 154),
    0x12: range(231, 239),
    0x14: range(132, 140),
    0x2C: range(128, 256),
    0x33: range(128, 133),
}


def text(words: str, length: int) -> bytes:
    return words.encode().ljust(length)


def signed(value: int, length: int = 2) -> bytes:
    return value.to_bytes(length, "big", signed=True)


class Peer:
    """One module at 0x50.

    Attributes:
        log: Every write: page (``None`` below), byte, data.
        causes: Flag bits that are set again as long as they stand here: (page, byte) to mask.
    """

    name = "peer"
    POWER_UP_S, INIT_S, DEINIT_S, TURN_ON_S, TURN_OFF_S = 15.0, 20.0, 0.3, 0.05, 0.005
    APPLY_S, TUNING_S, FREEZE_S = 0.02, 5.0, 0.05

    def __init__(self, clock: VirtualClock, *, ready: bool = True) -> None:
        self.clock = clock
        self.lower = bytearray(128)
        self.pages = {page: bytearray(128) for page in (0, 1, 2, 4, 0x10, 0x11, 0x12, 0x13, 0x14, 0x20, 0x24, 0x2C)}
        self.pages |= {page: bytearray(128) for page in (0x28, 0x2D, 0x2F, 0x33, 0x34, 0x35, 0x9F)}
        self.log: list[tuple[int | None, int, bytes]] = []
        self.reads: list[tuple[int | None, int, int]] = []
        self.causes: dict[tuple[int, int], int] = {}
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.plugged = True
        self.pin = False
        self.reject: int | None = None
        self.tuning_flag = 0
        self.stuck: set[str] = set()
        self._identity()
        self._advertise()
        self._observe()
        if ready:
            self.lower[26] = 0x00
            self.lower[3] = READY << 1 | 1

    # -- bytes

    def put(self, page: int | None, byte: int, data: bytes) -> None:
        half = self.lower if page is None else self.pages[page]
        start = byte if page is None else byte - 128
        half[start : start + len(data)] = data

    def get(self, page: int | None, byte: int, length: int = 1) -> bytes:
        half = self.lower if page is None else self.pages[page]
        start = byte if page is None else byte - 128
        return bytes(half[start : start + length])

    def checksum(self) -> None:
        """The sums over 00h, 01h, 02h and 04h."""
        for page, first, last, at in ((0, 128, 221, 222), (1, 130, 254, 255), (2, 128, 254, 255), (4, 128, 254, 255)):
            self.put(page, at, bytes([sum(self.get(page, first, last - first + 1)) % 256]))

    def _identity(self) -> None:
        self.put(None, 0, b"\x18\x52\x00\x03")  # QSFP-DD, CMIS 5.2, paged, low power
        self.put(None, 14, bytes.fromhex("2d00") + bytes.fromhex("80e8"))  # 45 degC, 3.3 V
        self.put(None, 18, bytes(2) + signed(0x3200) + bytes(4))  # Aux2: laser at 50 degC
        self.put(None, 26, b"\x40")
        self.put(None, 39, b"\x01\x02")
        self.put(None, 85, b"\x02")
        # 400GAUI-8 to 400ZR, 8 to 1 lanes from lane 1; 100GAUI-2 to 400ZR, 2 to 1 from lanes 1, 3, 5, 7
        self.put(None, 86, bytes.fromhex("113e81010d3e2155ff000000") + bytes([0xFF, 0, 0, 0]) * 5)
        self.put(0, 128, b"\x18" + text("LUMION TEST", 16) + bytes(3) + text("ZR-400", 16) + b"A1")
        self.put(0, 166, text("SN0001", 16) + b"260101  ")
        self.put(0, 200, bytes([0xE0, 80, 0, 0x07]))  # power class 8, 20 W, LC
        self.put(0, 212, b"\x10")  # C-band tunable laser

    def _advertise(self) -> None:
        self.put(1, 138, (1552524 // 50).to_bytes(2, "big"))  # 1552.5 nm in 0.05 nm
        self.put(1, 142, bytes([0x60]))  # VDM, diagnostics
        self.put(1, 144, bytes([0x59]))  # deinit <= 0.5 s, init <= 60 s
        self.put(1, 145, b"\x80")
        self.put(1, 155, bytes([0xC2, 0x00, 0x01, 0x06]))  # tunable, Tx disable; Tx failure; Rx LOL, LOS
        self.put(1, 159, bytes([0x0B, 0x07]))  # temperature, Vcc, Aux2; bias, Tx and Rx power
        self.put(1, 163, b"\x40")  # one CDB instance
        self.put(1, 167, bytes([0x79, 0x14]))  # down <= 5 s, up <= 60 s; off <= 5 ms, on <= 100 ms
        self.put(1, 176, b"\x01\x01")
        self.put(2, 192, bytes.fromhex("271000641f070107"))  # Rx 0, -20, -1, -15.8 dBm
        self.put(2, 176, bytes.fromhex("621f006427100107"))
        self.put(2, 128, bytes.fromhex("4b00f6004600fb008dcc7404875a7a76"))
        self.put(2, 184, bytes.fromhex("fde82710ea603a98"))
        self.put(4, 128, bytes([0xA2, 0x80]))  # 75, 100, 6.25 GHz; fine tuning
        self.put(4, 134, signed(-276) + signed(480))  # 6.25 GHz: 191.375 to 196.1 THz
        self.put(4, 150, signed(-17) + signed(30))  # 100 GHz
        self.put(4, 158, signed(-69) + signed(120))  # 75 GHz
        self.put(4, 190, signed(100) + signed(-6000) + signed(6000) + b"\x80")
        self.put(4, 198, signed(-2200) + signed(0))
        self.put(0x13, 128, bytes([0x02, 0x00, 0x21]))  # media-input loopback; media SNR, BER
        self.put(0x13, 134, b"\x22\x00")  # media generator: PRBS31, PRBS23... bits 1 and 5
        self.checksum()

    def _observe(self) -> None:
        """Data path 1 runs application 1 on all lanes, deactivated; the laser is at 193.1 THz on 100 GHz, -10 dBm."""
        self.put(0x10, 128, b"\xff\x00\xff")
        self.put(0x10, 145, b"\x10" * 8)
        self.put(0x11, 206, b"\x10" * 8)
        self.put(0x11, 202, b"\x11" * 4)
        self.dp_state(DEACTIVATED)
        self.put(0x12, 128, b"\x50")
        self.put(0x12, 168, (193_100_000).to_bytes(4, "big"))
        self.put(0x12, 200, signed(-1000))
        self.put(0x11, 170, (42500).to_bytes(2, "big"))  # 85 mA
        self.put(0x2F, 128, b"\x00")
        types = (
            9,
            11,
            13,
            15,
            138,
            139,
            140,
            143,
            144,
            0xEE,
        )  # BER, PDL, OSNR, eSNR, Tx, Rx; unknown
        for number, kind in enumerate(types):
            self.put(0x20, 128 + 2 * number, bytes([0x00, kind]))
        self.receive(True)

    def receive(self, light: bool) -> None:
        """A good signal of -8 dBm, or darkness."""
        samples = (0x93E8, 0x94E8, 0x9450, 0x944C, 5, 340, 165, -1000 & 0xFFFF, -800 & 0xFFFF, 7)
        self.put(0x24, 128, b"".join(value.to_bytes(2, "big") for value in samples))
        self.put(0x11, 186, bytes.fromhex("0631" if light else "0000"))  # 1585 counts: -8.0 dBm
        self.causes[0x11, 147] = 0 if light else 1
        self.causes[0x11, 148] = 0 if light else 1
        bits = 10**12 if light else 0
        counters = (bits, bits // 10, bits // 900, bits // 10000, bits // 8000)
        self.put(0x34, 128, b"".join(value.to_bytes(8, "big") for value in counters))
        self.put(0x34, 168, b"".join(value.to_bytes(4, "big") for value in (10**6, 10**5, 0, 0, 0)))
        self.put(0x14, 208, bytes(2))  # no pattern is being checked
        self.put(0x14, 240, (0x1080).to_bytes(2, "little"))
        triples = {152: (5, 4, 6), 158: (340, 330, 350), 164: (165, 160, 170), 182: (-1000,) * 3, 188: (-800,) * 3}
        for byte, values in triples.items():
            self.put(0x35, byte, b"".join(signed(value) for value in values))

    def dp_state(self, code: int) -> None:
        self.put(0x11, 128, bytes([code << 4 | code]) * 4)
        lit = code == ACTIVATED
        self.put(0x11, 133, b"\x01" if lit else b"\x00")
        self.put(0x11, 154, bytes.fromhex("03e8" if lit else "0000"))  # -10 dBm

    # -- the bus

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.due.append((self.clock.now() + delay_s, action))

    def _access(self) -> None:
        if not self.plugged:
            raise ModuleAbsentError("no module")
        for item in sorted((item for item in self.due if item[0] <= self.clock.now()), key=lambda item: item[0]):
            self.due.remove(item)
            item[1]()

    def read(self, offset: int, length: int) -> bytes:
        self._access()
        page = None if offset < 128 else self.lower[127]
        self.reads.append((page, offset, length))
        data = bytearray((self.lower + self.pages[self.lower[127]])[offset : offset + length])
        number = page or 0
        for byte in COR.get(number, ()):
            if offset <= byte < offset + length and (number != 0 or page is None):
                data[byte - offset] |= self.causes.get((number, byte), 0)
                self.put(page, byte, b"\x00")
        return bytes(data)

    def write(self, offset: int, data: bytes) -> None:
        self._access()
        page = None if offset < 128 else self.lower[127]
        if offset in (126, 127):
            self.put(None, offset, data)
            if self.lower[126] or self.lower[127] not in self.pages:
                self.put(None, 126, b"\x00\x00")
            return
        self.log.append((page, offset, data))
        self.put(page, offset, data)
        self._react(page, offset, data)

    def writes(self, page: int | None, byte: int) -> list[bytes]:
        return [data for where, at, data in self.log if (where, at) == (page, byte)]

    # -- what a write does

    def _react(self, page: int | None, byte: int, data: bytes) -> None:
        if (page, byte) == (None, 26):
            self._power()
        elif page == 0x10 and byte in (128, 130):
            self._data_path()
        elif (page, byte) == (0x10, 143):
            self._apply(data[0])
        elif page == 0x12 and byte in (136, 152):
            self._tune()
        elif page == 0x12 and byte == 200 and int.from_bytes(data, "big", signed=True) == -1234:
            self.put(0x12, 231, b"\x20")  # this one value is refused by the module
        elif (page, byte) == (0x2F, 144) and "freeze" not in self.stuck:
            done = 0x80 if data[0] & 0x80 else 0x40
            self.put(0x2F, 145, b"\x00")
            self.later(self.FREEZE_S, lambda: self.put(0x2F, 145, bytes([done])))

    def _module(self, state: int) -> None:
        self.lower[3] = state << 1 | 1

    def _power(self) -> None:
        control, state = self.lower[26], self.lower[3] >> 1
        if control & 0x08:
            self.lower[26] = 0x40
            self.dp_state(DEACTIVATED)
            self._module(LOW_PWR)
            return
        low = bool(control & 0x10 or (control & 0x40 and self.pin))
        if low and state == READY:
            self.dp_state(DEACTIVATED)
            self._module(PWR_DN)
            self.later(2.0, lambda: self._module(LOW_PWR))
        elif not low and state == LOW_PWR and "power_up" not in self.stuck:
            self._module(PWR_UP)
            self.later(self.POWER_UP_S, lambda: self._module(READY))

    def _data_path(self) -> None:
        if self.lower[3] >> 1 != READY:
            return
        state = self.get(0x11, 128)[0] & 0x0F
        deinit, dark = self.get(0x10, 128)[0], self.get(0x10, 130)[0] & 1
        if deinit:
            if state in (ACTIVATED, INITIALIZED):
                self._go(DEINIT, self.DEINIT_S, DEACTIVATED)
        elif state == DEACTIVATED:
            self._go(INIT, self.INIT_S, INITIALIZED)
        elif state == INITIALIZED and not dark:
            self._go(TURN_ON, self.TURN_ON_S, ACTIVATED)
        elif state == ACTIVATED and dark:
            self._go(TURN_OFF, self.TURN_OFF_S, INITIALIZED)

    def _go(self, through: int, delay_s: float, to: int) -> None:
        def arrive() -> None:
            self.dp_state(to)
            self._data_path()

        self.dp_state(through)
        if through == INIT and "init" in self.stuck:
            return
        self.later(delay_s, arrive)

    def _apply(self, mask: int) -> None:
        self.put(0x10, 143, b"\x00")
        self.put(0x11, 202, b"\xcc" * 4)

        def done() -> None:
            if self.reject is not None:
                self.put(0x11, 202, bytes([self.reject << 4 | self.reject]) * 4)
                return
            staged = self.get(0x10, 145, 8)
            active = bytearray(self.get(0x11, 206, 8))
            for lane in range(8):
                if mask >> lane & 1:
                    active[lane] = staged[lane]
            self.put(0x11, 206, bytes(active))
            self.put(0x11, 202, b"\x11" * 4)

        if "config" not in self.stuck:
            self.later(self.APPLY_S, done)

    def _tune(self) -> None:
        if self.tuning_flag:
            self.put(0x12, 231, bytes([self.tuning_flag]))
            return
        grid = self.get(0x12, 128)[0]
        channel = int.from_bytes(self.get(0x12, 136, 2), "big", signed=True)
        fine = int.from_bytes(self.get(0x12, 152, 2), "big", signed=True) if grid & 1 else 0
        step = {1: 6250, 5: 100_000, 7: 25_000}[grid >> 4]
        mhz = 193_100_000 + channel * step + fine
        self.put(0x12, 222, b"\x03")

        def done() -> None:
            self.put(0x12, 168, mhz.to_bytes(4, "big"))
            self.put(0x12, 222, b"\x00")
            self.put(0x12, 231, b"\x01")

        if "tuning" not in self.stuck:
            self.later(self.TUNING_S, done)
