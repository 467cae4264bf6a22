"""A paddle controller after the Thorlabs APT protocol, as small as a driver's tests need it."""

from __future__ import annotations

import struct
from collections import deque

from lumion_hw.clock import VirtualClock

FORWARD, BACK, HOMING, HOMED, SETTLED, ERROR, ENABLED = (1 << bit for bit in (4, 5, 9, 10, 13, 14, 31))


class Paddle:
    """One paddle: where it goes, when it will be there, and what a test does to it."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.start, self.target, self.left_at, self.due = 685, 685, 0.0, 0.0
        self.homed, self.enabled, self.error, self.stuck, self.homing, self.off = True, False, False, False, False, 0

    @property
    def moving(self) -> bool:
        return self.clock.now() < self.due

    @property
    def counts(self) -> int:
        if not self.moving:
            return self.target + self.off
        part = (self.clock.now() - self.left_at) / (self.due - self.left_at)
        return round(self.start + part * (self.target - self.start))

    def go(self, counts: int, counts_per_s: float) -> None:
        self.start, self.left_at = self.counts, self.clock.now()
        if not self.stuck and self.enabled:
            self.target, self.due = counts, self.clock.now() + abs(counts - self.start) / counts_per_s
        else:
            self.target = self.start

    @property
    def bits(self) -> int:
        bits = (HOMED if self.homed and not (self.homing and self.moving) else 0) | (ENABLED if self.enabled else 0)
        bits |= ERROR if self.error else 0
        if not self.moving:
            return bits | SETTLED
        return bits | (HOMING if self.homing else 0) | (FORWARD if self.target > self.start else BACK)


class Controller:
    """Two or three paddles; ``chatter`` sends the state of every paddle before each reply."""

    def __init__(self, clock: VirtualClock, n_paddles: int = 3) -> None:
        self.clock = clock
        self.paddles = {1 << index: Paddle(clock) for index in range(n_paddles)}
        self.velocity, self.home, self.jogs = 100, 685, (201, 201, 201)
        self.keeps_velocity = False
        self.log: list[bytes] = []
        self.written_at: list[float] = []
        self.silent_for: set[int] = set()
        self.chatter = False
        self.ahead = b""  # put in front of the next reply
        self.cut = 0  # the next reply loses so many bytes at its end
        self.late_s = 0.0
        self.alive = True
        self._input = b""
        self._out: deque[tuple[float, bytes]] = deque()
        self._moves: list[tuple[int, int]] = []

    # -- the far end of a link

    def receive(self, data: bytes) -> None:
        self.written_at.append(self.clock.now())
        self._input += data
        while len(self._input) >= 6:
            n_data = struct.unpack_from("<H", self._input, 2)[0] if self._input[4] & 0x80 else 0
            if len(self._input) < 6 + n_data:
                return
            frame, self._input = self._input[: 6 + n_data], self._input[6 + n_data :]
            if frame[4] & 0x7F == 0x50 and self.alive:
                self.log.append(frame)
                self.execute(int.from_bytes(frame[:2], "little"), frame)

    def transmit(self) -> bytes:
        self.report_moves()
        data = b""
        while self._out and self._out[0][0] <= self.clock.now():
            data += self._out.popleft()[1]
        return data

    def next_event(self) -> float | None:
        return min((due for due, _ in self._out), default=None)

    def close(self) -> None: ...

    # -- what it does

    def say(self, data: bytes) -> None:
        if self.late_s:
            self._out.append((self.clock.now(), self.ahead))
            self.ahead = b""
        data = self.ahead + (data[: -self.cut] if self.cut else data)
        self.ahead, self.cut = b"", 0
        if self.chatter:
            data = b"".join(map(self.status, self.paddles)) + data
        self._out.append((self.clock.now() + self.late_s, data))
        self.late_s = 0.0

    def status(self, channel: int) -> bytes:
        paddle = self.paddles[channel]
        return struct.pack("<HHBBHihhI", 0x0491, 14, 0x81, 0x50, channel, paddle.counts, 0, 0, paddle.bits)

    def report_moves(self) -> None:
        for message, channel in list(self._moves):
            if not self.paddles[channel].moving:
                self._moves.remove((message, channel))
                self._out.append((self.clock.now(), struct.pack("<HBBBB", message, channel, 0, 0x01, 0x50)))

    def execute(self, message: int, frame: bytes) -> None:
        channel = frame[2] if len(frame) == 6 else frame[6]
        if channel in self.silent_for:
            return
        if message == 0x0490 and channel in self.paddles:
            self.say(self.status(channel))
        elif message == 0x0531:
            words = (0, self.velocity, self.home, *self.jogs)
            self.say(struct.pack("<HHBB6H", 0x0532, 12, 0x81, 0x50, *words))
        elif message == 0x0530:
            _, velocity, self.home, *jogs = struct.unpack_from("<6H", frame, 6)
            self.velocity = self.velocity if self.keeps_velocity else velocity
            self.jogs = tuple(jogs)
        elif message == 0x0210:
            for each, paddle in self.paddles.items():  # enabling some disables the others
                paddle.enabled = bool(channel & each) and frame[3] == 1
        elif message == 0x0453 and channel in self.paddles:
            self.move(0x0464, channel, struct.unpack_from("<i", frame, 8)[0])
        elif message == 0x0443 and channel in self.paddles:
            self.paddles[channel].homing = True
            self.move(0x0444, channel, self.home)
            self.paddles[channel].homed = self.paddles[channel].enabled

    def move(self, report: int, channel: int, counts: int) -> None:
        self.paddles[channel].homing = report == 0x0444
        self.paddles[channel].go(counts, 400.0 * self.velocity / 100.0 * 1370.0 / 170.0)
        self._moves.append((report, channel))
