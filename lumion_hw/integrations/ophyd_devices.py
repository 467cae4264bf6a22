"""Devices of ophyd-async for a bench that another process serves, for plans of bluesky."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from lumion_hw.errors import ConfigError
from lumion_hw.remote.client import PvaConnection
from lumion_hw.remote.pv_names import LEASE, parse_address, pv_name

try:
    from bluesky import plan_stubs
    from bluesky.preprocessors import finalize_wrapper
    from ophyd_async.core import Device, SignalR, SignalRW
    from ophyd_async.epics.core import epics_signal_r, epics_signal_rw
except ImportError as error:
    raise ConfigError(
        "the devices for bluesky need bluesky, ophyd-async and p4p", hint="pip install 'lumion-hw[bluesky]'"
    ) from error


class BenchDevice(Device):
    """One device of a served bench. Each reading and setting is a signal with its name, such as ``power_1``.

    Args:
        prefix: Name of the bench.
        points: Readings and settings of the device by full name, and whether they can be set.
    """

    def __init__(self, prefix: str, device: str, points: dict[str, bool], name: str = "") -> None:
        for point, is_writable in points.items():
            address = f"pva://{pv_name(prefix, point)}"
            signal: Any = epics_signal_rw if is_writable else epics_signal_r
            # Without a type: it is that of the process variable.
            setattr(self, _identifier(point.removeprefix(f"{device}.")), signal(None, address))
        super().__init__(name)


class BenchDevices(Device):
    """All devices of a served bench, by name: ``bench.mesh0.heater_ma_3``, ``bench.sfp_a.rx_power_dbm``.

    Args:
        prefix: Name of the bench.
        points: Readings and settings by full name, and whether they can be set.

    Attributes:
        lease_owner: Name of the holder of the lease; a plan takes the lease by writing a name.
        waits_for: Readings that a change waits for.
    """

    def __init__(self, prefix: str, points: dict[str, bool], name: str = "") -> None:
        self._prefix = prefix
        self.lease_owner: SignalRW[str] = epics_signal_rw(str, f"pva://{pv_name(prefix, LEASE, 'owner')}")
        self.waits_for: SignalRW[str] = epics_signal_rw(str, f"pva://{pv_name(prefix, LEASE, 'waits_for')}")
        for device in dict.fromkeys(point.partition(".")[0] for point in points):
            own = {point: writable for point, writable in points.items() if point.startswith(f"{device}.")}
            setattr(self, _identifier(device), BenchDevice(prefix, device, own))
        super().__init__(name)

    def with_lease(self, plan: Iterable[Any], owner: str, readings: Sequence[SignalR[Any]] = ()) -> Any:
        """Return a plan that takes the lease, runs a plan, and releases the lease in any case.

        Args:
            plan: The plan.
            owner: Name that other users see.
            readings: Readings that each change in the plan waits for; by default everything that sees light.
        """
        names = ",".join(reading.source.removeprefix("pva://") for reading in readings)
        release = plan_stubs.mv(self.lease_owner, "")

        def run() -> Any:
            yield from plan_stubs.mv(self.lease_owner, owner)
            yield from plan_stubs.mv(self.waits_for, names)
            return (yield from finalize_wrapper(plan, release))  # type: ignore[no-untyped-call] # of bluesky

        return run()


def to_ophyd(address: str, name: str = "bench") -> BenchDevices:
    """Return the devices of a served bench, not yet connected: call this within ``init_devices()``.

    Sets ``EPICS_PVA_NAME_SERVERS`` for this process, because ophyd-async finds process variables by it.

    Args:
        address: ``pva://host:port``, as printed by ``lumion serve --pva``.
        name: Name of the devices in documents.

    Raises:
        ConfigError: A package is missing, the address is invalid, or the environment names other servers.
        ConnectError: No bench is served at this address.
    """
    host, port = parse_address(address)
    server, servers = f"{host}:{port}", os.environ.get("EPICS_PVA_NAME_SERVERS", "")
    if servers and server not in servers.split():
        raise ConfigError(
            f"EPICS_PVA_NAME_SERVERS is {servers!r}, without {server}", hint="Add this server, or unset the variable."
        )
    os.environ.setdefault("EPICS_PVA_NAME_SERVERS", server)
    os.environ.setdefault("EPICS_PVA_AUTO_ADDR_LIST", "NO")
    connection = PvaConnection(address)
    try:
        points = dict(connection.describe()["points"])
    finally:
        connection.close()
    return BenchDevices(connection.bench, points, name)


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)
