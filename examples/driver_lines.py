"""Emulator and driver of an invented power meter with line-based commands, without SCPI (docs/cookbook/driver.md)."""

import re

from lumion_hw import FrameError, VirtualClock
from lumion_hw.drivers import IdentifiedDriver, Identity, close_on_error
from lumion_hw.emulator import TextDevice
from lumion_hw.sessions import LineSession
from lumion_hw.testing import wired


class EmulatedVorn(TextDevice):
    """The emulated instrument. It receives a command without line end and returns the answer with line ends."""

    what = "the meter"

    def __init__(self, name, clock):
        super().__init__(name, clock, baud=19_200, answer_s=0.002)

    def _carry_out(self, command):
        answers = {"ID": "VORN LP2 SN7 v2\r\nok\r\n", "P": "+1.00000E-05\r\nok\r\n"}
        takes_s = 0.02 if command == "P" else 0.0  # additional time for averaging
        return answers.get(command, "? command\r\n"), takes_s


class Vorn(IdentifiedDriver[Identity, LineSession]):
    """The driver. `IdentifiedDriver` provides model, serial, `_check_open` and the `with` block."""

    kind = "meter"

    def __init__(self, link, clock, *, device):
        self._session = LineSession(
            link,
            clock,
            device=device,
            done="ok",  # the line that ends an answer
            failed=r"\?.*",  # regular expression for the line that reports an error
            marker="ID",  # a harmless query, sent to resynchronise after garbage or a late reply
            is_marker_reply=lambda lines: len(lines) == 1 and lines[0].startswith("VORN "),
        )

    def open(self):
        """Open the session and read maker, model, serial number and firmware."""
        with self._session.transaction(), close_on_error(self.close):
            self._identity = Identity(*self._session.open()[0].split())  # maker, model, serial, firmware

    def close(self):
        """Close the session."""
        self._identity = None
        self._session.close()

    def power_w(self):
        """Return the measured power in W."""
        self._check_open()
        (text,) = self._session.command("P", 2.0)
        if not re.fullmatch(r"[+-]\d\.\d{5}E[+-]\d\d", text):
            self._session.mark_out_of_sync(
                f"P answered with {text!r}"
            )  # no reply is used until the session has resynchronised
            raise self._session.error(FrameError, f"P: found {text!r}")
        return float(text)


clock = VirtualClock()
with wired(EmulatedVorn("meter0", clock), "memory", clock) as wire, Vorn(wire.link(), clock, device="meter0") as meter:
    print(meter.model, meter.serial, meter.power_w())
