"""Connection to a served bench: calls over PV Access, and the lease."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from lumion_hw.clock import Clock, SystemClock, boot_id
from lumion_hw.errors import BusyError, ConfigError, ConnectError, FrameError, LinkLost, LumionError
from lumion_hw.files.json_text import json_text
from lumion_hw.files.reading import parse_json
from lumion_hw.links.owner import OwnerProcess, fork_safe
from lumion_hw.remote.codec import decode_error, decode_received, encode
from lumion_hw.remote.emulated_faults import EmulatedFaults
from lumion_hw.remote.proxies import device_proxy
from lumion_hw.remote.pv_names import (
    CALL,
    HANDLE,
    HEARTBEAT,
    PROTOCOL,
    SERVED,
    client_conf,
    parse_address,
    pv_name,
    require_p4p,
)
from lumion_hw.remote.roles import READS, SAFE

LEASE_S = 3.0
"""Time after which the server ends the lease of a program that does not renew it."""
_CONNECT_S = 5.0
_POLL_S = 0.1


class ServedClock(SystemClock):
    """Clock of a server on another host, which is ``ahead_s`` ahead of the clock of this host."""

    def __init__(self, ahead_s: float) -> None:
        self._ahead_s = ahead_s

    def now(self) -> float:
        """Return the monotonic time of the server, in seconds."""
        return super().now() + self._ahead_s


class PvaConnection:
    """Connection to one served bench. Thread-safe. Errors of the server are raised here.

    Args:
        address: ``pva://host:port``, as printed by `lumion serve`.
        owner: Name of the lease holder that other users see.
        take_over: Name of the lease holder from which the lease may be taken.
        prefix: Prefix of the process variables; by default read from the server.

    Raises:
        ConfigError: The address is not valid, p4p is not installed, or the server has a different version.
        ConnectError: No bench is served at the address.
    """

    def __init__(
        self, address: str, *, owner: str | None = None, take_over: str | None = None, prefix: str | None = None
    ) -> None:
        self.address = address
        self._owner_name = owner or _program_name()
        self._take_over = take_over
        self._process = OwnerProcess()
        self._process.claim(address)
        self._p4p = require_p4p()
        self._lock = fork_safe(threading.RLock())
        self._number: int | None = None
        self._ended = threading.Event()
        self._renewal_thread: threading.Thread | None = None
        host, port = parse_address(address)
        self._context = self._p4p.client.thread.Context("pva", conf=client_conf(host, port), useenv=False)
        self._lost, self._beats = threading.Event(), fork_safe(threading.Lock())
        self._watch: Any = None
        try:
            self._lost.set()
            self._prefix = prefix or self._bench_name()
            # The method of the thread's context sometimes forgets the first event, and then reports no other.
            self._watch = self._raw.monitor(pv_name(self._prefix, HEARTBEAT), self._read_heartbeats)
            self._read_heartbeats()
            self._await_first_beat()
        except BaseException:
            self.close()
            raise

    def _bench_name(self) -> str:
        try:
            reply = str(self._context.get(SERVED, timeout=_CONNECT_S).raw.value)
        except Exception as error:
            raise ConnectError(
                "no bench is served at this address",
                address=self.address,
                hint="Start `lumion serve BENCH --pva` and use the address that it prints.",
            ) from error
        document = parse_json(reply.encode(), "the server's description")
        if not isinstance(document, dict) or document.get("protocol") != PROTOCOL:
            raise ConfigError(
                f"the server uses protocol version {str(reply)[:80]}, this program version {PROTOCOL}",
                address=self.address,
                hint="Install the same version of lumion-hw on both sides.",
            )
        return str(document["bench"])

    @property
    def _raw(self) -> Any:
        """The base class of the context, whose methods return at once."""
        return super(type(self._context), self._context)

    def _read_heartbeats(self) -> None:
        with self._beats:
            while self._watch is not None and (beat := self._watch.pop()) is not None:
                if isinstance(beat, Exception):  # disconnected
                    self._lost.set()
                else:
                    self._lost.clear()

    def _await_first_beat(self) -> None:
        deadline_s = time.monotonic() + _CONNECT_S
        while self._lost.is_set():
            if time.monotonic() > deadline_s:
                raise ConnectError("the served bench does not respond", address=self.address)
            time.sleep(0.005)

    # -- calls --------------------------------------------------------------------------------------------------------

    def call(
        self, device: str, method: str, arguments: Sequence[Any] = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a method of a device; take the lease first if the method may change something.

        Raises:
            BusyError: Another client holds the lease, or this program has lost the lease.
            LinkLost: The connection was lost; the call may or may not have been executed.
            Exception: The error of the method.
        """
        self._process.check(self.address, device or None)
        try:
            values = {"arguments": [encode(argument) for argument in arguments], "named": encode(dict(named or {}))}
        except TypeError as error:
            raise TypeError(f"{method}(): {error}") from None
        if device and not device.startswith(HANDLE) and method not in READS and method not in SAFE:
            self._take_lease()
        return self._request({"device": device, "method": method, **values, "lease": self._number}, device)

    def _request(self, request: Mapping[str, Any], device: str = "") -> Any:
        text = json_text(request, compact=True)
        name = pv_name(self._prefix, CALL)
        uri = self._p4p.nt.NTURI([("request", "s")]).wrap(name, kws={"request": text})
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        if self._ended.is_set():
            raise self._link_lost(device, "the connection to the served bench was closed")
        if self._lost.is_set():
            raise self._link_lost(device, "the connection to the served bench is lost; nothing was sent")
        # The method of the thread's context would keep waiting after the server is lost.
        operation = self._raw.rpc(name, answers.put, uri)
        try:
            while True:
                try:
                    answer = answers.get(timeout=_POLL_S)
                    break
                except queue.Empty:
                    if self._lost.is_set() or self._ended.is_set():
                        raise self._link_lost(
                            device, "the connection was lost; the call may or may not have been executed"
                        ) from None
        finally:
            operation.close()
        if isinstance(answer, Exception):
            raise self._link_lost(device, f"the served bench did not execute the call: {answer}")
        return self._result(str(answer.raw.value), device)

    def _result(self, text: str, device: str) -> Any:
        document = parse_json(text.encode(), "the reply of the served bench")
        if not isinstance(document, dict):
            raise FrameError("the served bench sent an invalid reply", address=self.address)
        if "error" in document:
            raise decode_error(document["error"])
        if "handle" in document:
            return device_proxy(document["interface"], document["handle"], self)
        return decode_received(document["value"])

    def _link_lost(self, device: str, reason: str) -> LinkLost:
        return LinkLost(reason, device=device or None, address=self.address)

    # -- the lease ----------------------------------------------------------------------------------------------------

    def _take_lease(self) -> None:
        """Take the lease before the first change. A lost lease is not taken again."""
        with self._lock:
            if self._number is None:
                arguments = {"owner": self._owner_name, "lasts_s": LEASE_S, "instead_of": self._take_over}
                self._number = int(self._request(_internal("take", arguments, None)))
                self._renewal_thread = threading.Thread(target=self._renew_lease, name="lumion-lease", daemon=True)
                self._renewal_thread.start()

    def _renew_lease(self) -> None:
        while not self._ended.wait(LEASE_S / 3.0):
            try:
                self._request(_internal("renew", {}, self._number))
            except BusyError:
                return  # the next change raises the error that names the holder
            except LumionError:
                continue  # the server may come back

    @property
    def bench(self) -> str:
        """Name of the served bench."""
        return self._prefix

    @property
    def holds_lease(self) -> bool:
        """Whether this program has taken the lease, which may be lost since."""
        return self._number is not None

    # -- the bench ----------------------------------------------------------------------------------------------------

    def describe(self) -> Mapping[str, Any]:
        """Return the bench file, and the interface and properties of each device."""
        return cast(Mapping[str, Any], self.call("", "describe"))

    def run_job(self, kind: str, arguments: Mapping[str, Any]) -> Any:
        """Run a job of the server, such as ``apply``, with the lease, and return its result as JSON values.

        The server finishes the job even if this program ends or loses the connection.

        Raises:
            BusyError: Another client holds the lease, or another job is running.
            LinkLost: The connection was lost; the job may still run.
            Exception: The error of the job.
        """
        self._take_lease()
        return self._request(_internal("job", {"kind": kind, "values": dict(arguments)}, self._number))

    def plan_difference(self, requests: Sequence[Mapping[str, Any]]) -> Any:
        """Plan the change to a set of wanted circuits, without the lease and without changing anything.

        Args:
            requests: The fields of each :class:`~lumion_hw.circuits.CircuitRequest`.

        Returns:
            The change as JSON values.
        """
        return self.call("", "plan_difference", [[dict(request) for request in requests]])

    def report_progress(
        self, kind: str, stage: str, done: int, total: int, error: str, curve: Mapping[str, Any] | None = None
    ) -> None:
        """Report the progress of a task to the server, if this program holds the lease. Never raises."""
        if self._number is not None:
            named = {"kind": kind, "stage": stage, "done": done, "total": total, "error": error, "curve": curve}
            with contextlib.suppress(LumionError):
                self._request(_internal("progress", named, self._number))

    def emulated_faults(self) -> EmulatedFaults:
        """Return the scripted faults of the served bench, if it is emulated."""
        return EmulatedFaults(lambda *request: self.call("", "emulated_fault", request))

    def clock(self) -> Clock:
        """Return the clock of the readings: that of this host, or an estimate of that of the server."""
        before_s = time.monotonic()
        reply = self.call("", "time")
        after_s = time.monotonic()
        if reply["boot"] == boot_id():
            return SystemClock()
        return ServedClock(float(reply["monotonic_s"]) - 0.5 * (before_s + after_s))

    def close(self) -> None:
        """Release the lease and close the connection.

        Never raises; may be called twice. A forked process sends nothing.
        """
        if self._process.belongs_to_other_process or self._ended.is_set():
            return
        if self._number is not None:
            with contextlib.suppress(LumionError):
                self._request(_internal("release", {}, self._number))
        self._ended.set()
        if self._renewal_thread is not None:
            self._renewal_thread.join(timeout=1.0)
        with self._beats:
            watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
        self._context.close()


def _internal(method: str, named: Mapping[str, Any], number: int | None) -> dict[str, Any]:
    return {"device": "", "method": method, "arguments": [], "named": encode(dict(named)), "lease": number}


def _program_name() -> str:
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"
