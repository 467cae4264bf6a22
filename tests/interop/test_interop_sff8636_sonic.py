"""SONiC's reader of SFF-8636 memories and our decoder agree on every field that both know.

``SONIC_PLATFORM_COMMON`` is the path of a checkout of sonic-platform-common (tested with the API of August 2026). With
``SFF8636_DUMPS``, a directory of memory files (``*.bin``: lower memory, then pages 00h to 03h), those are compared too.
``pytest -rP --log-level=INFO`` shows the counts.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lumion_hw.drivers.transponders.decoded import DecodedModule
from lumion_hw.drivers.transponders.dump_decoder import decode_file
from lumion_hw.interfaces import Quality
from lumion_hw.quantities import w_from_dbm
from lumion_hw.standards.sff8636 import codes
from tests.drivers.transponders.qsfp_memories import ALL, linear, lr4

SONIC = os.environ.get("SONIC_PLATFORM_COMMON", "")
DUMPS = sorted(Path(os.environ["SFF8636_DUMPS"]).glob("*.bin")) if "SFF8636_DUMPS" in os.environ else []

LOG = logging.getLogger(__name__)

pytestmark = pytest.mark.skipif(
    not SONIC, reason="set SONIC_PLATFORM_COMMON to a checkout of sonic-platform-common to compare with SONiC"
)

# The packages' own __init__ files need the rest of SONiC, so they are replaced by empty ones.
READER = """
import json, os, sys, types
root, file = sys.argv[1:]
for name in ("sonic_platform_base", "sonic_platform_base.sonic_xcvr"):
    package = types.ModuleType(name)
    package.__path__ = [os.path.join(root, *name.split("."))]
    sys.modules[name] = package
from sonic_platform_base.sonic_xcvr.api.public.sff8636 import Sff8636Api
from sonic_platform_base.sonic_xcvr.codes.public.sff8636 import Sff8636Codes
from sonic_platform_base.sonic_xcvr.mem_maps.public.sff8636 import Sff8636MemMap
from sonic_platform_base.sonic_xcvr.xcvr_eeprom import XcvrEeprom
memory = open(file, "rb").read()
read = lambda offset, size: bytearray(memory[offset : offset + size]) if offset + size <= len(memory) else None
api = Sff8636Api(XcvrEeprom(read, None, Sff8636MemMap(Sff8636Codes)))
calls = ("get_transceiver_info", "get_transceiver_threshold_info", "get_power_class", "is_copper", "is_flat_memory",
         "get_power_override", "get_power_set", "get_module_temperature", "get_voltage", "get_tx_bias",
         "get_rx_power", "get_tx_power", "get_tx_disable", "get_tx_fault", "get_rx_los")
print(json.dumps({call: getattr(api, call)() for call in calls}))
"""
TEXTS = {"manufacturer": "vendor_name", "model": "part_number", "serial": "serial_number", "vendor_rev": "revision"}
MONITORS = {"temp": "temperature", "vcc": "supply", "rxpower": "rx_power", "txpower": "tx_power", "txbias": "tx_bias"}
LANE_CALLS = {
    "get_tx_bias": "tx_bias",
    "get_rx_power": "rx_power",
    "get_tx_power": "tx_power",
    "get_tx_disable": "tx_disable",
    "get_tx_fault": "tx_fault_flag",
    "get_rx_los": "rx_los_flag",
}
Pair = tuple[str, Any, Any]


def sonic(file: Path) -> dict[str, Any]:
    found = subprocess.run(
        [sys.executable, "-c", READER, SONIC, str(file)], capture_output=True, text=True, check=True, timeout=60
    )
    document: dict[str, Any] = json.loads(found.stdout)
    return document


def pairs(theirs: dict[str, Any], ours: DecodedModule) -> Iterator[Pair]:
    """Yield what SONiC and we say of each field that both know. ``None`` and ``N/A`` both mean not supported."""
    info = theirs["get_transceiver_info"]
    for key, name in TEXTS.items():
        yield name, info[key].rstrip("\x00 "), ours.field(name).value
    yield "date_code", info["vendor_date"].replace("-", "")[2:].replace(" ", ""), ours.field("date_code").value
    yield "vendor_oui", info["vendor_oui"].replace("-", ""), ours.field("vendor_oui").raw
    yield "nominal_rate", info["nominal_bit_rate"], int(ours.field("nominal_rate").raw, 16)
    yield "power class", theirs["get_power_class"], codes.power_class(int(ours.field("ext_identifier").raw, 16))
    yield "copper", theirs["is_copper"], is_copper(ours)
    yield "flat", theirs["is_flat_memory"], ours.flat
    yield "power_override", theirs["get_power_override"], ours.field("power_override").value
    yield "low_power_set", theirs["get_power_set"], ours.field("low_power_set").value
    yield "temperature", theirs["get_module_temperature"], ours.field("temperature").value
    yield "supply", theirs["get_voltage"], ours.field("supply").value
    for call, name in LANE_CALLS.items():
        for lane in (1, 2, 3, 4):
            field = ours.field(name, lane)
            value = field.value
            if name in ("rx_power", "tx_power") and field.quality is not Quality.NOT_SUPPORTED:
                value = 1e3 * w_from_dbm(value) if isinstance(value, float) else 0.0  # SONiC gives mW here
            yield f"{name} {lane}", theirs[call][lane - 1], value
    names = {item.name for item in ours.fields}
    for key, value in (theirs["get_transceiver_threshold_info"] or {}).items():
        prefix = next(prefix for prefix in MONITORS if key.startswith(prefix))
        limit = key.removeprefix(prefix).replace("alarm", "_alarm").replace("warning", "_warning")
        name = f"{MONITORS[prefix]}_{limit}"
        yield name, value, ours.field(name).value if name in names else None


def is_copper(ours: DecodedModule) -> bool:
    """Return whether the technology byte, 147.7-4, is that of a copper cable (SFF-8636 Table 6-20)."""
    return int(ours.field("transmitter").raw, 16) >> 4 >= 0x0A


def has_compliance_code(ours: DecodedModule) -> bool:
    return any(bytes.fromhex(ours.field("compliance_codes").raw + ours.field("ext_compliance").raw))


def agree(theirs: Any, ours: Any) -> bool:
    if theirs == "N/A" or ours is None:
        return theirs == "N/A" and ours is None
    if isinstance(theirs, float) or isinstance(ours, float):
        return bool(abs(theirs - ours) <= 1.1e-3)  # SONiC rounds to three digits
    return bool(theirs == ours)


def reason(name: str, theirs: Any, ours: DecodedModule) -> str:
    """Return why a difference is right, or an empty string."""
    is_monitor = name.startswith(("temperature", "supply", "rx_power", "tx_power", "tx_bias"))
    if is_copper(ours) and theirs == "N/A" and name.startswith(("temperature", "supply")):
        return "cables can measure temperature and supply, which SONiC does not show"
    if name == "copper" and is_copper(ours) and not has_compliance_code(ours):
        return "SONiC knows copper cables by their compliance codes, not by byte 147"
    if name == "copper" and theirs and not is_copper(ours):
        return "byte 147 is 0 in some copper cables, whose compliance codes are right"
    if is_copper(ours) and not has_compliance_code(ours) and name.startswith(("tx_", "rx_")):
        return "a copper cable that SONiC does not recognise has no transmitter and no receiver"
    if is_monitor and (not theirs or "alarm" in name or "warning" in name) and ours.field("supply").raw == "0000":
        return "a supply of 0 V means that nothing is measured"
    is_later = ours.field("revision_compliance").raw not in [f"{code:02x}" for code in codes.REVISIONS]
    if is_later and name.startswith(("temperature", "supply", "rx_power", "tx_bias")):
        return "SONiC knows revision codes up to 08h; codes up to FEh are later revisions"
    if name in TEXTS.values() and "?" in str(ours.field(name).value):
        return "SONiC leaves unprintable bytes out"
    return ""


@pytest.fixture(params=[*ALL, *DUMPS], ids=str)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if isinstance(request.param, Path):
        return request.param
    path = tmp_path / f"{request.param}.bin"
    path.write_bytes(linear(ALL[request.param]()))
    return path


def test_both_read_the_same(file: Path) -> None:
    ours = decode_file(file.read_bytes(), file.name)
    compared = list(pairs(sonic(file), ours))
    different = [pair for pair in compared if not agree(*pair[1:])]
    reasons = Counter(reason(name, value, ours) for name, value, _ in different)
    LOG.info("%s: %d fields equal, different: %s", file.stem, len(compared) - len(different), dict(reasons))
    assert [pair for pair in different if not reason(pair[0], pair[1], ours)] == []
    assert len(compared) - len(different) >= 20  # identity, rates, power class, controls


def test_a_difference_would_be_noticed(tmp_path: Path) -> None:
    """Our reading of a module with one lane off differs from SONiC's of the same module with all on."""
    pages = lr4()
    path = tmp_path / "lr4.bin"
    path.write_bytes(linear(pages))
    theirs = sonic(path)
    pages[None][86], pages[None][35] = 0x02, 0x00
    names = [name for name, *values in pairs(theirs, decode_file(linear(pages))) if not agree(*values)]
    assert names == ["rx_power 1", "tx_disable 2"]
