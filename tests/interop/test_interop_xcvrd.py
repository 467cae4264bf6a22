"""SONiC's xcvrd brings emulated QSFP28 modules and the four ports of a 400G-DR4 break-out into operation.

Set SONIC_PLATFORM_DAEMONS and SONIC_PLATFORM_COMMON to checkouts of sonic-net/sonic-platform-daemons and
sonic-net/sonic-platform-common (tested with August 2026); without them these tests are skipped. The tasks of xcvrd and
its transceiver library run unchanged. Replaced are the Redis tables, by dictionaries, and the time, by the clock of the
emulator.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import os
import sys
import threading
import time
import types
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.transponders.qsfp.profiles import find_profile
from tests.emulator.transponders.cmis_testbench import Host as CmisHost
from tests.emulator.transponders.qsfp_testbench import Host as QsfpHost, NotAcknowledgedError

DAEMONS, COMMON = os.environ.get("SONIC_PLATFORM_DAEMONS", ""), os.environ.get("SONIC_PLATFORM_COMMON", "")

pytestmark = pytest.mark.skipif(
    not (DAEMONS and COMMON),
    reason="set SONIC_PLATFORM_DAEMONS and SONIC_PLATFORM_COMMON to checkouts of SONiC's repositories to run xcvrd",
)

OUTSIDE = ("swsscommon", "sonic_py_common", "natsort", "sonic_platform_base", "xcvrd")
"""Packages that must not be left behind, because other tests import their own."""
PORT = 1
"""Index of the cage."""
DP_ACTIVATED = 4


class Table:
    """A Redis table as xcvrd uses it."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, str]] = {}

    def set(self, key: str, pairs: list[tuple[str, str]]) -> None:
        self.rows.setdefault(key, {}).update(pairs)

    def hget(self, key: str, field: str) -> tuple[bool, str]:
        row = self.rows.get(key, {})
        return field in row, row.get(field, "")

    def get(self, key: str) -> tuple[bool, list[tuple[str, str]]]:
        return key in self.rows, list(self.rows.get(key, {}).items())

    def getKeys(self) -> list[str]:
        return list(self.rows)


class Tables:
    """The tables of a switch without a gearbox; a call ``get_NAME_tbl(asic)`` returns the table of that name."""

    def __init__(self, *_: object) -> None:
        self.tables: dict[str, Table] = defaultdict(Table)

    def get_gearbox_line_lanes_dict(self) -> dict[str, int]:
        return {}

    def __getattr__(self, name: str) -> Callable[..., Table]:
        return lambda *_: self.tables[name]


class Cage:
    """A cage with a module, as the platform of a switch presents it; memory is linear, as of the optoe driver."""

    def __init__(self, read: Callable[[int, int], bytes], write: Callable[[int, bytes], None]) -> None:
        self._read, self._write = read, write
        self.api: Any = None

    def read(self, offset: int, size: int) -> bytearray:
        data = bytearray()
        while len(data) < size:
            position = offset + len(data)
            data += self._read(position, min(size - len(data), 128 - position % 128))
        return data

    def write(self, offset: int, size: int, data: bytes) -> bool:
        self._write(offset, bytes(data[:size]))
        return True

    def get_presence(self) -> bool:
        return True

    def get_xcvr_api(self) -> Any:
        return self.api


def cmis_cage(host: CmisHost) -> Cage:
    def place(offset: int) -> int:
        if offset < 128:
            return offset
        host.select(offset // 128 - 1)
        return 128 + offset % 128

    return Cage(
        lambda offset, size: host.module.read(place(offset), size),
        lambda offset, data: host.module.write(place(offset), data),
    )


def qsfp_cage(host: QsfpHost) -> Cage:
    def patiently(action: Callable[[], Any]) -> Any:
        for _ in range(100):
            with contextlib.suppress(NotAcknowledgedError):
                return action()
            host.sleep(0.001)
        raise AssertionError("the module does not acknowledge")

    def place(offset: int) -> int:
        if offset < 128:
            return offset
        if not host.try_write(127, offset // 128 - 1):
            raise NotAcknowledgedError
        return 128 + offset % 128

    def write(offset: int, data: bytes) -> None:
        if not host.try_write(place(offset), *data):
            raise NotAcknowledgedError

    return Cage(
        lambda offset, size: patiently(lambda: host.read(place(offset), size)),
        lambda offset, data: patiently(lambda: write(offset, data)),
    )


class Switch:
    """xcvrd's tasks with one cage."""

    def __init__(self, patch: pytest.MonkeyPatch, clock: VirtualClock, cage: Cage) -> None:
        self.tables = Tables()
        self.cage, self.clock = cage, clock
        self._patch = patch
        patch.setattr(time, "sleep", clock.sleep)
        for module in ("sff_mgr", "cmis.cmis_manager_task"):
            patch.setattr(self.module(module), "XcvrTableHelper", lambda *_: self.tables)
        now = datetime.datetime(2026, 1, 1)
        moment = SimpleNamespace(now=lambda: now + datetime.timedelta(seconds=clock.now()))
        fake = SimpleNamespace(datetime=moment, timedelta=datetime.timedelta)
        patch.setattr(self.module("cmis.cmis_manager_task"), "datetime", fake)
        factory = importlib.import_module("sonic_platform_base.sonic_xcvr.xcvr_api_factory").XcvrApiFactory
        cage.api = factory(cage.read, cage.write).create_xcvr_api()

    def module(self, name: str) -> Any:
        return importlib.import_module(f"xcvrd.{name}")

    def event(self, port: str, **fields: str) -> Any:
        helper = self.module("xcvrd_utilities.port_event_helper")
        return helper.PortChangeEvent(port, PORT, 0, helper.PortChangeEvent.PORT_SET, fields)

    def sff_task(self) -> Any:
        chassis = SimpleNamespace(get_sfp=lambda _: self.cage)
        return self.module("sff_mgr").SffManagerTask([""], threading.Event(), chassis, MagicMock())

    def run_sff(self, task: Any, *events: Any) -> None:
        """Let the task handle these events, and stop it."""
        waiting = list(events)

        def observer(
            _names: object, _log: object, stop: threading.Event, handle: Callable[[Any], None], _: object
        ) -> Any:
            def deliver() -> bool:
                if not waiting:
                    stop.set()
                    return False
                handle(waiting.pop(0))
                return True

            return SimpleNamespace(handle_port_update_event=deliver)

        self._patch.setattr(self.module("sff_mgr"), "PortChangeObserver", observer)
        task.task_stopping_event.clear()
        task.task_worker()

    def cmis_task(self) -> Any:
        mapping = SimpleNamespace(logical_to_asic={})
        task = self.module("cmis.cmis_manager_task").CmisManagerTask
        return task([""], mapping, {PORT: self.cage}, threading.Event())

    def run_cmis(self, task: Any, limit_s: float = 120.0) -> dict[str, str]:
        """Let the task run until all ports have reached a final state; return the states."""
        final = self.module("xcvrd_utilities.common").CMIS_TERMINAL_STATES
        status = self.tables.tables["get_status_sw_tbl"]
        end_s = self.clock.now() + limit_s
        while True:
            for port, info in task.port_dict.items():
                task.process_single_lport(port, info)
            states = {port: status.rows[port]["cmis_state"] for port in task.port_dict}
            if set(states.values()) <= final or self.clock.now() > end_s:
                return states
            self.clock.sleep(0.5)


@pytest.fixture
def switch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[VirtualClock, Cage], Switch]]:
    """Return the constructor of a switch with the packages of SONiC on the path."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(COMMON)
    monkeypatch.syspath_prepend(str(Path(DAEMONS) / "sonic-xcvrd"))
    # These packages import the rest of a switch when they are loaded.
    for name in ("sonic_platform_base", "xcvrd"):
        root = Path(COMMON) / name if name == "sonic_platform_base" else Path(DAEMONS) / "sonic-xcvrd" / name
        package = types.ModuleType(name)
        package.__path__ = [str(root)]
        monkeypatch.setitem(sys.modules, name, package)
    common = MagicMock(swsscommon=MagicMock(FieldValuePairs=list))
    for name in ("swsscommon", "sonic_py_common", "sonic_py_common.syslogger", "xcvrd.xcvrd"):
        monkeypatch.setitem(sys.modules, name, common if name == "swsscommon" else MagicMock())
    monkeypatch.setitem(sys.modules, "natsort", MagicMock(natsorted=sorted))
    settings = MagicMock(optics_si_present=lambda: False, media_settings_present=lambda: False)
    for name in ("media_settings_parser", "optics_si_parser"):
        monkeypatch.setitem(sys.modules, f"xcvrd.xcvrd_utilities.{name}", settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        common_part = importlib.import_module("xcvrd.xcvrd_utilities.common")
    monkeypatch.setattr(common_part, "is_fast_reboot_enabled", lambda *_: False)
    yield lambda clock, cage: Switch(monkeypatch, clock, cage)
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in OUTSIDE:
            del sys.modules[name]


INSERTED = {"type": "QSFP28", "lanes": "1,2,3,4"}


@pytest.mark.parametrize("profile", ["100g-lr4", "100g-cwdm4", "100g-sr4", "100g-psm4", "100g-aoc", "40g-lr4"])
def test_xcvrd_lights_a_qsfp_module_only_while_its_port_is_up(switch: Callable[..., Switch], profile: str) -> None:
    host = QsfpHost(profile)
    host.sleep(3.0)
    machine = switch(host.clock, qsfp_cage(host))
    task = machine.sff_task()
    lit = []
    for fields in (
        {**INSERTED, "host_tx_ready": "false", "admin_status": "up"},
        {"host_tx_ready": "true"},
        {"admin_status": "down"},
        {"admin_status": "up"},
    ):
        machine.run_sff(task, machine.event("Ethernet0", **fields))
        host.sleep(1.0)
        lit.append(host.lit())
    assert lit == [[], [1, 2, 3, 4], [], [1, 2, 3, 4]]


def test_xcvrd_switches_one_lane_of_a_module_with_four_ports(switch: Callable[..., Switch]) -> None:
    host = QsfpHost("100g-psm4")
    host.sleep(3.0)
    machine = switch(host.clock, qsfp_cage(host))
    task = machine.sff_task()
    ports = {f"Ethernet{lane - 1}": lane for lane in (1, 2, 3, 4)}
    up = {"type": "QSFP28", "host_tx_ready": "true", "admin_status": "up"}
    for port, lane in ports.items():
        machine.run_sff(task, machine.event(port, **up, lanes=str(lane), subport=str(lane)))
    host.sleep(1.0)
    before = dict(host.light.sent)
    assert host.lit() == [1, 2, 3, 4]
    machine.run_sff(task, machine.event("Ethernet1", admin_status="down"))
    host.sleep(1.0)
    assert host.lit() == [1, 3, 4]
    assert {lane: host.light.sent[lane] for lane in (1, 3, 4)} == {lane: before[lane] for lane in (1, 3, 4)}


@pytest.mark.parametrize(("power_class", "bit"), [(4, 0x00), (6, 0x04), (8, 0x08)])
def test_xcvrd_allows_the_power_that_a_module_announces(
    switch: Callable[..., Switch], power_class: int, bit: int
) -> None:
    host = QsfpHost(replace(find_profile("100g-lr4"), power_class=power_class))
    host.sleep(3.0)
    assert host.lit() == ([1, 2, 3, 4] if power_class == 4 else [])
    machine = switch(host.clock, qsfp_cage(host))
    machine.run_sff(machine.sff_task(), machine.event("Ethernet0", **INSERTED, host_tx_ready="true", admin_status="up"))
    host.sleep(1.0)
    assert host.byte(93) & 0x0C == bit
    assert host.lit() == [1, 2, 3, 4]


def test_xcvrd_leaves_a_passive_cable_alone(switch: Callable[..., Switch]) -> None:
    host = QsfpHost("100g-cr4")
    host.sleep(3.0)
    machine = switch(host.clock, qsfp_cage(host))
    before = host.read(0, 128)
    machine.run_sff(machine.sff_task(), machine.event("Ethernet0", **INSERTED, host_tx_ready="true", admin_status="up"))
    assert host.read(0, 128) == before


def break_out(host: CmisHost, switch: Callable[..., Switch], n_ports: int) -> tuple[Switch, Any, list[str]]:
    """Return a switch, its task and the logical ports, with a port of 8 / n lanes for each part of the module."""
    machine = switch(host.clock, cmis_cage(host))
    task = machine.cmis_task()
    n_lanes = 8 // n_ports
    ports = [f"Ethernet{n_lanes * number}" for number in range(n_ports)]
    for number, port in enumerate(ports):
        lanes = ",".join(str(n_lanes * number + lane + 1) for lane in range(n_lanes))
        fields = {
            "index": str(PORT),
            "speed": str(400_000 // n_ports),
            "lanes": lanes,
            "subport": str(number + 1 if n_ports > 1 else 0),
            "admin_status": "up",
        }
        machine.tables.tables["get_cfg_port_tbl"].set(port, list(fields.items()))
        machine.tables.tables["get_intf_tbl"].set(port, [("type", "QSFP-DD")])
        task.on_port_update_event(machine.event(port, **fields, host_tx_ready="true"))
    return machine, task, ports


def launched(host: CmisHost) -> list[int]:
    """Return the media lanes that emit."""
    latest = {light.media_lane: light.enabled for light in host.sent}
    return sorted(lane for lane, enabled in latest.items() if enabled)


def applications(host: CmisHost) -> list[int]:
    return [value >> 4 for value in host.read(0x11, 206, 8)]


@pytest.mark.parametrize("low_power_pin", [True, False])
def test_xcvrd_brings_four_ports_of_a_dr4_to_ready(switch: Callable[..., Switch], low_power_pin: bool) -> None:
    """The module starts with its first application, 400G on eight lanes (sonic-buildimage issue 20430)."""
    host = CmisHost("400g-dr4", low_power_pin=low_power_pin)
    host.wait(20.0)
    machine, task, ports = break_out(host, switch, 4)
    assert machine.run_cmis(task) == dict.fromkeys(ports, "READY")
    assert host.states() == [DP_ACTIVATED] * 8
    assert applications(host) == [2] * 8
    assert launched(host) == [1, 2, 3, 4]
    rows = machine.tables.tables["get_intf_tbl"].rows
    assert [rows["Ethernet4"][f"active_apsel_hostlane{lane}"] for lane in (4, 5, 6, 7)] == ["N/A", "2", "2", "N/A"]


def test_xcvrd_shuts_one_port_and_the_light_of_the_others_stays(switch: Callable[..., Switch]) -> None:
    host = CmisHost("400g-dr4", low_power_pin=False)
    host.wait(20.0)
    machine, task, ports = break_out(host, switch, 4)
    machine.run_cmis(task)
    n_before = len(host.sent)
    task.on_port_update_event(machine.event("Ethernet2", admin_status="down"))
    machine.run_cmis(task)
    host.wait(5.0)
    assert launched(host) == [1, 3, 4]
    assert {light.media_lane for light in host.sent[n_before:]} == {2}
    task.on_port_update_event(machine.event("Ethernet2", admin_status="up"))
    assert machine.run_cmis(task) == dict.fromkeys(ports, "READY")
    host.wait(5.0)
    assert launched(host) == [1, 2, 3, 4]
    assert {light.media_lane for light in host.sent[n_before:]} == {2}


@pytest.mark.parametrize("profile", ["400g-dr4", "400g-fr4", "400zr"])
def test_xcvrd_brings_a_module_with_one_port_to_ready(switch: Callable[..., Switch], profile: str) -> None:
    host = CmisHost(profile)
    host.wait(20.0)
    machine, task, ports = break_out(host, switch, 1)
    assert machine.run_cmis(task, 300.0) == dict.fromkeys(ports, "READY")
    assert host.states() == [DP_ACTIVATED] * 8
