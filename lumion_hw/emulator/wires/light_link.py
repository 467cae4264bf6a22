"""Carries the light in the fibres between meshes that are emulated in several processes on one host.

Every emulator sends the light that leaves its mesh to the emulator at the other end of each fibre, by UDP on loopback:
a JSON object with the name of the bench and, by port, lines of origin, power in W and wavelength in nm. It sends when
the light changes, and repeats the light from time to time. If an emulator is silent, its fibres are dark.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from lumion_hw.clock import Clock
from lumion_hw.emulator.optics.joined_fibres import CarriedLight, FibreEndLight, JoinedFibre, weakened
from lumion_hw.emulator.optics.world import OpticalWorld
from lumion_hw.errors import ConnectError, InUseError
from lumion_hw.links.base import Peer

_HOST = "127.0.0.1"
_PERIOD_S = 0.01
"""Time between two looks at the light."""
_REPEAT_S = 0.2
_SILENT_S = 1.0
"""Silence of an emulator after which its light is gone."""
_MAX_BYTES = 60_000
_MAX_LINES = 256
_MAX_POWER_W = 10.0


class LightLink:
    """Exchanges light with other emulators. It is served like a device, and has no connections of its own.

    Args:
        bench: Name of the bench.
        world: Optical model of the bench.
        fibres: All fibres between the meshes.
        ports: UDP port of each emulator, by the name of its bench.
        clock: The clock of the devices.

    Raises:
        InUseError: Another program uses the port of this bench.
        ConnectError: The port cannot be opened.
    """

    name = "fibres to other meshes"

    def __init__(
        self, bench: str, world: OpticalWorld, fibres: Sequence[JoinedFibre], ports: Mapping[str, int], clock: Clock
    ) -> None:
        self._bench, self._world, self._ports, self._clock = bench, world, ports, clock
        self._outgoing = [fibre for fibre in fibres if fibre.from_bench == bench]
        self._incoming = {(fibre.from_bench, fibre.from_port): fibre for fibre in fibres if fibre.to_bench == bench}
        self.ends = FibreEndLight(bench, world)
        self._sent: dict[str, tuple[bytes, float]] = {}
        self._heard_s: dict[str, float] = {}
        self._state: object | None = None  # of the light for which the datagrams hold
        self._datagrams: dict[str, bytes] = {}
        self._due_s = clock.now()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind((_HOST, ports[bench]))
        except OSError as error:
            self._socket.close()
            kind = InUseError if error.errno in (48, 98) else ConnectError
            raise kind(
                f"cannot receive the light of other emulators at {_HOST}:{ports[bench]}: {error.strerror}",
                hint="End the emulator that uses it, or change emulated_port in the file of joined meshes.",
            ) from error
        self._socket.setblocking(False)

    def connect(self) -> Peer:
        """Refuse a connection. Raises ``ConnectError``."""
        raise ConnectError("the fibres to other meshes have no connection", device=self.name)

    def next_due(self) -> float | None:
        """Return the time of the next look at the light."""
        return self._due_s

    def advance(self) -> None:
        """Let arrived light enter the mesh, and send the light that leaves it."""
        now_s = self._clock.now()
        self._due_s = now_s + _PERIOD_S
        self._receive(now_s)
        for bench, heard_s in list(self._heard_s.items()):
            if now_s - heard_s > _SILENT_S:
                del self._heard_s[bench]
                self._enter(bench, {})
        with self._world.time:  # the devices are brought up to date once for all fibres
            state = self._world.light_state()
            if state is None or state != self._state:
                leaving = self.ends.leaving([fibre.from_port for fibre in self._outgoing])
                benches = {fibre.to_bench for fibre in self._outgoing}
                self._datagrams = {bench: self._datagram(bench, leaving) for bench in benches}
            self._state = state
        for bench, datagram in self._datagrams.items():
            before, sent_s = self._sent.get(bench, (b"", -math.inf))
            if datagram != before or now_s - sent_s >= _REPEAT_S:
                with contextlib.suppress(OSError):  # the other emulator is not there yet
                    self._socket.sendto(datagram, (_HOST, self._ports[bench]))
                self._sent[bench] = datagram, now_s

    def _datagram(self, bench: str, leaving: Mapping[int, Sequence[CarriedLight]]) -> bytes:
        light = {
            str(fibre.from_port): [
                [line.origin, float(f"{line.power_w:.6g}"), line.wavelength_nm]
                for line in weakened(leaving[fibre.from_port], fibre.loss_db)
            ]
            for fibre in self._outgoing
            if fibre.to_bench == bench
        }
        return json.dumps({"bench": self._bench, "light": light}).encode()

    def _receive(self, now_s: float) -> None:
        newest: dict[str, Mapping[str, Any]] = {}
        while True:
            try:
                data = self._socket.recv(_MAX_BYTES)
            except OSError:  # nothing more has arrived
                break
            message = _parsed(data)
            if message is not None:
                newest[message["bench"]] = message["light"]
        for bench, light in newest.items():
            self._heard_s[bench] = now_s
            self._enter(bench, light)

    def _enter(self, bench: str, light: Mapping[str, Any]) -> None:
        for (start, port), fibre in self._incoming.items():
            if start == bench:
                self.ends.arrive(fibre.to_port, _lines(light.get(str(port), [])))

    def close(self) -> None:
        """Close the port; idempotent."""
        self._socket.close()


def _parsed(data: bytes) -> dict[str, Any] | None:
    """Return a message, or ``None`` if another program sent something else to this port."""
    try:
        message = json.loads(data)
    except ValueError:
        return None
    is_message = (
        isinstance(message, dict) and isinstance(message.get("bench"), str) and isinstance(message.get("light"), dict)
    )
    return message if is_message else None


def _lines(entries: object) -> list[CarriedLight]:
    if not isinstance(entries, list):
        return []
    return [
        CarriedLight(str(entry[0])[:200], float(entry[1]), float(entry[2]))
        for entry in entries[:_MAX_LINES]
        if isinstance(entry, list)
        and len(entry) == 3
        and all(isinstance(number, int | float) and not isinstance(number, bool) for number in entry[1:])
        and 0.0 < entry[1] <= _MAX_POWER_W
        and 100.0 < entry[2] < 1e5
    ]
