"""SONiC's transceiver library (SFF-8636 and SFF-8436) reads and controls the emulated QSFP modules.

The library is no package of an index. Set SONIC_PLATFORM_COMMON to a checkout of sonic-net/sonic-platform-common;
without it these tests are skipped. The host in between works like the optoe kernel driver: a linear address space,
page select before each access to an upper page, and a new attempt while the module does not acknowledge.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from lumion_hw.emulator.transponders.qsfp import PROFILES
from tests.emulator.transponders.qsfp_testbench import FULL_LIGHT_W, Host, NotAcknowledgedError

VARIABLE = "SONIC_PLATFORM_COMMON"
OPTICAL = [name for name in PROFILES if name != "100g-cr4"]
# By profile: type, connector, power class, clock recovery, specification, and length as SONiC words them (SFF-8024).
QSFP28, QSFP_PLUS = "QSFP28 or later", "QSFP+ or later with SFF-8636 or SFF-8436"
WITH_CDR, WITHOUT_CDR = ("CDR present in TX", "CDR present in RX"), ("No CDR in TX", "No CDR in RX")
EXPECTED = {
    "100g-lr4": (QSFP28, "LC", 4, WITH_CDR, "100GBASE-LR4 or 25GBASE-LR", ("Length(km)", 10)),
    "100g-cwdm4": (QSFP28, "LC", 4, WITH_CDR, "100G CWDM4", ("Length(km)", 2)),
    "100g-sr4": (QSFP28, "MPO", 3, WITH_CDR, "100GBASE-SR4 or 25GBASE-SR", ("Length Cable Assembly(m)", 50)),
    "100g-psm4": (QSFP28, "MPO", 4, WITH_CDR, "100G PSM4 Parallel SMF", ("Unknown", 0)),
    "100g-aoc": (QSFP28, "No separable", 3, WITH_CDR, "100G AOC", ("Length Cable Assembly(m)", 10)),
    "100g-cr4": (QSFP28, "No separable", 1, WITHOUT_CDR, "100GBASE-CR4", ("Length Cable Assembly(m)", 3)),
    "40g-lr4": (QSFP_PLUS, "LC", 4, WITHOUT_CDR, "40GBASE-LR4", ("Length(km)", 10)),
}


@pytest.fixture
def sonic(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return the class that opens a module in SONiC's library."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"set {VARIABLE} to a checkout of sonic-net/sonic-platform-common")
    # The package above sonic_xcvr imports the rest of a switch's software.
    monkeypatch.syspath_prepend(Path(folder) / "sonic_platform_base")
    # Only the CMIS part of the library uses the logger of a switch.
    for name in ("sonic_py_common", "sonic_py_common.syslogger"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")

        # The factory chooses the library's decoder from the bytes of the module, as a switch does.
        return importlib.import_module("sonic_xcvr.xcvr_api_factory").XcvrApiFactory


class Optoe:
    """Linear memory of a module: byte b (128 to 255) of page p is at 128 p + b."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def _select(self, offset: int) -> int:
        if offset < 128:
            return offset
        page = offset // 128 - 1
        if not self.host.profile.is_flat:
            assert self.host.try_write(127, page)
        return 128 + offset % 128

    def _retry(self, action):
        for _ in range(100):
            try:
                return action()
            except NotAcknowledgedError:
                self.host.sleep(0.001)
        return None

    def read(self, offset: int, size: int) -> bytearray | None:
        data = bytearray()
        while len(data) < size:
            position = offset + len(data)
            length = min(size - len(data), 128 - position % 128)
            part = self._retry(lambda position=position, length=length: self.host.read(self._select(position), length))
            if part is None:
                return None
            data += part
        return data

    def write(self, offset: int, size: int, data: bytes) -> bool:
        def attempt() -> bool:
            if not self.host.try_write(self._select(offset), *data[:size]):
                raise NotAcknowledgedError
            return True

        return bool(self._retry(attempt))


def opened(sonic: Callable[..., Any], profile: str):
    host = Host(profile)
    host.sleep(1.0)
    optoe = Optoe(host)
    api = sonic(optoe.read, optoe.write).create_xcvr_api()
    assert type(api).__name__ == ("Sff8436Api" if profile == "40g-lr4" else "Sff8636Api")
    return host, api


@pytest.mark.parametrize("name", PROFILES)
def test_sonic_reads_the_identity_of_the_profile(sonic: Callable[..., Any], name: str) -> None:
    host, api = opened(sonic, name)
    info = {
        key: value.strip() if isinstance(value, str) else value for key, value in api.get_transceiver_info().items()
    }
    kind, connector, power_class, cdr, specification, (length_type, length) = EXPECTED[name]
    assert info["type"] == kind
    assert info["type_abbrv_name"] == ("QSFP+" if kind == QSFP_PLUS else "QSFP28")
    assert info["manufacturer"] == "LUMION EMU"
    assert info["model"] == api.get_model().strip() == host.profile.part_number
    assert info["serial"] == api.get_serial().strip() == "EMU0000001"
    assert info["vendor_rev"] == "A0"
    assert info["vendor_date"] == "2026-01-01"
    assert info["vendor_oui"] == "00-00-00"
    assert connector.lower() in info["connector"].lower()
    assert info["encoding"] == "64B/66B"
    assert info["ext_identifier"].startswith(f"Power Class {power_class}")
    assert info["ext_identifier"].endswith(", ".join(cdr))
    assert "No CLEI code" in info["ext_identifier"]
    assert specification in info["specification_compliance"]
    assert (info["cable_type"], info["cable_length"]) == (length_type, length)
    assert info["nominal_bit_rate"] == (103 if name == "40g-lr4" else 255)
    assert api.is_flat_memory() is (name == "100g-cr4")
    assert api.is_copper() is (name == "100g-cr4")
    if name != "40g-lr4":
        assert api.get_power_class() == power_class


@pytest.mark.parametrize("name", OPTICAL)
def test_sonic_reads_the_monitors_and_thresholds_of_the_profile(sonic: Callable[..., Any], name: str) -> None:
    host, api = opened(sonic, name)
    profile = host.profile
    values = api.get_transceiver_dom_real_value()
    assert values["temperature"] == pytest.approx(profile.temperature_c, abs=3.0)
    assert values["voltage"] == pytest.approx(profile.supply_v, rel=0.03)
    for lane in range(1, 5):
        assert values[f"tx{lane}bias"] == pytest.approx(profile.bias_ma, rel=0.1)
        assert values[f"rx{lane}power"] == pytest.approx(10 * math.log10(1e3 * FULL_LIGHT_W), abs=3.0)
        if profile.has("tx_power_monitor"):
            assert values[f"tx{lane}power"] == pytest.approx(profile.launch_dbm, abs=3.0)
        else:
            assert values[f"tx{lane}power"] == "N/A"
    limits = api.get_transceiver_threshold_info()
    words = {"temperature": "temp", "supply": "vcc", "rx_power": "rxpower", "tx_bias": "txbias", "tx_power": "txpower"}
    for monitor, levels in profile.thresholds.items():
        for limit, level in zip(("highalarm", "lowalarm", "highwarning", "lowwarning"), levels, strict=True):
            shown = limits[f"{words[monitor]}{limit}"]
            if monitor == "tx_power" and not profile.has("tx_power_monitor"):
                assert shown in ("N/A", float("-inf"))
            else:
                assert shown == pytest.approx(level, abs=0.02), (monitor, limit)


@pytest.mark.parametrize("name", OPTICAL)
def test_sonic_sees_losses_of_light_and_failures_once_they_are_latched(sonic: Callable[..., Any], name: str) -> None:
    host, api = opened(sonic, name)
    assert api.get_rx_los() == [False] * 4
    host.light.received[2] = 0.0
    host.module.break_laser(3)
    host.sleep(0.1)
    host.sleep(0.2)
    flags = api.get_transceiver_status_flags()
    assert [flags[f"rx{lane}los"] for lane in range(1, 5)] == [False, True, False, False]
    assert [flags[f"tx{lane}fault"] for lane in range(1, 5)] == [False, False, True, False]


@pytest.mark.parametrize("name", OPTICAL)
def test_sonic_controls_lasers_and_power_mode(sonic: Callable[..., Any], name: str) -> None:
    host, api = opened(sonic, name)
    assert api.tx_disable_channel(0b0101, True)
    host.sleep(0.1)
    assert host.lit() == [2, 4]
    assert api.get_tx_disable() == [True, False, True, False]
    assert api.tx_disable(False)
    host.sleep(0.4)
    assert host.lit() == [1, 2, 3, 4]
    assert api.set_lpmode(True)
    host.sleep(0.1)
    assert (api.get_lpmode(), host.lit()) == (True, [])
    assert api.set_lpmode(False)
    host.sleep(0.3)
    assert (api.get_lpmode(), host.lit()) == (False, [1, 2, 3, 4])


def test_sonic_asks_a_passive_cable_for_nothing_that_it_lacks(sonic: Callable[..., Any]) -> None:
    _, api = opened(sonic, "100g-cr4")
    assert api.get_module_temperature() == "N/A"
    assert api.get_tx_bias() == ["N/A"] * 4
    assert api.get_rx_los() == ["N/A"] * 4
    assert api.get_tx_disable() == ["N/A"] * 4
    assert not api.get_transceiver_thresholds_support()
    assert not api.set_lpmode(True)
