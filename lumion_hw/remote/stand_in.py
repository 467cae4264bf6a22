"""Stand-ins for devices of a served bench: one class per interface, made from the interface itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Self

from lumion_hw.errors import ConnectError, LumionError
from lumion_hw.remote.client import PvaConnection
from lumion_hw.remote.roles import INTERFACES, members

STREAM = "Iterator"
"""What an iterator is called on the wire."""


class RemoteDevice:
    """A device of a served bench, or something that one has given back; subclasses have the methods of an interface.

    Args:
        name: What the server calls it: the device name of the bench file, or a handle.
        connection: The way to it.
        properties: Its properties, which are what they were when it was opened.
    """

    def __init__(self, name: str, connection: PvaConnection, properties: Mapping[str, Any]) -> None:
        self._name, self._connection, self._properties = name, connection, properties
        self._is_closed = False

    def __repr__(self) -> str:
        """Return one line."""
        return f"<{type(self).__name__} {self._name} at {self._connection.address}>"

    def ask(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of the device there. Raises what it raises there, and ``LinkError`` if the way is gone."""
        if self._is_closed:
            raise ConnectError(
                "this device of a served bench was closed", device=self._name, address=self._connection.address
            )
        return self._connection.call(self._name, method, arguments, named)

    def known(self, name: str) -> Any:
        """Return a property."""
        return self._properties[name]

    def close(self) -> None:
        """Let go of it; idempotent, never raises. A mesh controller that this program has driven comes to rest."""
        if not self._is_closed:
            with contextlib.suppress(LumionError):
                self.ask("close")
            self._is_closed = True


class RemoteStream(RemoteDevice):
    """Readings that come from a served bench until it is closed."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """Return the next reading, as soon as there is one."""
        if self._is_closed:
            raise StopIteration
        over, reading = self.ask("__next__")
        if over:
            raise StopIteration
        return reading


def stand_in(
    interface: str, name: str, connection: PvaConnection, properties: Mapping[str, Any] | None = None
) -> RemoteDevice:
    """Return what stands for a device.

    Args:
        interface: Name of its interface.
        name: What the server calls it.
        connection: The way to it.
        properties: Its properties.

    Raises:
        KeyError: There is no such interface.
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
    return lambda self: self.known(name)


def _method(name: str) -> Callable[..., Any]:
    def method(self: RemoteDevice, *arguments: Any, **named: Any) -> Any:
        return self.ask(name, *arguments, **named)

    method.__name__ = name
    return method
