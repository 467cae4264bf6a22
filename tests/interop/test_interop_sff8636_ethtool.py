"""Linux ethtool's decoder of SFF-8636 memories and ours agree on every field that both know.

``ETHTOOL_SOURCE`` is an unpacked source tree of ethtool (tested with 6.1), ``SFF8636_DUMPS`` a directory of memory
files (``*.bin``: lower memory, then pages 00h to 03h). ethtool reads only network interfaces, so the test compiles its
decoder into a program that reads a file. ``pytest -rP --log-level=INFO`` shows the counts.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from lumion_hw.drivers.transponders.decoded import DecodedField, DecodedModule
from lumion_hw.drivers.transponders.dump_decoder import decode_file
from lumion_hw.interfaces import Quality
from lumion_hw.standards.sff8636 import codes
from tests.drivers.transponders.qsfp_memories import ALL, linear, lr4

SOURCE = Path(os.environ.get("ETHTOOL_SOURCE", ""))
DUMPS = sorted(Path(os.environ["SFF8636_DUMPS"]).glob("*.bin")) if "SFF8636_DUMPS" in os.environ else []
LOG = logging.getLogger(__name__)
COMPILER = shutil.which("cc")

pytestmark = pytest.mark.skipif(
    "ETHTOOL_SOURCE" not in os.environ or COMPILER is None,
    reason="set ETHTOOL_SOURCE to the source tree of ethtool 6.1, and install a C compiler, to compare with ethtool",
)

PROGRAM = """
#include <stdio.h>
#include "internal.h"
void sff8636_show_all_ioctl(const __u8 *id, __u32 eeprom_len);
void cmis_show_all_ioctl(const __u8 *id) { }
int nl_get_eeprom_page(struct cmd_context *ctx, struct ethtool_module_eeprom *request) { return -1; }
int main(int argc, char **argv)
{
    static unsigned char memory[4096];
    FILE *file = fopen(argv[1], "rb");
    size_t size = fread(memory, 1, sizeof memory, file);
    sff8636_show_all_ioctl(memory, size);
    return 0;
}
"""
LIMITS = ("high alarm", "low alarm", "high warning", "low warning")
TEXTS = {
    "Vendor name": "vendor_name",
    "Vendor PN": "part_number",
    "Vendor rev": "revision",
    "Vendor SN": "serial_number",
    "Date code": "date_code",
}
CODES = {
    "Identifier": "identifier",
    "Connector": "connector",
    "Encoding": "encoding",
    "Extended identifier": "ext_identifier",
    "Rate identifier": "rate_select_compliance",
}
NUMBERS = {  # label: name, tolerance of the digits shown
    "BR, Nominal": ("nominal_rate", 1e-6),
    "Length (SMF,km)": ("length_smf", 1e-9),
    "Length (OM3 50um)": ("length_om3", 1e-9),
    "Length (OM2 50um)": ("length_om2", 1e-9),
    "Length (OM1 62.5um)": ("length_om1", 1e-9),
    "Length (Copper or Active cable)": ("length_cable", 1e-9),
    "Laser wavelength": ("wavelength", 6e-4),
    "Laser wavelength tolerance": ("wavelength_tolerance", 6e-4),
    "Attenuation at 2.5GHz": ("attenuation_2_5_ghz", 1e-9),
    "Attenuation at 5.0GHz": ("attenuation_5_ghz", 1e-9),
    "Attenuation at 7.0GHz": ("attenuation_7_ghz", 1e-9),
    "Attenuation at 12.9GHz": ("attenuation_12_9_ghz", 1e-9),
    "Module temperature": ("temperature", 0.0051),
    "Module voltage": ("supply", 6e-5),
}
FLAGS = {"Module temperature": "temperature", "Module voltage": "supply"}
LANE_FLAGS = {"Laser bias current": "tx_bias", "Laser tx power": "tx_power", "Laser rx power": "rx_power"}
THRESHOLDS = {
    "Module temperature": ("temperature", 0.0051),
    "Module voltage": ("supply", 6e-5),
    "Laser bias current": ("tx_bias", 6e-4),
    "Laser output power": ("tx_power", 0.0051),
    "Laser rx power": ("rx_power", 0.0051),
}
DARK = "dark"
Value = float | str | bool | None


class Pair(NamedTuple):
    """What ethtool and we say of one field; ``field`` is ours, if there is one."""

    label: str
    theirs: Value
    ours: Value
    tolerance: float
    field: DecodedField | None

    @property
    def agree(self) -> bool:
        if isinstance(self.theirs, float) and isinstance(self.ours, int | float):
            return abs(self.theirs - self.ours) <= self.tolerance
        return self.theirs == self.ours


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ethtool")
    (folder / "main.c").write_text(PROGRAM)
    parts = [str(SOURCE / name) for name in ("qsfp.c", "sff-common.c")]
    macros = ["-DETHTOOL_ENABLE_PRETTY_DUMP", '-DPACKAGE="ethtool"', '-DVERSION="0"']
    folders = [f"-I{SOURCE / name}" for name in (".", "uapi", "netlink")]
    command = [str(COMPILER), "-w", *macros, *folders, "-o", "decoder", "main.c", *parts, "-lm"]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    return folder / "decoder"


def printed(program: Path, file: Path) -> dict[str, list[str]]:
    """Return the lines that ethtool prints, by label."""
    text = subprocess.run([program, file], capture_output=True, check=True, timeout=20).stdout.decode("latin-1")
    lines = defaultdict(list)
    for match in re.finditer(r"^\t(.*?)\s*: (.*)$", text, re.MULTILINE):
        lines[match[1].strip()].append(match[2].strip())
    return lines


def pairs(lines: dict[str, list[str]], ours: DecodedModule) -> Iterator[Pair]:
    """Yield each field that both decoders know."""
    fields = {(item.name, item.index): item for item in ours.fields}

    def pair(label: str, theirs: Value, name: str, lane: int | None = None, tolerance: float = 0.0) -> Pair:
        field = fields.get((name, lane))
        value = field.value if field else None
        if isinstance(value, bytes):
            value = value.hex()
        if theirs == DARK and field is not None and field.quality is Quality.BELOW_RANGE:
            value = DARK
        return Pair(label, theirs, value, tolerance, field)

    def number(label: str, name: str, lane: int | None = None, tolerance: float = 0.0) -> Iterator[Pair]:
        for text in lines.get(label, [])[:1]:
            shown = re.search(r"/ (\S+) dBm", text) or re.match(r"(-?[\d.]+)", text)  # powers are in mW / dBm
            assert shown is not None
            theirs: Value = DARK if shown[1] == "-inf" else float(shown[1])
            if not (theirs == DARK and "threshold" in label):
                yield pair(label, theirs, name, lane, tolerance)

    for label, name in TEXTS.items():
        for text in lines.get(label, [])[:1]:
            yield pair(label, text, name)
    for label, name in CODES.items():
        yield pair(label, float(int(lines[label][0][:4], 16)), name)
    yield pair("Vendor OUI", lines["Vendor OUI"][0].replace(":", ""), "vendor_oui")
    yield pair("Transceiver codes", re.sub("0x| ", "", lines["Transceiver codes"][0]), "compliance_codes")
    yield pair("Technology", float(int(lines["Transmitter technology"][0][:4], 16) >> 4), "transmitter")
    described = " ".join(lines["Extended identifier description"])
    yield pair("CDR in TX", "No CDR in TX" not in described, "tx_cdr_present")
    yield pair("CDR in RX", "No CDR in RX" not in described, "rx_cdr_present")
    codes_of_power = (int(fields[name, None].raw, 16) for name in ("ext_identifier", "max_power"))
    most_w = codes.max_power_w(*codes_of_power)
    yield Pair("max power", float(re.findall(r"([\d.]+)\s*W max", described)[-1]), most_w, 1e-9, None)
    for label, name in {"Power set": "low_power_set", "Power override": "power_override"}.items():
        for text in lines.get(label, []):
            yield pair(label, text == "On", name)
    for label, (name, tolerance) in NUMBERS.items():
        yield from number(label, name, None, tolerance)
    for label, (name, tolerance) in THRESHOLDS.items():
        for limit in LIMITS:
            yield from number(f"{label} {limit} threshold", f"{name}_{limit.replace(' ', '_')}", None, tolerance)
    for lane in (1, 2, 3, 4):
        yield from number(f"Laser tx bias current (Channel {lane})", "tx_bias", lane, 6e-4)
        yield from number(f"Transmit avg optical power (Channel {lane})", "tx_power", lane, 0.0051)
        for kind in ("Rcvr signal avg optical power", "Receiver signal OMA"):
            yield from number(f"{kind}(Channel {lane})", "rx_power", lane, 0.0051)
    for label, texts in lines.items():
        match = re.fullmatch(r"(.*) (high|low) (alarm|warning)\s*(?:\(Chan(?:nel)? (\d)\))?", label)
        if match:
            lane_of = int(match[4]) if match[4] else None
            name = (LANE_FLAGS if lane_of else FLAGS)[match[1].strip()]
            yield pair(label, texts[0] == "On", f"{name}_{match[2]}_{match[3]}_flag", lane_of)


def reason(pair: Pair, memory: bytes) -> str:
    """Return why a difference is right, or an empty string."""
    field = pair.field
    if field is None:
        return ""
    is_copper, data = memory[147] >> 4 >= 0x0A, bytes.fromhex(field.raw)
    if field.quality is Quality.CHECKSUM_WRONG and (field.value is None or "?" in str(field.value)):
        return "the checksum over the value is wrong"
    if field.quality is Quality.ABOVE_RANGE and field.name == "nominal_rate" and memory[140] == 0xFF:
        return "FFh means more than 25.4 GBd"
    if field.name in TEXTS.values() and pair.theirs == data.replace(b"\0", b"_").decode("latin-1").rstrip():
        return "ethtool shows NUL bytes at the end of a text as _"
    if field.quality is not Quality.NOT_SUPPORTED:
        return ""
    if field.name.startswith(("length_", "attenuation_")) and pair.theirs == 0.0:
        return "0 means that no length or attenuation is stated"
    if field.name.startswith("attenuation_") and memory[1] < codes.FIRST_WITH_ATTENUATION:
        return "revision codes 00h and 01h do not define the attenuation"
    if field.name == "length_cable" and codes.length_is_om4(memory[128:256]):
        return "byte 146 of a module with 850 nm VCSELs is the reach on OM4 fibre"
    if field.name.startswith("tx_power") and not memory[220] & 0x04:
        return "the module does not announce a monitor of the transmitted power"
    if is_copper and field.name == "length_om1":
        return "byte 145 of a copper cable is an attenuation"
    if is_copper and field.name.startswith(("tx_", "rx_")):
        return "passive copper has no transmitter and no receiver"
    if field.name in ("temperature", "supply") and memory[26:28] == bytes(2):
        return "a supply of 0 V means that nothing is measured"
    return ""


@pytest.fixture(params=[*ALL, *DUMPS], ids=str)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if isinstance(request.param, Path):
        return request.param
    path = tmp_path / f"{request.param}.bin"
    path.write_bytes(linear(ALL[request.param]()))
    return path


def test_both_decode_the_same(program: Path, file: Path) -> None:
    memory = file.read_bytes()
    compared = list(pairs(printed(program, file), decode_file(memory, file.name)))
    different = [pair for pair in compared if not pair.agree]
    reasons = Counter(reason(pair, memory) for pair in different)
    LOG.info("%s: %d fields equal, different: %s", file.stem, len(compared) - len(different), dict(reasons))
    assert [pair[:3] for pair in different if not reason(pair, memory)] == []
    assert len(compared) - len(different) >= 20  # identity, codes, lengths, power class


def test_a_difference_would_be_noticed(program: Path, tmp_path: Path) -> None:
    """Our decoding of a module with one lane dark differs from ethtool's of the same module with all lanes lit."""
    pages = lr4()
    path = tmp_path / "lr4.bin"
    path.write_bytes(linear(pages))
    lines = printed(program, path)
    pages[None][35] = 0x00
    labels = [pair.label for pair in pairs(lines, decode_file(linear(pages))) if not pair.agree]
    assert labels == ["BR, Nominal", "Rcvr signal avg optical power(Channel 1)"]
