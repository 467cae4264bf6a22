"""A PM1000 after its User's Guide 0.4.8, as small as a driver's tests need it, in both forms of its registers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from lumion_hw.clock import VirtualClock

NAME = b"PM1000-100M-XL-FA-N20-D 82".ljust(32, b"\0")
MAX_UW = 2512.0  # 4 dBm
MIN_UW = 15.8  # -18 dBm


class Polarimeter:
    """Registers from 512. ``light(time)`` gives power in µW, state and degree of polarization.

    The live registers are of the moment in which they are read; their copies of the moment in which S0 was read.
    """

    def __init__(self, clock: VirtualClock, *, text: bool = False) -> None:
        self.clock, self.text = clock, text
        self.light: Callable[[float], tuple[float, tuple[float, float, float], float]] = lambda _: (
            100.0,
            (0.48, -0.6, 0.64),
            0.9,
        )
        self.registers = {0: 0, 1: 10, 45: 0, 46: 1, 67: 19130, 68: 19620, 69: 19340, 128: 0x1072, 133: 82, 134: 2512}
        self.registers |= {144 + i: int.from_bytes(NAME[2 * i : 2 * i + 2], "big") for i in range(16)}
        self.copies: dict[int, int] = {}
        self.writes: list[tuple[int, int]] = []
        self.keeps: set[int] = set()
        self.seconds_per_access = 0.0
        self.ahead = b""
        self.lose = 0
        self.late_s = self.latency_s = 0.0
        self.alive = True
        self._input = b""
        self._out: deque[tuple[float, bytes]] = deque()

    # -- the far end of a link

    def receive(self, data: bytes) -> None:
        self._input += data
        while request := self.next_request():
            self.clock.sleep(self.seconds_per_access)
            letter, address, word = request
            if letter == b"W":
                self.write(address - 512, word)
            elif self.alive:
                found = self.read(address - 512)
                self.say(b"%04X\r" % found if self.text else found.to_bytes(2, "big"))

    def next_request(self) -> tuple[bytes, int, int] | None:
        if self.text:
            line, end, rest = self._input.partition(b"\r")
            if not end:
                return None
            self._input = rest
            if len(line) != 8 or line[:1] not in (b"R", b"W"):
                return self.next_request()
            return line[:1], int(line[1:4], 16), int(line[4:], 16)
        while self._input and self._input[:1] not in (b"R", b"W"):
            self._input = self._input[1:]
        length = 3 if self._input[:1] == b"R" else 5
        if len(self._input) < length:
            return None
        frame, self._input = self._input[:length], self._input[length:]
        return frame[:1], int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:], "big")

    def transmit(self) -> bytes:
        data = b""
        while self._out and self._out[0][0] <= self.clock.now():
            data += self._out.popleft()[1]
        return data

    def next_event(self) -> float | None:
        return self._out[0][0] if self._out else None

    def close(self) -> None: ...

    def say(self, data: bytes) -> None:
        self._out.append((self.clock.now() + self.latency_s + self.late_s, self.ahead + data[self.lose :]))
        self.ahead, self.lose, self.late_s = b"", 0, 0.0

    # -- what it does

    def write(self, offset: int, word: int) -> None:
        self.writes.append((offset, word))
        if offset in self.registers and offset not in self.keeps:
            self.registers[offset] = word

    def read(self, offset: int) -> int:
        if offset == 10:
            live = self.live()
            self.copies = {11: live[11]} | {18 + i: live[12 + i] for i in range(6)}
            return live[10]
        if offset in (11, *range(18, 24)):
            return self.copies.get(offset, 0)
        if 12 <= offset <= 17:
            return self.live()[offset]
        return self.registers.get(offset, 0)

    def live(self) -> dict[int, int]:
        power_uw, state, dop = self.light(self.clock.now())
        self.registers[0] |= (3 if power_uw > MAX_UW else 0) | (5 if power_uw < MIN_UW else 0)
        power_uw = min(power_uw, 60000.0)
        words = dict(zip((10, 11), divmod(round(power_uw * 65536), 65536), strict=True))
        for i, part in enumerate(np.array(state) * dop * min(power_uw, 32000.0)):
            high, low = divmod(round((part + 32768) * 65536), 65536)
            words |= {12 + 2 * i: high, 13 + 2 * i: low}
        return words
