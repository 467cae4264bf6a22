"""A module after OIF-ITLA-MSA-01.3, as small as a driver's tests need it."""

from __future__ import annotations

from functools import reduce

from lumion_hw.clock import VirtualClock

STRINGS = {0x01: b"CW ITLA\0", 0x02: b"ACME\0", 0x03: b"LX-9\0", 0x04: b"SN42\0", 0x06: b"1.3\0"}
RNI, RVE, CIP, ERE, CIE = 1, 3, 4, 6, 9


def sealed(first: int, register: int, data: int) -> bytes:
    nibbles = [first & 0x0F, register >> 4, register & 15, *(data >> shift & 15 for shift in (12, 8, 4, 0))]
    return bytes((first & 0x0F | reduce(lambda a, b: a ^ b, nibbles) << 4, register, data >> 8, data & 0xFF))


class Module:
    """Registers, an output that takes ``tuning_s`` to come on, and faults that a test asks for."""

    def __init__(self, clock: VirtualClock, *, tuning_s: float = 2.0, lacks: frozenset[int] = frozenset()) -> None:
        self.clock, self.tuning_s, self.lacks = clock, tuning_s, lacks
        self.registers = dict.fromkeys((0x20, 0x21, 0x32, 0x62, 0x65, 0x66, 0x67, 0x69, 0x6A, 0x36), 0)
        self.registers |= {0x30: 1, 0x31: 800, 0x34: 500, 0x35: 193, 0x4F: 6000, 0x50: 600, 0x51: 1350}
        self.registers |= {0x52: 191, 0x53: 5000, 0x54: 196, 0x55: 2500, 0x43: 2500}
        self.pending_until, self.error, self.string = 0.0, 0, b""
        self.log: list[tuple[int, int]] = []
        self.damage_requests = self.damage_replies = 0
        self.replies = self.input = b""
        self.alive = True

    # -- the far end of a link

    def receive(self, data: bytes) -> None:
        self.input += data
        while len(self.input) >= 4:
            frame, self.input = self.input[:4], self.input[4:]
            reply = self.answer(frame)
            if self.damage_replies:
                self.damage_replies -= 1
                reply = bytes((reply[0], reply[1] ^ 1, *reply[2:]))
            self.replies += reply if self.alive else b""

    def transmit(self) -> bytes:
        data, self.replies = self.replies, b""
        return data

    def next_event(self) -> float | None:
        return None

    def close(self) -> None: ...

    # -- what it does

    @property
    def pending(self) -> bool:
        return self.clock.now() < self.pending_until

    @property
    def light(self) -> tuple[float, float] | None:
        if not self.registers[0x32] & 8 or self.pending:
            return None
        words = self.registers
        thz = words[0x35] + words[0x36] * 1e-4 + words[0x67] * 1e-6
        thz += (words[0x30] - 1) * words[0x34] * 1e-4
        return thz, words[0x31] / 100.0

    def answer(self, frame: bytes) -> bytes:
        if self.damage_requests or frame[0] >> 4 != sealed(frame[0], frame[1], frame[2] << 8 | frame[3])[0] >> 4:
            self.damage_requests = max(0, self.damage_requests - 1)
            return sealed(0x0C, 0, 0)
        if frame[0] & 0x08:
            return self.last
        self.last = self.execute(bool(frame[0] & 1), frame[1], frame[2] << 8 | frame[3])
        return self.last

    def execute(self, is_write: bool, register: int, data: int) -> bytes:
        if is_write:
            self.log.append((register, data))
        if register in self.lacks or (is_write and register not in self.registers):
            return self.failed(RNI, register, data)
        if register == 0x00:
            flags, error = (0x0100 if self.pending else 0), self.error
            return sealed(0x04, 0, flags | 0x10 | error)
        if register == 0x0B:
            return self.next_word()
        if register in STRINGS:
            self.string = STRINGS[register] + b"\0" * (len(STRINGS[register]) % 2)
            return sealed(0x06, register, len(STRINGS[register]))
        if register == 0x42:
            return sealed(0x04, register, self.registers[0x31] if self.light else -9900 & 0xFFFF)
        if register not in self.registers:
            return self.failed(RNI, register, data)
        return self.written(register, data) if is_write else sealed(0x04, register, self.registers[register])

    def next_word(self) -> bytes:
        if not self.string:
            return self.failed(ERE, 0x0B, 0)
        word, self.string = self.string[:2], self.string[2:]
        return sealed(0x04, 0x0B, word[0] << 8 | word[1])

    def written(self, register: int, data: int) -> bytes:
        if self.pending:
            return self.failed(CIP, register, data)
        if register in (0x35, 0x36, 0x67) and self.registers[0x32] & 8:
            return self.failed(CIE, register, data)
        value = data - 0x10000 if data & 0x8000 else data
        if register == 0x31 and not self.registers[0x50] <= value <= self.registers[0x51]:
            return self.failed(RVE, register, data)
        before, self.registers[register] = self.registers[register], data
        if register in (0x35, 0x36, 0x67) and not self.in_range():
            self.registers[register] = before
            return self.failed(RVE, register, data)
        self.error = 0
        if register == 0x32 and data & 8 and not before & 8:
            self.pending_until = self.clock.now() + self.tuning_s
            return sealed(0x07, register, data)
        return sealed(0x04, register, data)

    def in_range(self) -> bool:
        fcf, low, high = (self.words(*names) for names in ((0x35, 0x36, 0x67), (0x52, 0x53, 0x69), (0x54, 0x55, 0x6A)))
        return low <= fcf <= high

    def words(self, thz: int, ghz: int, mhz: int) -> int:
        return 1_000_000 * self.registers[thz] + 100 * self.registers[ghz] + self.registers[mhz]

    def failed(self, error: int, register: int, data: int) -> bytes:
        self.error = error
        return sealed(0x05, register, data)
