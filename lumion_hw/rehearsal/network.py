"""Network of a rehearsal: a namespace per server, and a process that forwards Ethernet frames.

Without privileges, socket pairs replace the namespaces.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lumion_hw.errors import ConfigError

_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _IFF_RUNNING = 0x8913, 0x40
_TUNSETIFF, _TUNSETCARRIER = 0x400454CA, 0x400454E2
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_FRAME = 65536
_MAC = bytes.fromhex("024c4d0000")
"""First bytes of the data ports' addresses; the last byte is the number of the server, from 1."""
DATA_INTERFACE, CONTROL_INTERFACE = "data0", "ctl0"
_libc = ctypes.CDLL(None, use_errno=True)


def enter_namespace(handle: int) -> None:
    """Move this thread into a network namespace. Raises ``OSError`` without the privilege."""
    if _libc.setns(handle, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


def die_with_parent() -> None:
    """Make this process end with its parent (prctl PR_SET_PDEATHSIG)."""
    _libc.prctl(1, signal.SIGKILL)


def reason_without_namespaces() -> str | None:
    """Return why namespaces and TAP devices cannot be used here, or ``None`` if they can."""
    if shutil.which("ip") is None:
        return "the program 'ip' (iproute2) is not installed"
    if not Path("/dev/net/tun").exists():
        return "/dev/net/tun does not exist"
    child = os.fork()
    if not child:
        try:
            if _libc.unshare(_CLONE_NEWNET):
                os._exit(1)
            os.close(_tap("lmtry"))
        except OSError:
            os._exit(2)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {0: None, 1: "network namespaces need CAP_SYS_ADMIN"}.get(code, "TAP devices need CAP_NET_ADMIN")


def _tap(name: str) -> int:
    handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(handle, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    except OSError:
        os.close(handle)
        raise
    return handle


def _ip(lines: Sequence[str]) -> None:
    """Run ``ip`` (iproute2) commands in one process. Raises ``ConfigError`` with the error output."""
    completed = subprocess.run(
        ["ip", "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=False
    )
    if completed.returncode:
        raise ConfigError(f"ip could not set up the rehearsal's network: {completed.stderr.strip()[:300]}")


class Forwarder:
    """A process that forwards frames between ports as the light does.

    Args:
        ports: File descriptors of TAP devices or sockets, by server; the caller must close them.
        taps: Whether the ports are TAP devices, whose carrier state follows the light.
    """

    def __init__(self, ports: Mapping[str, int], *, taps: bool) -> None:
        self._control, forwarder_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._child = os.fork()
        if not self._child:
            code = 1
            try:
                die_with_parent()
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                self._control.close()
                _forward(forwarder_end, dict(ports), taps)
                code = 0
            finally:
                os._exit(code)
        forwarder_end.close()
        self._is_open = True

    def set_light(self, arrives: Mapping[str, Sequence[str]]) -> None:
        """Forward frames only over circuits with light; return when this is in effect.

        Between TAP devices, a frame may pass several circuits on its way. A socket pair receives the frames of its
        predecessor only.

        Args:
            arrives: For each receiver, the servers whose light arrives there; see ``LightCallback``.
        """
        self._request({"lit": {name: list(senders) for name, senders in arrives.items()}})

    def counts(self) -> dict[str, int]:
        """Return the numbers of frames ``moved`` (forwarded) and ``dropped``."""
        return self._request({})

    def _request(self, order: Mapping[str, Any]) -> dict[str, int]:
        self._control.send(json.dumps(order).encode())
        answer: dict[str, int] = json.loads(self._control.recv(4096) or b"{}")
        return answer

    def close(self) -> None:
        """End the forwarder process; may be called twice."""
        if self._is_open:
            self._is_open = False
            self._control.close()
            os.waitpid(self._child, 0)


def _routes(arrives: Mapping[str, Sequence[str]], ports: Mapping[str, int]) -> dict[int, dict[int, int]]:
    """Return, for each port, the port that a frame for each server leaves by; servers are numbered from 1."""
    lights: dict[str, set[str]] = {name: set() for name in ports}
    for receiver, senders in arrives.items():
        for sender in filter(None, senders):
            lights[sender].add(receiver)
    routes: dict[int, dict[int, int]] = {}
    for name in ports:
        reached, new = {name}, {name}
        while new:
            new = {receiver for sender in new for receiver in lights[sender]} - reached
            reached |= new
        routes[ports[name]] = {
            number: ports[other] for number, other in enumerate(ports, 1) if other in reached and other != name
        }
    return routes


def _forward(control: socket.socket, ports: dict[str, int], taps: bool) -> None:
    names = {handle: name for name, handle in ports.items()}
    routes: dict[int, dict[int, int]] = {}
    carrier = dict.fromkeys(ports, True)
    counts = {"moved": 0, "dropped": 0}
    poll = select.epoll()
    for handle in (control.fileno(), *names):
        os.set_blocking(handle, handle == control.fileno())
        poll.register(handle, select.EPOLLIN)

    def set_light(arrives: Mapping[str, Sequence[str]]) -> None:
        routes.clear()
        for name, handle in ports.items():
            if taps and carrier[name] != any(arrives.get(name, ())):
                carrier[name] = not carrier[name]
                fcntl.ioctl(handle, _TUNSETCARRIER, struct.pack("i", int(carrier[name])))
        if taps:
            routes.update(_routes(arrives, ports))
        else:
            routes.update({ports[before]: {0: ports[name]} for name, (before, *_) in arrives.items() if before})

    set_light({})
    while True:
        for handle, _ in poll.poll():
            if handle == control.fileno():
                order = control.recv(65536)
                if not order:
                    return
                document = json.loads(order)
                if "lit" in document:
                    set_light(document["lit"])
                control.send(json.dumps(counts).encode())
                continue
            for _ in range(64):  # then serve the other ports
                try:
                    frame = os.read(handle, _FRAME)
                except OSError:
                    break
                if not frame:
                    poll.unregister(handle)  # the worker has ended
                    break
                number = 0 if not taps else frame[5] if frame.startswith(_MAC) else -1
                to = routes.get(handle, {}).get(number)
                try:
                    if to is not None:
                        os.write(to, frame)
                except OSError:
                    to = None
                counts["moved" if to is not None else "dropped"] += 1


class NamespaceNetwork:
    """Network with one namespace per server, each with a data port (emulated light) and a control port.

    Attributes:
        data_addresses: Addresses of the data ports, by server.
        control_addresses: Addresses of the supervisor as seen by the servers, by server.
    """

    kind = "tap"

    def __init__(self, servers: Sequence[str]) -> None:
        run = os.getpid() % 250
        self._prefix = f"lm{os.getpid()}"
        self._names = {name: f"{self._prefix}-{number}" for number, name in enumerate(servers)}
        self.data_addresses = {name: f"10.214.{run}.{number + 1}" for number, name in enumerate(servers)}
        self.control_addresses = {name: f"10.213.{run}.{4 * number + 1}" for number, name in enumerate(servers)}
        self._handles: dict[str, int] = {}
        self._sockets: dict[str, socket.socket] = {}
        self.forwarder: Forwarder | None = None
        try:
            self._set_up(run)
        except BaseException:
            self.close()
            raise

    def _set_up(self, run: int) -> None:
        taps: dict[str, int] = {}
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        try:
            for number, (name, space) in enumerate(self._names.items()):
                host, namespace_link = f"{self._prefix}h{number}", f"{self._prefix}i{number}"
                _ip([
                    f"netns add {space}",
                    f"link add {host} type veth peer name {namespace_link}",
                    f"link set {namespace_link} netns {space}",
                    f"addr add 10.213.{run}.{4 * number + 1}/30 dev {host}",
                    f"link set {host} up",
                ])  # fmt: skip
                self._handles[name] = os.open(f"/run/netns/{space}", os.O_RDONLY)
                enter_namespace(self._handles[name])
                try:
                    self._sockets[name] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # stays in this namespace
                    taps[name] = _tap(DATA_INTERFACE)
                    self._configure_namespace(number, namespace_link, run)
                finally:
                    enter_namespace(home)
            self.forwarder = Forwarder(taps, taps=True)
        finally:
            os.close(home)
            for handle in taps.values():
                os.close(handle)

    def _configure_namespace(self, number: int, namespace_link: str, run: int) -> None:
        for where in ("all", "default"):  # avoid unsolicited IPv6 packets
            path = Path(f"/proc/sys/net/ipv6/conf/{where}/disable_ipv6")
            if path.exists():
                path.write_text("1", encoding="ascii")
        mac = f"{_MAC.hex(':')}:{{:02x}}"
        other_numbers = [other for other in range(len(self._names)) if other != number]
        _ip([
            "link set lo up",
            f"link set {namespace_link} name {CONTROL_INTERFACE}",
            f"addr add 10.213.{run}.{4 * number + 2}/30 dev {CONTROL_INTERFACE}",
            f"link set {CONTROL_INTERFACE} up",
            f"link set {DATA_INTERFACE} address {mac.format(number + 1)}",
            f"addr add 10.214.{run}.{number + 1}/24 dev {DATA_INTERFACE}",
            f"link set {DATA_INTERFACE} up",
            # Otherwise a dark period marks neighbours as FAILED, and the next connection waits a second.
            *(f"neigh replace 10.214.{run}.{other + 1} lladdr {mac.format(other + 1)} "
              f"dev {DATA_INTERFACE} nud permanent" for other in other_numbers),
        ])  # fmt: skip

    def dark_ports(self, servers: Sequence[str]) -> list[str]:
        """Return the servers whose data port cannot send: the kernel takes some ms after the carrier has come back.

        A connection attempt before that is lost, and TCP repeats it after a second.
        """
        request = struct.pack("16sH14x", DATA_INTERFACE.encode(), 0)
        flags = {name: fcntl.ioctl(self._sockets[name], _SIOCGIFFLAGS, request) for name in servers}
        return [name for name, answer in flags.items() if not struct.unpack_from("16xH", answer)[0] & _IFF_RUNNING]

    def handles_for(self, server: str) -> list[int]:
        """Return the file descriptor of the namespace, which a worker of this server needs."""
        return [self._handles[server]]

    def close(self) -> None:
        """Remove all created namespaces and devices; may be called twice."""
        if self.forwarder is not None:
            self.forwarder.close()
            self.forwarder = None
        for handle in self._handles.values():
            os.close(handle)
        self._handles = {}
        for inner in self._sockets.values():
            inner.close()
        self._sockets = {}
        for number, space in enumerate(self._names.values()):
            for command in (["ip", "netns", "del", space], ["ip", "link", "del", f"{self._prefix}h{number}"]):
                subprocess.run(command, capture_output=True, check=False)
        self._names = {}


class PairNetwork:
    """Links between servers as socket pairs, for computers without namespaces."""

    kind = "pairs"

    def __init__(self, servers: Sequence[str]) -> None:
        self._ends: dict[str, socket.socket] = {}
        outer: dict[str, socket.socket] = {}
        for name in servers:
            self._ends[name], outer[name] = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.data_addresses = dict.fromkeys(servers, "")
        self.control_addresses = dict.fromkeys(servers, "127.0.0.1")
        self.forwarder: Forwarder | None = Forwarder({name: end.fileno() for name, end in outer.items()}, taps=False)
        for end in outer.values():
            end.close()

    def dark_ports(self, servers: Sequence[str]) -> list[str]:
        """Return no server: a socket pair can always send."""
        return []

    def handles_for(self, server: str) -> list[int]:
        """Return the file descriptor of the link, which a worker of this server needs."""
        return [self._ends[server].fileno()]

    def close(self) -> None:
        """Close all socket pairs; may be called twice."""
        if self.forwarder is not None:
            self.forwarder.close()
            self.forwarder = None
        for end in self._ends.values():
            end.close()
        self._ends = {}


Network = NamespaceNetwork | PairNetwork
