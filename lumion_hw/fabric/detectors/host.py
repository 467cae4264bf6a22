"""Detectors on the host: network carrier, processes, heartbeats, and commands such as a GPU health tool."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from lumion_hw.bench.file.fields import Number, WholeNumber
from lumion_hw.errors import ConfigError, NotSupportedError
from lumion_hw.fabric.detectors.kind import DetectorOptions, PollingDetector, WatchTargets
from lumion_hw.fabric.evidence import Evidence
from lumion_hw.fabric.servers import units

# linux/rtnetlink.h and linux/if_link.h; the module ``socket`` does not define these numbers.
_RTMGRP_LINK = 1
_RTM_NEWLINK = 16
_IFLA_IFNAME, _IFLA_CARRIER = 3, 33


def parse_link_changes(message: bytes) -> list[tuple[str, bool]]:
    """Return interface name and carrier state for every RTM_NEWLINK message in a datagram (rtnetlink(7))."""
    changes: list[tuple[str, bool]] = []
    while len(message) >= 16:
        length, message_type = struct.unpack_from("=IH", message)
        # A length shorter than the header is invalid; with length 0 this loop would never end.
        if length < 16:
            break
        if message_type == _RTM_NEWLINK:
            name, carrier = "", None
            # Attributes follow the two headers (nlmsghdr, ifinfomsg), and each is padded to a multiple of four bytes.
            offset = 32
            while offset + 4 <= min(length, len(message)):
                size, attribute = struct.unpack_from("=HH", message, offset)
                if size < 4:
                    break
                value = message[offset + 4 : offset + size]
                if attribute == _IFLA_IFNAME:
                    name = value.rstrip(b"\0").decode(errors="replace")
                elif attribute == _IFLA_CARRIER and value:
                    carrier = bool(value[0])
                offset += (size + 3) & ~3
            if carrier is not None:
                changes.append((name, carrier))
        message = message[(length + 3) & ~3 :]
    return changes


def open_carrier_socket() -> socket.socket:
    """Return a socket that receives link changes in the network namespace of this process.

    Raises:
        NotSupportedError: This is not Linux.
    """
    if not hasattr(socket, "AF_NETLINK"):
        raise NotSupportedError("the carrier detector needs rtnetlink, which only Linux has")
    listener = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    listener.bind((0, _RTMGRP_LINK))
    listener.setblocking(False)
    return listener


class Carrier(PollingDetector):
    """Detects loss of carrier on the network interfaces of this host that ``servers.interfaces`` lists."""

    name = "carrier"

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> Carrier:
        """Return the detector for an entry of a bench file."""
        DetectorOptions(**options)
        return cls()

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._circuit_by_interface: dict[str, str] = {}
        self._polled_s = 0.0

    def start(self, watched: WatchTargets) -> None:
        """Watch the network interfaces at the ends of the given circuits."""
        super().start(watched)
        self._polled_s = self._clock.now()
        module_by_interface = {
            interface: nic
            for unit in units(watched.bench.model).values()
            for nic, interface in zip(unit.nics, unit.interfaces, strict=False)
        }
        circuit_by_target = {circuit.request.target: circuit.request.name for circuit in watched.circuits}
        self._circuit_by_interface = {
            interface: circuit_by_target[nic]
            for interface, nic in module_by_interface.items()
            if nic in circuit_by_target
        }
        if self._socket is None:
            self._socket = open_carrier_socket()

    def poll(self, timeout_s: float) -> Sequence[Evidence]:
        """Return the changes of network carrier since the last poll."""
        del timeout_s
        evidence: list[Evidence] = []
        while self._socket is not None:
            try:
                message = self._socket.recv(65536)
            except BlockingIOError:
                break
            except OSError:  # the socket overflowed: later messages repeat the state
                continue
            for interface, carrier in parse_link_changes(message):
                circuit = self._circuit_by_interface.get(interface)
                if circuit is not None:
                    reason = f"{interface} has {'' if carrier else 'no '}carrier"
                    evidence.append(self._evidence("lit" if carrier else "dark", circuit, self._polled_s, reason))
        self._polled_s = self._clock.now()
        return evidence

    def close(self) -> None:
        """Close the detector's socket; idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class ProcessOptions(DetectorOptions):
    """Options of :class:`Process`."""

    unit: str = Field(description="Server or accelerator that the process belongs to.")
    pid: WholeNumber | None = Field(None, gt=1, description="Process ID.")
    pid_file: str | None = Field(None, description="File that holds the process ID.")


class Process(PollingDetector):
    """Detects the end of a process on this host."""

    name = "process"

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> Process:
        """Return the detector for an entry of a bench file."""
        return cls(ProcessOptions(**options))

    def __init__(self, options: ProcessOptions) -> None:
        self._options = options
        self._pidfd: int | None = None
        self._is_end_reported = False
        self._polled_s = 0.0

    def start(self, watched: WatchTargets) -> None:
        """Watch the process named in the options, if it still exists.

        Raises:
            ConfigError: Neither the process ID nor a file with the process ID is given, or the file contains no number.
        """
        super().start(watched)
        self._polled_s = self._clock.now()
        if self._pidfd is not None or self._is_end_reported:
            return
        try:
            # The kernel can reuse a process ID for a new process; a pidfd always refers to the same process.
            self._pidfd = os.pidfd_open(self._read_pid())
        except ProcessLookupError:
            self._pidfd = None

    def _read_pid(self) -> int:
        if self._options.pid is not None:
            return self._options.pid
        path = self._options.pid_file
        if path is None:
            raise ConfigError(f"the process detector of {self._options.unit} has neither pid nor pid_file")
        try:
            return int(Path(path).read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the process detector of {self._options.unit} cannot read a process ID from {path} ({error})"
            ) from error

    def poll(self, timeout_s: float) -> Sequence[Evidence]:
        """Return an observation if the watched process has ended since the last poll."""
        del timeout_s
        if self._is_end_reported or (self._pidfd is not None and not select.select([self._pidfd], [], [], 0.0)[0]):
            self._polled_s = self._clock.now()
            return ()
        self._is_end_reported = True
        return [self._evidence("gone", self._options.unit, self._polled_s, "its process has ended")]

    def close(self) -> None:
        """Close the file descriptor of the process; idempotent."""
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


class HeartbeatOptions(DetectorOptions):
    """Options of :class:`Heartbeat`."""

    port: WholeNumber = Field(ge=0, le=65535, description="UDP port of this host; 0 for any free port.")
    # By default only this host can send: heartbeats are not signed, so any sender could make a dead server look alive.
    host: str = Field("127.0.0.1", description="Address of this host in the control network.")
    limit_s: Number = Field(
        0.3, ge=0.01, le=3600.0, description="Silence after which a sender counts as failed, in seconds."
    )


class Heartbeat(PollingDetector):
    """Detects missing heartbeats: datagrams that contain the sender's name.

    A sender is watched after its first heartbeat.
    """

    name = "heartbeat"

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> Heartbeat:
        """Return the detector for an entry of a bench file."""
        return cls(HeartbeatOptions(**options))

    def __init__(self, options: HeartbeatOptions) -> None:
        self._options = options
        self._socket: socket.socket | None = None
        self._last_contact_s: dict[str, float] = {}
        self._missing_senders: set[str] = set()
        self._units: tuple[str, ...] = ()

    @property
    def address(self) -> tuple[str, int]:
        """Address and port of the socket."""
        if self._socket is None:
            raise ConfigError("the heartbeat detector was not started")
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    def start(self, watched: WatchTargets) -> None:
        """Open the socket, and accept heartbeats of the given servers and accelerators."""
        super().start(watched)
        self._units = watched.units
        if self._socket is None:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            self._socket.bind((self._options.host, self._options.port))

    def poll(self, timeout_s: float) -> Sequence[Evidence]:
        """Read received heartbeats; report servers and accelerators whose heartbeats are missing or are back."""
        del timeout_s
        evidence, now_s = list[Evidence](), self._clock.now()
        while self._socket is not None:
            try:
                sender = self._socket.recv(256).decode("utf-8", errors="replace").strip()
            except BlockingIOError:
                break
            if sender in self._units:
                self._last_contact_s[sender] = now_s
                if sender in self._missing_senders:
                    self._missing_senders.discard(sender)
                    evidence.append(self._evidence("back", sender, now_s, "heartbeats are received again"))
        # Only senders of an earlier heartbeat are checked, so a server without a heartbeat program is not reported.
        for sender, contact_s in self._last_contact_s.items():
            if now_s - contact_s > self._options.limit_s and sender not in self._missing_senders:
                self._missing_senders.add(sender)
                reason = f"no heartbeat for {now_s - contact_s:.3f} s"
                evidence.append(self._evidence("gone", sender, contact_s, reason))
        return evidence

    def close(self) -> None:
        """Close the detector's socket; idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class HealthCommandOptions(DetectorOptions):
    """Options of :class:`HealthCommand`."""

    unit: str = Field(description="Server or accelerator that is checked.")
    argv: tuple[str, ...] = Field(min_length=1, description="Program and arguments; no shell.")
    every_s: Number = Field(5.0, ge=0.05, le=3600.0, description="Time between two runs, in seconds.")
    timeout_s: Number = Field(
        5.0, ge=0.05, le=3600.0, description="Time after which a run counts as failed, in seconds."
    )
    times: WholeNumber = Field(2, ge=1, le=100, description="Failures in a row before the unit counts as failed.")


class HealthCommand(PollingDetector):
    """Runs a program that checks a server, such as ``nvidia-smi``; an exit code other than 0 means failure."""

    name = "command"

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> HealthCommand:
        """Return the detector for an entry of a bench file."""
        return cls(HealthCommandOptions(**options))

    def __init__(self, options: HealthCommandOptions) -> None:
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = self._next_s = self._last_healthy_s = 0.0
        self._failures = 0

    def start(self, watched: WatchTargets) -> None:
        """Run the health command periodically from now on."""
        super().start(watched)
        self._next_s = self._last_healthy_s = self._clock.now()

    def poll(self, timeout_s: float) -> Sequence[Evidence]:
        """Report the result of the health command if it has ended, and start its next run when due."""
        del timeout_s
        now_s = self._clock.now()
        if self._process is None:
            if now_s < self._next_s:
                return ()
            self._started_s, self._next_s = now_s, now_s + self._options.every_s
            try:
                self._process = subprocess.Popen(
                    self._options.argv,
                    # No pipes: this detector would not read them, and a program blocks when its pipe is full.
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            except OSError as error:
                return self._record_result(f"{self._options.argv[0]} cannot be run: {error.strerror}")
            return ()
        code = self._process.poll()
        # Poll without waiting: a slow program must not delay the other detectors.
        if code is None and now_s - self._started_s < self._options.timeout_s:
            return ()
        if code is None:
            self._kill_process()
            return self._record_result(f"{self._options.argv[0]} took longer than {self._options.timeout_s:g} s")
        self._process = None
        return self._record_result(f"{self._options.argv[0]} ended with exit code {code}" if code else "")

    def _record_result(self, failure: str) -> list[Evidence]:
        previous_failures, self._failures = self._failures, self._failures + 1 if failure else 0
        since_s = self._last_healthy_s
        if not failure:
            self._last_healthy_s = self._clock.now()
            had_failed = previous_failures >= self._options.times
            return [self._evidence("back", self._options.unit, since_s)] if had_failed else []
        # Report the failure once, when the count is reached; further failures add no evidence.
        if self._failures != self._options.times:
            return []
        return [self._evidence("gone", self._options.unit, since_s, failure)]

    def _kill_process(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End a running health command; idempotent."""
        self._kill_process()
