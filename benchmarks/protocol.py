"""Speed of wire-protocol frames compared with the bare `cobs` package and zlib, and of the decoder on garbage.

Run: .venv/bin/python benchmarks/protocol.py
Candidates run in one process in short alternating rounds, and each figure is the best of its rounds, because other load
only makes it worse. A frame has a body of 300 bytes: header and payload, without CRC.
"""

from __future__ import annotations

import importlib
import os
import platform
import random
import struct
import time
import zlib
from collections.abc import Callable

from cobs import cobs

import firmware_protocol as fp
from firmware_protocol import stuffing

ROUNDS = 60
FRAMES = 2_000
GARBAGE = 1 << 20
CHUNK = 4096
GOAL_FRAMES = 1e6
GOAL_GARBAGE = 100e6

plain_cobs = importlib.import_module("cobs.cobs._cobs_py")
CRC = struct.Struct("<I")
dice = random.Random(7)
BODIES = {
    "random": dice.randbytes(300),
    "all zero": bytes(300),
    "no zero": bytes(dice.randrange(1, 256) for _ in range(300)),
    "every second zero": b"\x01\x00" * 150,
}


def bare(encode: Callable[[bytes], bytes], decode: Callable[[bytes], bytes]) -> tuple[Callable, Callable]:
    """Minimal framing with a COBS library and zlib only."""

    def to_wire(body: bytes) -> bytes:
        return b"\0" + encode(body + CRC.pack(zlib.crc32(body))) + b"\0"

    def to_body(wire: bytes) -> bytes:
        content = decode(wire[1:-1])
        body = content[:-4]
        if CRC.unpack_from(content, len(body))[0] != zlib.crc32(body):
            raise ValueError("CRC")
        return body

    return to_wire, to_body


def objects() -> tuple[Callable, Callable]:
    """Frames as objects, as used by sessions and the emulated board."""
    decoder = fp.Decoder(4096)
    frames = {body: fp.Decoder(4096).feed(fp.encode_body(body))[0] for body in BODIES.values()}
    return (lambda body: fp.encode_frame(frames[body])), decoder.feed


CANDIDATES = {
    "encode_body / decode_wire": (fp.encode_body, fp.decode_wire),
    "encode_frame / Decoder.feed": objects(),
    "peer: cobs C extension + zlib": bare(cobs.encode, cobs.decode),
    "own COBS in plain Python + zlib": bare(stuffing.encode_plain, stuffing.decode_plain),
    "peer: cobs plain Python + zlib": bare(plain_cobs.encode, plain_cobs.decode),
}


def seconds(function: Callable, argument: bytes, calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        function(argument)
    return (time.perf_counter() - began) / calls


def frame_table() -> None:
    best: dict[tuple[str, str, int], float] = {}
    for _ in range(ROUNDS):
        for candidate, both in CANDIDATES.items():
            calls = FRAMES // 10 if "plain" in candidate else FRAMES
            for pattern, body in BODIES.items():
                for way, argument in enumerate((body, fp.encode_body(body))):
                    key = candidate, pattern, way
                    best[key] = min(best.get(key, 1.0), seconds(both[way], argument, calls))
    print("| frames of 300 bytes, k/s: encode / decode | " + " | ".join(BODIES) + " | all zero to random |")
    print("|" + "---|" * (len(BODIES) + 2))
    for candidate in CANDIDATES:
        cells = [[1 / best[candidate, pattern, way] for way in (0, 1)] for pattern in BODIES]
        worst = max(best[candidate, "all zero", way] / best[candidate, "random", way] for way in (0, 1))
        times_text = " | ".join(f"{encode / 1e3:.0f} / {decode / 1e3:.0f}" for encode, decode in cells)
        print(f"| {candidate} | {times_text} | {worst:.2f}x |")
    fast = next(iter(CANDIDATES))
    least = min(1 / best[fast, pattern, way] for pattern in BODIES for way in (0, 1))
    print(f"\nGoal {GOAL_FRAMES / 1e6:.0f} M/s each way: the slowest of the first row is {least / 1e6:.2f} M/s.\n")


def garbage_table() -> None:
    good = fp.encode_body(BODIES["random"])
    damaged = good[:-2] + bytes([good[-2] ^ 1 or 2]) + b"\0"
    streams = {
        "random bytes": dice.randbytes(GARBAGE),
        "zeros": bytes(GARBAGE),
        "no delimiter at all": b"\x55" * GARBAGE,
        "frames of 300 bytes with a wrong CRC": damaged * (GARBAGE // len(damaged)),
        "blocks of 32 bytes": (b"\x20" + b"\x55" * 30 + b"\0") * (GARBAGE // 32),
        "blocks of one byte": b"\x01\0" * (GARBAGE // 64),
        "good frames of 300 bytes": good * (GARBAGE // len(good)),
    }
    print(f"| stream in pieces of {CHUNK} bytes | MB/s | found per MB | ns per found |")
    print("|---|---|---|---|")
    for name, stream in streams.items():
        taken, n_frames = 1e9, 0
        for _ in range(ROUNDS // 2):
            decoder, count = fp.Decoder(4096), 0
            began = time.perf_counter()
            for start in range(0, len(stream), CHUNK):
                count += len(decoder.feed(stream[start : start + CHUNK]))
            taken, n_frames = min(taken, time.perf_counter() - began), count
        time_text = f"{taken / n_frames * 1e9:.0f}" if n_frames > 10 else "–"
        print(f"| {name} | {len(stream) / taken / 1e6:.0f} | {n_frames / len(stream) * 1e6:.0f} | {time_text} |")
    print(
        f"\nGoal {GOAL_GARBAGE / 1e6:.0f} MB/s. Every bad block becomes a value with its cause, about a microsecond"
        " each: blocks shorter than about 100 bytes are limited by that and not by their bytes."
    )


def main() -> None:
    machine = f"{os.cpu_count()} CPUs ({platform.machine()}), Python {platform.python_version()}"
    print(f"{machine}, load of the machine {os.getloadavg()[0]:.1f}\n")
    frame_table()
    garbage_table()


if __name__ == "__main__":
    main()
