"""Table of the Qontrol commands: names, binary codes, and allowed modes (Qontrol API documentation)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag


class Mode(Flag):
    """Modes of a Qontrol command; the comments give the binary header bytes."""

    WRITE = 1  # 81
    VECTOR = 2  # 82
    WRITE_ALL = 4  # A0
    READ = 8  # 88
    READ_ALL = 16  # A9
    ACTION = 32  # 84


_W, _D, _A, _R, _RA, _X = Mode.WRITE, Mode.VECTOR, Mode.WRITE_ALL, Mode.READ, Mode.READ_ALL, Mode.ACTION

HEADER_MODES = {
    0x00: _W,
    0x02: _D,
    0x20: _A,
    0x08: _R,
    0x28: _RA,
    0x04: _X,
}
"""Mode of a binary request by header byte, without the marker, parity and address-mode bits."""


@dataclass(frozen=True)
class QontrolCommand:
    """One Qontrol command.

    Attributes:
        name: Name in text requests, upper case.
        code: Code in binary requests; ``None`` if there is none.
        binary: Modes of binary requests.
        text: Modes of text requests.
    """

    name: str
    code: int | None
    binary: Mode
    text: Mode


_ALL_MODES = _W | _D | _A | _R | _RA
_TABLE = (
    *(QontrolCommand(name, code, _ALL_MODES, _ALL_MODES) for code, name in enumerate(("V", "I", "VMAX", "IMAX"))),
    *(
        QontrolCommand(n, c, _W | _X | _A | _R | _RA, _W | _X | _A | _R | _RA)
        for n, c in (("VCAL", 0x04), ("ICAL", 0x05))
    ),
    *(QontrolCommand(name, code, _R | _RA, _R | _RA) for name, code in (("VERR", 0x06), ("IERR", 0x07))),
    QontrolCommand("VIP", 0x0A, _RA, _RA),
    *(QontrolCommand(n, c, _RA, _R | _RA) for n, c in (("VFULL", 0x20), ("IFULL", 0x21), ("NCHAN", 0x22))),
    *(QontrolCommand(n, c, _R | _RA, _R | _RA) for n, c in (("FIRMWARE", 0x23), ("ID", 0x24), ("LIFETIME", 0x25))),
    QontrolCommand("NVM", 0x26, _A | _RA, _A | _RA),
    QontrolCommand("LOG", 0x27, _R | _RA, _R | _RA),
    QontrolCommand("NUP", 0x32, _W | _R, _W | _R | _RA),
    *(
        QontrolCommand(name, code, _W | _R | _RA | _A, _W | _R | _RA | _A)
        for name, code in (("LED", 0x31), ("ADCT", 0x33), ("ADCN", 0x34), ("OK", 0x37), ("SAFE", 0x42), ("ROCOM", 0x43))
    ),
    QontrolCommand("INTEST", 0x36, _X, _X),
    QontrolCommand("HELP", 0x41, _R, _R | _X),
)

COMMANDS = {command.name: command for command in _TABLE}
"""Commands by name. Commands without public meaning (CCFN, SR, QUIET, ...) are unknown."""

CODES = {command.code: command for command in _TABLE if command.code is not None}
"""Commands by binary code."""

POWER = QontrolCommand("P", None, Mode(0), _W)
"""Sets a power; only the older firmware has this command."""

HELP_LINES = (
    "",
    "CORE COMMAND SET.",
    "V<ch>=<V>           Set voltage",
    "I<ch>=<mA>          Set current",
    "VMAX<ch>=<V>        Set voltage limit",
    "IMAX<ch>=<mA>       Set current limit",
    "V<ch>?              Read voltage",
    "I<ch>?              Read current",
    "VMAX<ch>?           Read voltage limit",
    "IMAX<ch>?           Read current limit",
    "VVEC<ch>=<V>,...    Set voltages of a module",
    "IVEC<ch>=<mA>,...   Set currents of a module",
    "VALL=<V>            Set all voltages",
    "IALL=<mA>           Set all currents",
    "VALL?               Read all voltages",
    "IALL?               Read all currents",
    "VIPALL?             Read voltage, current and power",
    "VFULL?              Read full-scale voltage",
    "IFULL?              Read full-scale current",
    "NCHAN?              Read number of channels",
    "FIRMWARE?           Read firmware version",
    "ID?                 Read device id",
    "LIFETIME?           Read operating time",
    "NUP=0               Enumerate the chain",
    "LOG?                Read error log",
    "HELP?               Show this text",
)
"""Reply of 26 lines with an empty first line, as recorded; the wording from the third line on is unverified."""
