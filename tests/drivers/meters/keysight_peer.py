"""Keysight meters after the programming guide, as small as the tests of a driver need them."""

from __future__ import annotations

import math
import struct

from lumion_hw.clock import VirtualClock
from tests.drivers.scpi_peer import Fault, ScpiPeer

FLT_MAX = 3.4028234663852886e38


def block(payload: bytes) -> bytes:
    length = str(len(payload)).encode()
    return b"#%d%s%s" % (len(length), length, payload)


class Meter(ScpiPeer):
    """A meter whose heads are given as (slot, head); averaging, autoranging and runs belong to head 1 of a slot."""

    def __init__(self, clock: VirtualClock, identity: str, heads: list[tuple[int, int]], *, ports: bool) -> None:
        super().__init__(clock, identity)
        self.heads = heads
        self.light_w = dict.fromkeys(range(1, len(heads) + 1), 1e-5)
        self.runs: dict[str, str] = {}
        self.samples_w = [1e-6]
        self.run_ends_at: float | None = None
        self.words["TRIG:CONF"] = ["DEF", "DIS", "DEF", "PASS", "LOOP"]
        self.queries |= {"READ:POW:ALL:CONF?": self.channel_map, "READ:POW:ALL?": self.read_all}
        for channel, (slot, head) in enumerate(heads, start=1):
            place = f"{slot}" if ports else f"{slot}:CHAN{head}"
            sense = f"SENS{place}"
            self.numbers |= {
                f"{sense}:POW:WAV": [1.55e-6, 1.25e-6, 1.65e-6],
                f"{sense}:POW:RANG": [0.0, -70.0, 10.0],
                f"{sense}:POW:UNIT": [0.0, 0.0, 1.0],
                f"{sense}:POW:REF:STAT": [1.0, 0.0, 1.0],
                f"{sense}:CORR": [0.0, -200.0, 200.0],
            }
            self.queries[f"READ{place}:POW?"] = lambda _, c=channel: self.read(c)
            self.queries[f"{sense}:FUNC:RES?"] = lambda _, s=sense: self.result(s)
            if head == 1:
                self.numbers |= {
                    f"{sense}:POW:ATIM": [0.1, 1e-6, 10.0],
                    f"{sense}:POW:RANG:AUTO": [1.0, 0.0, 1.0],
                    f"INIT{slot}:CONT": [1.0, 0.0, 1.0],
                }
                self.words[f"TRIG{slot}:INP"] = ["IGN", "IGN", "SME", "CME"]
                self.words[f"TRIG{slot}:OUTP"] = ["DIS", "DIS", "AVG", "MEAS"]
                self.actions[f"{sense}:FUNC:STAT"] = lambda text, s=sense: self.start_or_stop(s, text)
                self.queries[f"{sense}:FUNC:STAT?"] = lambda _, s=sense: self.state(s)
                for function in ("LOGG", "STAB", "MINM"):
                    self.parameters(f"{sense}:FUNC:PAR:{function}")
            self.actions[f"{sense}:CORR:COLL:ZERO:ALL"] = self.zero

    def parameters(self, header: str) -> None:
        kept = [""]

        def put(text: str) -> None:
            words = [each if each.isalpha() else f"{float(each.rstrip('S')):+.9g}" for each in text.split(",")]
            kept[0] = ",".join(words)

        self.actions[header] = put
        self.queries[f"{header}?"] = lambda _: kept[0]

    def channel_map(self, _: str) -> bytes:
        return block(b"".join(struct.pack("<HH", slot, head) for slot, head in self.heads))

    def measured(self, channel: int) -> float:
        slot, head = self.heads[channel - 1]
        master = next(n for n in self.numbers if n.startswith(f"SENS{slot}") and n.endswith(":POW:ATIM"))
        self.reply_delay_s = max(self.reply_delay_s, self.numbers[master][0])
        automatic = self.numbers[master.replace("ATIM", "RANG:AUTO")][0]
        own = [n for n in self.numbers if n.startswith(f"SENS{slot}") and n.endswith(":POW:RANG")][head - 1]
        top_w = 10e-3 if automatic else 2e-3 * 10 ** (self.numbers[own][0] / 10)
        return FLT_MAX if self.light_w[channel] > top_w else self.light_w[channel]

    def read(self, channel: int) -> str:
        return f"{self.measured(channel):+.8E}"

    def read_all(self, _: str) -> bytes:
        return block(struct.pack(f"<{len(self.heads)}f", *(self.measured(c) for c in self.light_w)))

    def zero(self, _: str) -> None:
        self.busy_until = self.clock.now() + 3.0
        if any(self.light_w.values()):
            raise Fault(-200, "Execution error")

    def start_or_stop(self, sense: str, text: str) -> None:
        function, _, verb = text.partition(",")
        if verb == "STOP":
            self.runs.pop(sense, None)
        else:
            self.runs[sense] = function

    def state(self, sense: str) -> str:
        if sense not in self.runs:
            return "NONE"
        # Nobody sends pulses to this peer: a run that waits for them never ends, another one has ended at once.
        waits = self.words[f"TRIG{sense.removeprefix('SENS').partition(':')[0]}:INP"][0] != "IGN"
        ends_at = (math.inf if waits else 0.0) if self.run_ends_at is None else self.run_ends_at
        return "LOGGING_STABILITY," + ("COMPLETE" if self.clock.now() >= ends_at else "PROGRESS")

    def result(self, sense: str) -> bytes:
        return block(struct.pack(f"<{len(self.samples_w)}f", *self.samples_w))
