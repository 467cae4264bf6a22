"""Recorded openings of a chain, and a small model of one for the driver's tests: text and binary, delays, reports."""

from __future__ import annotations

import re
import struct
from collections import deque

from lumion_hw.clock import Clock, VirtualClock
from lumion_hw.drivers.mesh.qontrol.controller import QontrolController
from lumion_hw.errors import LinkLost
from lumion_hw.links import MemoryLink, RecordedExchange, ReplayPeer, replay_link

IDLE_S = 0.05  # silence after which an unfinished request is forgotten
CODES = {0x00: "V", 0x01: "I", 0x02: "VMAX", 0x03: "IMAX"}


def lines(*texts: str) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def opening(kind: str = "Q8iv", n_modules: int = 2) -> list[RecordedExchange]:
    """Return how a chain is found: the first module numbered, the others not (recorded for two Q8iv)."""
    names = [f"{kind}-0001", *[f"{kind}-****"] * (n_modules - 1)]
    n = 8 * n_modules
    return [
        RecordedExchange(b"ID?\n", lines(names[0])),
        RecordedExchange(b"NUPALL?\n", lines(*[f"{name}: {index}" for index, name in enumerate(names)])),
        RecordedExchange(b"NCHANALL?\n", lines(*["8"] * n_modules)),
        RecordedExchange(b"VFULLALL?\n", lines(*["+12.0000 V"] * n_modules)),
        RecordedExchange(b"IFULLALL?\n", lines(*["+24.0000 mA"] * n_modules)),
        RecordedExchange(b"FIRMWAREALL?\n", lines(*["v2.4.1"] * n_modules)),
        RecordedExchange(b"ID?\n", lines(names[0]), delay_s=0.011),
        RecordedExchange(bytes.fromhex("a9030000000000"), lines(*["+24.0000 mA"] * n)),
        RecordedExchange(bytes.fromhex("a9020000000000"), lines(*["+12.0000 V"] * n)),
    ]


def opening_in_text() -> list[RecordedExchange]:
    """Return the same for a driver that speaks text only."""
    return [
        *opening()[:-2],
        RecordedExchange(b"IMAXALL?\n", lines(*["+24.0000 mA"] * 16)),
        RecordedExchange(b"VMAXALL?\n", lines(*["+12.0000 V"] * 16)),
    ]


def replayed(
    *exchanges: RecordedExchange, clock: VirtualClock | None = None, **options
) -> tuple[QontrolController, ReplayPeer]:
    """Return an open controller whose device says what is written down."""
    clock = clock or VirtualClock()
    begin = opening_in_text() if options.get("mode") == "ascii" else opening()
    peer = ReplayPeer([*begin, *exchanges], clock)
    controller = QontrolController(replay_link(peer, clock), clock, device="mesh0", **options)
    controller.open()
    return controller, peer


class ModelChain:
    """Q8iv modules with a resistor on every channel; answers at once or after ``delay_s``.

    ``before_ok`` and ``after_ok`` are error lines slipped in before or after the next acknowledgements.
    """

    def __init__(self, clock: Clock, n_modules: int = 2, ohm: float = 500.0) -> None:
        self.clock = clock
        self.n_modules = n_modules
        self.n = 8 * n_modules
        self.ohm = [ohm] * self.n
        self.delay_s = 0.001
        self.values = {"V": [0.0] * self.n, "I": [0.0] * self.n, "VMAX": [12.0] * self.n, "IMAX": [24.0] * self.n}
        self.before_ok: deque[list[str]] = deque()
        self.after_ok: deque[list[str]] = deque()
        self.instead: deque[bytes] = deque()
        self.heard: list[bytes] = []
        self.gain = 1.0
        self.unplugged = False
        self._rest = b""
        self._heard_s = 0.0
        self._out: deque[tuple[float, bytes]] = deque()

    def connect(self) -> ModelChain:
        self._rest = b""
        self._out.clear()
        return self

    def controller(self, **options) -> QontrolController:
        link = MemoryLink(self.connect, self.clock, "model")
        controller = QontrolController(link, self.clock, device="mesh0", **options)
        controller.open()
        return controller

    def say(self, *texts: str, after_s: float = 0.0) -> None:
        self._send(lines(*texts), after_s)

    def measured(self, channel: int) -> tuple[float, float]:
        """Return voltage and current: the source holds the current until it runs into VMAX."""
        wanted_a = self.values["I"][channel] * 1e-3
        volts = min(wanted_a * self.ohm[channel], self.values["VMAX"][channel])
        return volts, self.gain * 1e3 * volts / self.ohm[channel]

    def receive(self, data: bytes) -> None:
        if self.unplugged:
            raise LinkLost("unplugged", address="model")
        if self.clock.now() - self._heard_s >= IDLE_S:
            self._rest = b""
        self._heard_s = self.clock.now()
        self._rest += data
        while self._rest:
            if self._rest[0] >= 0x80:
                if len(self._rest) < 7:
                    return
                size = 7 + (2 * struct.unpack(">H", self._rest[5:7])[0] if self._rest[0] & 0x02 else 0)
            else:
                size = self._rest.find(b"\n") + 1
            if not size or len(self._rest) < size:
                return
            request, self._rest = self._rest[:size], self._rest[size:]
            self.heard.append(request)
            reply = (
                self._binary(request)
                if request[0] >= 0x80
                else self._text(request.decode("ascii", errors="replace").strip().upper())
            )
            self._send(self.instead.popleft() if self.instead else reply, self.delay_s)

    def _binary(self, request: bytes) -> bytes:
        header, code, _, channel, count = struct.unpack(">BBBHH", request[:7])
        if code not in CODES:
            return lines("E10:00")
        if header == 0xA9:
            return self._text(f"{CODES[code]}ALL?")
        description = struct.unpack(f">{count}H", request[7:])
        full = 12.0 if CODES[code].startswith("V") else 24.0
        return self._set(CODES[code], channel, [word / 65535 * full for word in description])

    def _text(self, text: str) -> bytes:
        fixed = {"ID?": "Q8iv-0001"}
        per_module = {"NCHANALL?": "8", "VFULLALL?": "+12.0000 V", "IFULLALL?": "+24.0000 mA", "FIRMWAREALL?": "v2.4.1"}
        if text in fixed:
            return lines(fixed[text])
        if text in per_module:
            return lines(*[per_module[text]] * self.n_modules)
        if text == "NUPALL?":
            return lines(*[f"Q8iv-{'****' if m else '0001'}: {m}" for m in range(self.n_modules)])
        if text == "LOGALL?":
            newest = [f"#{k:3d}, E{1 if k == 1 else 10:02d}:00, {'0 s' if k == 1 else '16 m'} ago" for k in range(64)]
            return lines(*newest * self.n_modules)
        if match := re.fullmatch(r"(VMAX|IMAX|V|I)(?:VEC)?(\d+)=([\d.,]+)", text):
            try:
                return self._set(match[1], int(match[2]), [float(value) for value in match[3].split(",")])
            except ValueError:
                return lines("E11:00")
        if text == "VIPALL?":
            both = [self.measured(channel) for channel in range(self.n)]
            return lines(*[f"{c // 8},{c % 8}: {v:+.4f} V, {i:+.4f} mA" for c, (v, i) in enumerate(both)])
        if match := re.fullmatch(r"(VMAX|IMAX|V|I)ALL\?", text):
            unit = "V" if match[1].startswith("V") else "mA"
            stored = self.values[match[1]]
            content = [self.measured(c)[match[1] == "I"] if match[1] in "VI" else stored[c] for c in range(self.n)]
            return lines(*[f"{value:+.4f} {unit}" for value in content])
        return lines("E10:00")

    def _set(self, name: str, channel: int, values: list[float]) -> bytes:
        if channel + len(values) > self.n:
            return lines(f"E12:{channel % 100:02d}")
        self.values[name][channel : channel + len(values)] = values
        before = self.before_ok.popleft() if self.before_ok else []
        after = self.after_ok.popleft() if self.after_ok else []
        return lines(*before, "OK", *after)

    def _send(self, data: bytes, after_s: float) -> None:
        due = self.clock.now() + after_s
        self._out.append((max(due, self._out[-1][0]) if self._out else due, data))

    def transmit(self) -> bytes:
        if self.unplugged:
            raise LinkLost("unplugged", address="model")
        data = b""
        while self._out and self._out[0][0] <= self.clock.now():
            data += self._out.popleft()[1]
        return data

    def next_event(self) -> float | None:
        return self._out[0][0] if self._out else None

    def close(self) -> None:
        self._out.clear()
