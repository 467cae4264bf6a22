"""The emulated ACME PM2."""

from __future__ import annotations

from lumion_hw.emulator import DeviceConnection, Switchable


class EmulatedAcmePm2(Switchable):
    """Answers a line at once."""

    name = ""

    def __init__(self, name, light_w, serial):
        self.name, self.light_w, self.serial, self.capped = name, light_w, serial, False

    def connect(self):
        self._require_reachable()
        return DeviceConnection(self, _Host(self))

    def advance(self):
        """Nothing happens by itself."""

    def next_due(self):
        return None

    def answer(self, line):
        if line == "*IDN?":
            return f"ACME,PM2,{self.serial},1.0"
        channel = {"READ1?": 1, "READ2?": 2}.get(line)
        return "" if channel is None else f"{0.0 if self.capped else self.light_w(channel):.6e}"


class _Host:
    def __init__(self, device):
        self._device, self._said, self._answers = device, b"", b""

    def receive(self, data):
        *lines, self._said = (self._said + data).split(b"\n")
        for line in lines:
            answer = self._device.answer(line.decode("latin-1").strip())
            self._answers += answer.encode() + b"\n" if answer else b""

    def transmit(self):
        answers, self._answers = self._answers, b""
        return answers

    def next_event(self):
        return None

    def close(self): ...
