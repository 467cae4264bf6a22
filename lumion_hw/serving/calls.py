"""Remote calls of device methods: access checks, calls, streams and watches."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from lumion_hw.clock import boot_id
from lumion_hw.errors import BusyError, ConfigError, LumionError, UnknownNameError
from lumion_hw.remote.codec import decode, encode, encode_error
from lumion_hw.remote.proxies import STREAM
from lumion_hw.remote.pv_names import HANDLE
from lumion_hw.remote.roles import INTERFACES, READS, SAFE, find_interface, members
from lumion_hw.serving.lease import BenchLease, Caller

_MAX_HANDLES = 16
"""Maximum number of open streams and watches per connection."""
_MAX_READER_STREAMS = 2
"""Maximum number of streams of one device for clients without the lease; a controller supports four in total."""
_MAX_CALLS = 24
"""Maximum number of running calls per connection."""


@dataclass(frozen=True)
class _Handle:
    """An open stream or watch of one connection."""

    source: Any
    connection: str
    device: str
    is_reader: bool
    reading: threading.Lock = field(default_factory=threading.Lock)


class Calls:
    """Calls methods of open devices for remote clients. Thread-safe if the devices are.

    Args:
        devices: Open devices by name.
        lease: The lease, which a client needs to change a device.
        on_close: Called when a client closes a device; the device itself stays open.
        check_change: Called with device and method before a change; raises an error to forbid the change.
        change_context: Context manager around every call that may change a device.
    """

    def __init__(
        self,
        devices: Mapping[str, Any],
        lease: BenchLease,
        *,
        on_close: Callable[[str, Caller], None] = lambda device, caller: None,
        check_change: Callable[[str, str], None] = lambda device, method: None,
        change_context: Callable[[str, str, Caller], AbstractContextManager[None]] = lambda device, method, caller: (
            contextlib.nullcontext()
        ),
    ) -> None:
        self._devices, self._lease = devices, lease
        self._on_close, self._check_change, self._change_context = on_close, check_change, change_context
        self._interfaces = {
            name: interface for name, device in devices.items() if (interface := find_interface(device)) is not None
        }
        self._lock = threading.Lock()
        self._handles: dict[str, _Handle] = {}
        self._numbers = itertools.count(1)
        self._running_calls: Counter[str] = Counter()

    def describe(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Return the interface name and properties of every device."""
        return {
            name: (
                interface,
                {
                    member: getattr(self._devices[name], member)
                    for member, is_property in members(INTERFACES[interface])
                    if is_property
                },
            )
            for name, interface in self._interfaces.items()
        }

    def call(
        self, device: str, method: str, arguments: Sequence[Any], named: Mapping[str, Any], caller: Caller
    ) -> object:
        """Call a method of a device, or of an open stream or watch.

        Raises:
            BusyError: The caller needs the lease for this method, or too many calls of its connection are running.
            UnknownNameError: The device does not exist, or its interface has no such method.
            Exception: The error of the device.
        """
        with self._count_call(caller.connection):
            if device.startswith(HANDLE):
                return self._call_handle(device, method, arguments, named, caller)
            return self._call_device(device, method, arguments, named, caller)

    @contextlib.contextmanager
    def _count_call(self, connection: str) -> Iterator[None]:
        with self._lock:
            if self._running_calls[connection] >= _MAX_CALLS:
                raise BusyError(f"{_MAX_CALLS} calls of this connection are running", hint="Wait until a call ends.")
            self._running_calls[connection] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running_calls -= Counter([connection])

    def _call_device(
        self, device: str, method: str, arguments: Sequence[Any], named: Mapping[str, Any], caller: Caller
    ) -> object:
        interface = self._interfaces.get(device)
        if interface is None:
            listed = ", ".join(self._interfaces)
            raise UnknownNameError(
                f"this bench does not serve a device {device!r}", hint=f"The devices are {listed or 'none'}."
            )
        methods = {name for name, is_property in members(INTERFACES[interface]) if not is_property}
        if method not in methods:
            raise UnknownNameError(
                f"{interface} has no method {method!r}", device=device, hint=f"It has {', '.join(sorted(methods))}."
            )
        if method == "close":
            return self._on_close(device, caller)
        changes = method not in READS and method not in SAFE
        if changes:
            self._lease.check(caller)
            self._check_change(device, method)
        is_change = changes or method in SAFE
        with self._change_context(device, method, caller) if is_change else contextlib.nullcontext():
            return getattr(self._devices[device], method)(*arguments, **named)

    def _call_handle(
        self, name: str, method: str, arguments: Sequence[Any], named: Mapping[str, Any], caller: Caller
    ) -> object:
        with self._lock:
            handle = self._handles.get(name)
            if handle is not None and method == "close":
                del self._handles[name]
        if handle is None or handle.connection != caller.connection:
            raise ConfigError("this stream or watch of the served bench is closed", hint="Open a new stream or watch.")
        if method == "__next__":
            return self._next_reading(handle)
        interface = find_interface(handle.source)
        methods = {"close"} if interface is None else {member for member, _ in members(INTERFACES[interface])}
        if method not in methods:
            raise UnknownNameError(f"{interface or 'a stream'} has no method {method!r}", device=handle.device)
        return getattr(handle.source, method)(*arguments, **named)

    def _next_reading(self, handle: _Handle) -> tuple[bool, object]:
        if not handle.reading.acquire(blocking=False):
            raise BusyError("another call already waits for the next reading of this stream", device=handle.device)
        try:
            return False, next(handle.source)
        except StopIteration:
            return True, None
        finally:
            handle.reading.release()

    def document(self, result: object, caller: Caller, device: str) -> dict[str, Any]:
        """Return the reply to a call: the result, or the handle of an opened stream or watch."""
        if isinstance(result, Iterator):
            return {"handle": self._store_handle(result, caller, device), "interface": STREAM}
        try:
            return {"value": encode(result)}
        except TypeError:
            interface = find_interface(result)
            if interface is None:
                raise
            return {"handle": self._store_handle(result, caller, device), "interface": interface}

    def _store_handle(self, source: Any, caller: Caller, device: str) -> str:
        try:
            self._lease.check(caller)
            is_reader = False
        except BusyError:
            is_reader = True
        with self._lock:
            refusal = self._refusal(caller, device, is_reader)
            if refusal is None:
                name = f"{HANDLE}{next(self._numbers)}"
                self._handles[name] = _Handle(source, caller.connection, device, is_reader)
                return name
        _close_quietly(source)
        raise refusal

    def _refusal(self, caller: Caller, device: str, is_reader: bool) -> LumionError | None:
        handles = self._handles.values()
        if sum(handle.connection == caller.connection for handle in handles) >= _MAX_HANDLES:
            return ConfigError(f"this client has {_MAX_HANDLES} streams and watches open", hint="Close some of them.")
        n_readers = sum(handle.is_reader and handle.device == device for handle in handles)
        if is_reader and n_readers >= _MAX_READER_STREAMS:
            return BusyError(
                f"clients without the lease have {_MAX_READER_STREAMS} streams of this device open",
                device=device,
                hint="Take the lease, or wait until one of the streams is closed.",
            )
        return None

    def connections(self) -> set[str]:
        """Return the connections with open streams or watches."""
        with self._lock:
            return {handle.connection for handle in self._handles.values()}

    def drop(self, connection: str | None = None) -> None:
        """Close the streams and watches of one connection, or of all connections."""
        with self._lock:
            names = [
                name for name, handle in self._handles.items() if connection is None or handle.connection == connection
            ]
            handles = [self._handles.pop(name) for name in names]
        for handle in handles:
            _close_quietly(handle.source)


def _close_quietly(source: Any) -> None:
    close = getattr(source, "close", None)
    if close is not None:
        with contextlib.suppress(Exception):
            close()


def handle_request(
    request: Mapping[str, Any],
    caller: Caller,
    calls: Calls,
    lease: BenchLease,
    other_functions: Mapping[str, Callable[..., object]],
) -> dict[str, Any]:
    """Execute a request and return the reply; an error is returned as a reply.

    Args:
        request: Document with ``device``, ``method``, ``arguments``, ``named`` and ``lease``.
        caller: The client, without its lease number.
        calls: Device calls.
        lease: The lease.
        other_functions: Methods of the server itself, by name; the first argument of each is the caller.
    """
    try:
        device, method = str(request["device"]), str(request["method"])
        arguments = [decode(argument) for argument in request["arguments"]]
        named: dict[str, Any] = decode(request["named"])
        number = request["lease"]
        client = Caller(caller.name, caller.connection, caller.account, number if isinstance(number, int) else None)
        if device:
            return calls.document(calls.call(device, method, arguments, named, client), client, device)
        own: dict[str, Callable[..., object]] = {
            "time": lambda: {"monotonic_s": time.monotonic(), "boot": boot_id()},
            "take": lambda owner, lasts_s, instead_of=None: (
                lease.take(owner, client, lasts_s=lasts_s, instead_of=instead_of).number
            ),
            "renew": lambda: lease.check(client).number,
            "release": lambda: lease.release(client),
        }
        if method in own:
            return {"value": encode(own[method](*arguments, **named))}
        if method not in other_functions:
            raise UnknownNameError(f"a served bench has no method {method!r}")
        return {"value": encode(other_functions[method](client, *arguments, **named))}
    except Exception as error:  # noqa: BLE001 - every error is returned to the caller
        return {"error": encode_error(error)}
