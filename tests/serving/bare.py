"""A server of single devices without a bench, for the contract suites."""

import contextlib
import dataclasses
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from lumion_hw.errors import LumionError
from lumion_hw.remote.client import PvaConnection
from lumion_hw.remote.proxies import RemoteDevice, device_proxy
from lumion_hw.serving.calls import Calls
from lumion_hw.serving.lease import BenchLease, Caller
from lumion_hw.serving.owner import Subscription
from lumion_hw.serving.pva import PvaServer
from lumion_hw.serving.state import ServedHealth, ServedLease, ServedState


class BareOwner:
    """An owner with calls and a lease, but without readings."""

    awaited = ""

    def __init__(self, directory: Any) -> None:
        self.bench = SimpleNamespace(model=SimpleNamespace(name="bare"))
        self.lease = BenchLease(directory, time.time)
        self.calls, self.ports = Calls({}, self.lease), set()
        health = ServedHealth(time.time(), {}, "nothing")
        self.state = ServedState(1, time.time(), "bare", {}, None, (), (), None, ServedLease(), health)
        self._subscription = Subscription(self.state, lambda subscription: None)

    def subscribe(self) -> Subscription:
        self.state = dataclasses.replace(self.state, number=self.state.number + 1)
        return self._subscription

    def close(self) -> None:
        self._subscription.close()


class BareServer:
    """A server of a single driver, which can be replaced, and a client of this server."""

    def __init__(self, directory: Any) -> None:
        self.owner = BareOwner(directory)
        self.server = PvaServer(self.owner)  # type: ignore[arg-type] # has what the server asks for
        self.connection = PvaConnection(self.server.address)

    def stand_in(self, driver: Any) -> RemoteDevice:
        """Serve a driver instead of the previous one, and return its proxy."""

        def closing(_device: str, _caller: Caller) -> None:
            with contextlib.suppress(LumionError, AttributeError):
                driver.program(np.zeros(driver.info.n_heaters))

        self.owner.calls = Calls({"served": driver}, self.owner.lease, on_close=closing)
        interface, properties = self.owner.calls.describe()["served"]
        return device_proxy(interface, "served", self.connection, properties)

    def close(self) -> None:
        self.connection.close()
        self.owner.close()
        self.server.close()
