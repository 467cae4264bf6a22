"""Calls of the interfaces from elsewhere: what may be called, by whom, and what of it lives on here."""

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
"""Streams and watches that one connection may have at a time."""
_MAX_READER_STREAMS = 2
"""Streams of one device that clients without the lease may have together: a controller has four."""
_MAX_CALLS = 24
"""Calls of one connection under way at a time: the server has 32 workers, and others need some."""


@dataclass(frozen=True)
class _Handle:
    """Something that a call gave back: a stream of readings, a watch.

    Attributes:
        what: The stream or watch.
        connection: The connection it belongs to.
        device: The device it is of.
        is_reader: Its client did not hold the lease.
        reading: Held by the call that waits for the next reading.
    """

    what: Any
    connection: str
    device: str
    is_reader: bool
    reading: threading.Lock = field(default_factory=threading.Lock)


class Calls:
    """Calls methods of open devices for others. Thread-safe as the devices are.

    Args:
        devices: Open devices by name.
        lease: Who may change them.
        on_close: What closing a device from elsewhere does; the device itself stays open.
        check_change: Asked before a device is changed: device and method. Raises what forbids it.
        change_context: Context of a call that may change a device.
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
        self._under_way: Counter[str] = Counter()

    def describe(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Return interface and properties of every device."""
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
        """Call a method of an interface.

        Raises:
            BusyError: It may change something, and the caller does not hold the lease; or its connection has too many
                calls under way.
            UnknownNameError: There is no such device, or its interface has no such method.
            Exception: What the device raises.
        """
        with self._count_call(caller.connection):
            if device.startswith(HANDLE):
                return self._call_handle(device, method, arguments, named, caller)
            return self._call_device(device, method, arguments, named, caller)

    @contextlib.contextmanager
    def _count_call(self, connection: str) -> Iterator[None]:
        """Count a call of a connection while it is under way. Raises ``BusyError`` if there are too many."""
        with self._lock:
            if self._under_way[connection] >= _MAX_CALLS:
                raise BusyError(f"{_MAX_CALLS} calls of this connection are under way", hint="Wait for one to end.")
            self._under_way[connection] += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= Counter([connection])

    def _call_device(
        self, device: str, method: str, arguments: Sequence[Any], named: Mapping[str, Any], caller: Caller
    ) -> object:
        interface = self._interfaces.get(device)
        if interface is None:
            listed = ", ".join(self._interfaces)
            raise UnknownNameError(f"no device {device!r} is served", hint=f"There are {listed or 'none'}.")
        known = {name for name, is_property in members(INTERFACES[interface]) if not is_property}
        if method not in known:
            raise UnknownNameError(
                f"{interface} has no method {method!r}", device=device, hint=f"It has {', '.join(sorted(known))}."
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
            raise ConfigError("this stream or watch of a served bench was closed", hint="Begin another one.")
        if method == "__next__":
            return self._next_reading(handle)
        interface = find_interface(handle.what)
        known = {"close"} if interface is None else {member for member, _ in members(INTERFACES[interface])}
        if method not in known:
            raise UnknownNameError(f"there is no method {method!r}", device=handle.device)
        return getattr(handle.what, method)(*arguments, **named)

    def _next_reading(self, handle: _Handle) -> tuple[bool, object]:
        """Return whether a stream is over, and its next reading."""
        if not handle.reading.acquire(blocking=False):
            raise BusyError("another call waits for the next reading of this stream", device=handle.device)
        try:
            return False, next(handle.what)
        except StopIteration:
            return True, None
        finally:
            handle.reading.release()

    def document(self, result: object, caller: Caller, device: str) -> dict[str, Any]:
        """Return the answer that tells a result: its value, or a handle of what has to live on here."""
        if isinstance(result, Iterator):
            return {"handle": self._store_handle(result, caller, device), "interface": STREAM}
        try:
            return {"value": encode(result)}
        except TypeError:
            interface = find_interface(result)
            if interface is None:
                raise
            return {"handle": self._store_handle(result, caller, device), "interface": interface}

    def _store_handle(self, what: Any, caller: Caller, device: str) -> str:
        try:
            self._lease.check(caller)
            is_reader = False
        except BusyError:
            is_reader = True
        with self._lock:
            refusal = self._refusal(caller, device, is_reader)
            if refusal is None:
                name = f"{HANDLE}{next(self._numbers)}"
                self._handles[name] = _Handle(what, caller.connection, device, is_reader)
                return name
        _close_quietly(what)
        raise refusal

    def _refusal(self, caller: Caller, device: str, is_reader: bool) -> LumionError | None:
        """Return why a client may have no further stream or watch; ``None`` if it may."""
        kept = self._handles.values()
        if sum(each.connection == caller.connection for each in kept) >= _MAX_HANDLES:
            return ConfigError(f"{_MAX_HANDLES} streams and watches are open already", hint="Close some.")
        if is_reader and sum(each.is_reader and each.device == device for each in kept) >= _MAX_READER_STREAMS:
            return BusyError(
                f"clients without the lease have {_MAX_READER_STREAMS} streams of it already",
                device=device,
                hint="Take the lease, or wait until one is closed.",
            )
        return None

    def connections(self) -> set[str]:
        """Return the connections that have streams or watches."""
        with self._lock:
            return {each.connection for each in self._handles.values()}

    def drop(self, connection: str | None = None) -> None:
        """End the streams and watches of a connection that is gone, or all of them."""
        with self._lock:
            going = [
                name for name, each in self._handles.items() if connection is None or each.connection == connection
            ]
            ended = [self._handles.pop(name) for name in going]
        for each in ended:
            _close_quietly(each.what)


def _close_quietly(what: Any) -> None:
    close = getattr(what, "close", None)
    if close is not None:
        with contextlib.suppress(Exception):
            close()


def handle_request(
    request: Mapping[str, Any],
    caller: Caller,
    calls: Calls,
    lease: BenchLease,
    others: Mapping[str, Callable[..., object]],
) -> dict[str, Any]:
    """Do what a request asks for, and return the answer; an error is an answer, too.

    Args:
        request: ``device``, ``method``, ``arguments``, ``named`` and ``lease``.
        caller: Who asks, without the number of its lease.
        calls: Calls of devices.
        lease: The lease.
        others: What can be asked of the server itself besides the lease and the time; each is told the caller first.
    """
    try:
        device, method = str(request["device"]), str(request["method"])
        arguments = [decode(each) for each in request["arguments"]]
        named: dict[str, Any] = decode(request["named"])
        number = request["lease"]
        asks = Caller(caller.name, caller.connection, caller.account, number if isinstance(number, int) else None)
        if device:
            return calls.document(calls.call(device, method, arguments, named, asks), asks, device)
        own: dict[str, Callable[..., object]] = {
            "time": lambda: {"monotonic_s": time.monotonic(), "boot": boot_id()},
            "take": lambda owner, lasts_s, instead_of=None: (
                lease.take(owner, asks, lasts_s=lasts_s, instead_of=instead_of).number
            ),
            "renew": lambda: lease.check(asks).number,
            "release": lambda: lease.release(asks),
        }
        if method in own:
            return {"value": encode(own[method](*arguments, **named))}
        if method not in others:
            raise UnknownNameError(f"a served bench does not know {method!r}")
        return {"value": encode(others[method](asks, *arguments, **named))}
    except Exception as error:  # noqa: BLE001 - whatever it is, the caller is told
        return {"error": encode_error(error)}
