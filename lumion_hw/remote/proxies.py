"""Proxies for the devices of a served bench: one class per interface."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, Self

from lumion_hw.errors import ConnectError, LumionError
from lumion_hw.remote.roles import INTERFACES, members

STREAM = "Iterator"
"""Interface name that the server sends for an iterator."""


class RemoteCaller(Protocol):
    """A connection that can call methods of remote devices."""

    address: str

    def call(
        self, device: str, method: str, arguments: Sequence[Any] = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a method of a device on the remote bench. Raises the error of the method."""


class RemoteDevice:
    """A device of a served bench, or an object that such a device returned.

    Args:
        name: Name on the server: the device name in the bench file, or the handle of a returned object.
        properties: Values of the properties when the device was opened; they are not updated.
    """

    def __init__(self, name: str, connection: RemoteCaller, properties: Mapping[str, Any]) -> None:
        self._name, self._connection, self._properties = name, connection, properties
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name} at {self._connection.address}>"

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of the remote device.

        Raises:
            LinkError: The connection is lost.
            Exception: The error of the method.
        """
        if self._is_closed:
            raise ConnectError(
                "this device of a served bench was closed", device=self._name, address=self._connection.address
            )
        return self._connection.call(self._name, method, arguments, named)

    def property_value(self, name: str) -> Any:
        """Return the value of a property when the device was opened."""
        return self._properties[name]

    def close(self) -> None:
        """Release the device. Never raises; may be called twice. Heaters that this program used are switched off."""
        if not self._is_closed:
            with contextlib.suppress(LumionError):
                self.call("close")
            self._is_closed = True


class RemoteStream(RemoteDevice):
    """Iterator over readings that a served bench sends until the stream is closed."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._is_closed:
            raise StopIteration
        is_over, reading = self.call("__next__")
        if is_over:
            raise StopIteration
        return reading


def device_proxy(
    interface: str, name: str, connection: RemoteCaller, properties: Mapping[str, Any] | None = None
) -> RemoteDevice:
    """Return a proxy for the device ``name`` with the methods of an interface.

    Raises:
        KeyError: No interface has this name.
    """
    return _class_for(interface)(name, connection, properties or {})


@cache
def _class_for(interface: str) -> type[RemoteDevice]:
    if interface == STREAM:
        return RemoteStream
    namespace: dict[str, Any] = {}
    for name, is_property in members(INTERFACES[interface]):
        if name != "close":
            namespace[name] = property(_getter(name)) if is_property else _method(name)
    return type(f"Remote{interface}", (RemoteDevice,), namespace)


def _getter(name: str) -> Callable[[RemoteDevice], Any]:
    return lambda self: self.property_value(name)


def _method(name: str) -> Callable[..., Any]:
    def method(self: RemoteDevice, *arguments: Any, **named: Any) -> Any:
        return self.call(name, *arguments, **named)

    method.__name__ = name
    return method
