"""`make test` proves every driver in memory, and one driver of each session on its wire; `make test-long` all.

What a wire breaks is mended by the session, which drivers of one family share, and each silence is waited for there.
"""

import pytest

from lumion_hw.testing.contracts import OverItsWire

ON_THEIR_WIRES = {
    "TestItla": "ITLA packets",
    "TestKeysightN7744A": "SCPI over TCP",
    "TestLineServerMesh": "lines over TCP",
    "TestLumionMeshController": "frames",
    "TestNovoptelPm1000OverLan": "registers of Novoptel",
    "TestOzEpc04": "lines over a serial port",
    "TestQontrolChain": "both dialects of Qontrol",
    "TestSfpPlus": "registers behind a bridge",
    "TestThorlabsMpc320": "APT messages",
    "TestThorlabsPm100d": "SCPI over HiSLIP",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and item.cls is not None and issubclass(item.cls, OverItsWire):
            transport = item.callspec.params.get("transport", "memory") if hasattr(item, "callspec") else "memory"
            if transport != "memory" and item.cls.__name__ not in ON_THEIR_WIRES:
                item.add_marker("long")
