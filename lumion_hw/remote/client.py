"""A program's way to a served bench: calls over PV Access, and the lease that its first change takes."""

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
"""How long the lease of a program lasts without a sign of life; it gives one three times as often."""
_CONNECT_S = 5.0
_LOOK_S = 0.1


class ServedClock(SystemClock):
    """The clock of a server on another host: readings are dated by it.

    Args:
        ahead_s: By how much it is ahead of the monotonic clock here.
    """

    def __init__(self, ahead_s: float) -> None:
        self._ahead_s = ahead_s

    def now(self) -> float:
        """Return the server's monotonic seconds."""
        return super().now() + self._ahead_s


class PvaConnection:
    """The way to one served bench. Thread-safe. A call that fails raises the error that it failed with there.

    Args:
        address: ``pva://host:port``, as `lumion serve` says it.
        owner: Name under which the lease is taken, shown to others.
        take_over: Name of the holder of the lease to be replaced; anybody else who holds it is not.
        prefix: What the names of the bench's process variables begin with; asked of the server if not given.

    Raises:
        ConfigError: The address is none, p4p is not installed, or the server is of another version.
        ConnectError: No bench is served there.
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
        self._keeper: threading.Thread | None = None
        host, port = parse_address(address)
        self._context = self._p4p.client.thread.Context("pva", conf=client_conf(host, port), useenv=False)
        self._lost, self._watch = threading.Event(), None
        try:
            self._lost.set()
            self._prefix = prefix or self._bench_name()
            self._watch = self._context.monitor(pv_name(self._prefix, HEARTBEAT), self._heard, notify_disconnect=True)
            self._await_first_beat()
        except BaseException:
            self.close()
            raise

    def _bench_name(self) -> str:
        try:
            told = str(self._context.get(SERVED, timeout=_CONNECT_S).raw.value)
        except Exception as error:
            raise ConnectError(
                "no bench is served there",
                address=self.address,
                hint="Start `lumion serve BENCH --pva`, and use the address that it says.",
            ) from error
        document = parse_json(told.encode(), "what the server says of itself")
        if not isinstance(document, dict) or document.get("protocol") != PROTOCOL:
            raise ConfigError(
                f"the server speaks version {str(told)[:80]} of this protocol, and this program {PROTOCOL}",
                address=self.address,
                hint="Install the same version of lumion-hw on both sides.",
            )
        return str(document["bench"])

    def _heard(self, value: object) -> None:
        """Take note of a heartbeat, or of its loss."""
        if isinstance(value, Exception):
            self._lost.set()
        else:
            self._lost.clear()

    def _await_first_beat(self) -> None:
        deadline_s = time.monotonic() + _CONNECT_S
        while self._lost.is_set():
            if time.monotonic() > deadline_s:
                raise ConnectError("the served bench does not answer", address=self.address)
            time.sleep(0.005)

    # -- calls --------------------------------------------------------------------------------------------------------

    def call(
        self, device: str, method: str, arguments: Sequence[Any] = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a method of a device's interface there; one that may change something takes the lease first.

        Raises:
            BusyError: Somebody else holds the lease, or this program had it and has lost it.
            LinkLost: The served bench is gone; whether the call has taken effect is not known.
            Exception: What was raised there.
        """
        self._process.check(self.address, device or None)
        try:
            values = {"arguments": [encode(each) for each in arguments], "named": encode(dict(named or {}))}
        except TypeError as error:
            raise TypeError(f"{method}(): {error}") from None
        if device and not device.startswith(HANDLE) and method not in READS and method not in SAFE:
            self._hold_lease()
        return self._ask({"device": device, "method": method, **values, "lease": self._number}, device)

    def _ask(self, request: Mapping[str, Any], device: str = "") -> Any:
        text = json_text(request, compact=True)
        name = pv_name(self._prefix, CALL)
        uri = self._p4p.nt.NTURI([("request", "s")]).wrap(name, kws={"request": text})
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        if self._ended.is_set():
            raise self._gone(device, "the connection to the served bench was closed")
        if self._lost.is_set():
            raise self._gone(device, "the served bench is gone; nothing was sent")
        # The base class's call: that of the thread's context waits without seeing that the server is gone.
        raw: Any = super(type(self._context), self._context)
        operation = raw.rpc(name, answers.put, uri)
        try:
            while True:
                try:
                    answer = answers.get(timeout=_LOOK_S)
                    break
                except queue.Empty:
                    if self._lost.is_set() or self._ended.is_set():
                        raise self._gone(
                            device, "the served bench is gone; whether the call has taken effect is not known"
                        ) from None
        finally:
            operation.close()
        if isinstance(answer, Exception):
            raise self._gone(device, f"the served bench did not do the call: {answer}")
        return self._result(str(answer.raw.value), device)

    def _result(self, text: str, device: str) -> Any:
        document = parse_json(text.encode(), "the answer of the served bench")
        if not isinstance(document, dict):
            raise FrameError("the served bench answered with something else than an answer", address=self.address)
        if "error" in document:
            raise decode_error(document["error"])
        if "handle" in document:
            return device_proxy(document["interface"], document["handle"], self)
        return decode_received(document["value"])

    def _gone(self, device: str, words: str) -> LinkLost:
        return LinkLost(words, device=device or None, address=self.address)

    # -- the lease ----------------------------------------------------------------------------------------------------

    def _hold_lease(self) -> None:
        """Take the lease before the first change; one that was lost stays lost."""
        with self._lock:
            if self._number is None:
                arguments = {"owner": self._owner_name, "lasts_s": LEASE_S, "instead_of": self._take_over}
                self._number = int(self._ask(_internal("take", arguments, None)))
                self._keeper = threading.Thread(target=self._keep, name="lumion-lease", daemon=True)
                self._keeper.start()

    def _keep(self) -> None:
        """Give a sign of life three times as often as the lease needs one."""
        while not self._ended.wait(LEASE_S / 3.0):
            try:
                self._ask(_internal("renew", {}, self._number))
            except BusyError:
                return  # the next change says who holds it now
            except LumionError:
                continue  # the server is gone, and may come back

    @property
    def holds_lease(self) -> bool:
        """Whether this program has taken the lease; it may have lost it since."""
        return self._number is not None

    # -- the bench ----------------------------------------------------------------------------------------------------

    def describe(self) -> Mapping[str, Any]:
        """Return what the server says of its bench: its file, and its devices with their interfaces and properties."""
        return cast(Mapping[str, Any], self.call("", "describe"))

    def clock(self) -> Clock:
        """Return the clock that readings are dated by: this host's, or the server's as well as it can be told."""
        before_s = time.monotonic()
        told = self.call("", "time")
        after_s = time.monotonic()
        if told["boot"] == boot_id():
            return SystemClock()
        return ServedClock(float(told["monotonic_s"]) - 0.5 * (before_s + after_s))

    def close(self) -> None:
        """Give the lease back and end the connection; idempotent, never raises. Nothing is sent from a child."""
        if self._process.belongs_to_other_process or self._ended.is_set():
            return
        if self._number is not None:
            with contextlib.suppress(LumionError):
                self._ask(_internal("release", {}, self._number))
        self._ended.set()
        if self._keeper is not None:
            self._keeper.join(timeout=1.0)
        if self._watch is not None:
            self._watch.close()
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
