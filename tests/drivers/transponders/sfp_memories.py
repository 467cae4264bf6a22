"""The memory of an SFP+ module, 10GBASE-ER, written down from SFF-8472."""

from __future__ import annotations

from collections.abc import Mapping

A0H, A2H = 0x50, 0x51

# Worked identity: vendor LUMION EMU, EMU-10G-ER, A0, EMU0000001, 260101; CC_BASE C2h and CC_EXT E2h.
IDENTITY = (
    bytes.fromhex("030407" + "8000000000000000" + "066700" + "28FF" + "00000000")
    + b"LUMION EMU      "
    + bytes(4)
    + b"EMU-10G-ER      A0  "
    + bytes.fromhex("060E00C2" + "061A0000")
    + b"EMU0000001      260101  "
    + bytes.fromhex("68F008E2")
)
# Thresholds of the same module, identity calibration; CC_DMI 5Ch. Then 45 degC, 3.3 V, 85 mA, +1.0 dBm, -10.0 dBm.
CONSTANTS = bytes.fromhex(
    "4B00F6004600FB00" + "8DCC7404875A7A76" + "FDE82710EA603A98" + "7B8706A2621F0D3C" + "271000641F070107"
    "" + "00" * 16 + "00" * 12 + "3F80000000000000" + "01000000" * 4 + "0000005C"
)
MONITORS = bytes.fromhex("2D00" + "80E8" + "A604" + "312D" + "03E8" + "00000000")


def seal(memory: Mapping[int, bytearray]) -> None:
    """Make the check sums right again after a change."""
    for device, first, last, at in ((A0H, 0, 62, 63), (A0H, 64, 94, 95), (A2H, 0, 94, 95)):
        memory[device][at] = sum(memory[device][first : last + 1]) % 256
