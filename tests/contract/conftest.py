"""On wires, where each silence is waited for, `make test` proves one driver of each session and one of its calls.

What a wire breaks is mended by the session, which drivers of one family share. In memory it proves every driver and
call, as `make test-long` does on the wires.
"""

import pytest

from lumion_hw.testing.contracts import WireFixtures

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
        if isinstance(item, pytest.Function) and item.cls is not None and issubclass(item.cls, WireFixtures):
            chosen = item.callspec.params if hasattr(item, "callspec") else {}
            is_first_call = chosen.get("device_call") in (None, next(iter(item.cls.calls.values()), None))
            if chosen.get("transport", "memory") != "memory" and not (
                item.cls.__name__ in ON_THEIR_WIRES and is_first_call
            ):
                item.add_marker("long")
