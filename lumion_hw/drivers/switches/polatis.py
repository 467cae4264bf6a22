"""Driver for Polatis (HUBER+SUHNER) matrix switches over SCPI: TCP port 5025, or a serial line.

Source: the maker's SCPI guide as quoted by public clients. The error query is unverified.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Unpack

from lumion_hw.clock import Clock
from lumion_hw.drivers.life_cycle import close_on_error
from lumion_hw.drivers.scpi import DeviceNames, ScpiDriver
from lumion_hw.errors import BusyError, ConfigError, IdentityError, VerifyError
from lumion_hw.interfaces import SwitchPorts
from lumion_hw.links.base import Link

SETTLE_S = 0.025
"""Settling time of the light, in s; the maker's data sheets state less than 25 ms (unverified)."""
_LISTS = re.compile(r"\(@([\d,: ]*)\)\s*,\s*\(@([\d,: ]*)\)")


class Polatis(ScpiDriver):
    """Driver of one switch; implements ``OpticalSwitch``. Thread-safe; every setting is read back.

    Args:
        link: Link to the switch.
        clock: Clock of the link.
        expected_size: Required numbers of inputs and outputs; any if omitted.
        settle_s: Time from a change of connections until the light has switched.
        **names: Device name and expected identity, as for :class:`~lumion_hw.drivers.scpi.ScpiDriver`.
    """

    kind = "switch"
    makers = ("POLATIS", "HUBER")

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        expected_size: tuple[int, int] | None = None,
        settle_s: float = SETTLE_S,
        **names: Unpack[DeviceNames],
    ) -> None:
        super().__init__(link, clock, **names)
        self._expected_size = expected_size
        self._settle_s = settle_s
        self._ports = SwitchPorts((), ())

    def open(self) -> None:
        """Open the link, check identity and size. The connections do not change.

        Raises the errors of :meth:`Driver.open`, and ``IdentityError`` if the size is not the expected one.
        """
        with self._session.transaction(), close_on_error(self.close):
            self._identify()
            self._scpi.errors()  # discard errors of earlier users
            sizes = self._scpi.numbers(":OXC:SWIT:SIZE?")
            size = tuple(round(field) for field in sizes)
            if len(size) != 2 or min(size) < 1:
                raise self._scpi.wrong_shape(":OXC:SWIT:SIZE?", str(sizes), "the numbers of inputs and outputs")
            if self._expected_size not in (None, size):
                raise self._session.error(
                    IdentityError,
                    f"expected a switch of {self._expected_size} inputs and outputs, found one of {size}",
                    hint="Check n_inputs and n_outputs in the bench file, and which switch is connected there.",
                )
            n_inputs, n_outputs = size
            self._ports = SwitchPorts(
                tuple(range(1, n_inputs + 1)), tuple(range(n_inputs + 1, n_inputs + n_outputs + 1))
            )

    @property
    def ports(self) -> SwitchPorts:
        """Port numbers of the switch."""
        self._check_open()
        return self._ports

    def connections(self) -> Mapping[int, int]:
        """Return the present connections as a mapping from input port to output port."""
        self._check_open()
        command = ":OXC:SWIT:CONN:STAT?"
        with self._session.transaction():
            reply = self._session.query(command)
            lists = _LISTS.fullmatch(reply.strip())
            port_lists = None if lists is None else tuple(_parse_channel_list(group) for group in lists.groups())
            if port_lists is None or len(port_lists[0]) != len(port_lists[1]):
                raise self._scpi.wrong_shape(command, reply, "two lists of ports")
        # Light passes in both directions, so a connection may be listed either way round.
        pairs = (sorted(pair) for pair in zip(*port_lists, strict=True))
        actual: dict[int, int] = dict(sorted(pairs))
        if not (set(actual) <= set(self._ports.inputs) and set(actual.values()) <= set(self._ports.outputs)):
            raise self._scpi.wrong_shape(command, reply, "an input and an output in each connection")
        return actual

    def connect(self, connections: Mapping[int, int]) -> None:
        """Connect inputs to outputs. Raises the errors of :meth:`OpticalSwitch.connect`."""
        requested = self._checked_connections(connections)
        with self._session.transaction():
            before = self.connections()
            in_use = {*before, *before.values()}
            new = {entry: exit_port for entry, exit_port in requested.items() if before.get(entry) != exit_port}
            busy = sorted(port for pair in new.items() for port in pair if port in in_use)
            if busy:
                raise self._session.error(
                    BusyError,
                    f"ports {', '.join(map(str, busy))} belong to other connections",
                    command=":OXC:SWIT:CONN:ADD",
                    hint="Nothing was changed. Disconnect these ports first, or use set_connections().",
                )
            self._set_and_verify(f":OXC:SWIT:CONN:ADD {_channel_lists(new)}" if new else None, {**before, **new})

    def disconnect(self, inputs: Collection[int]) -> None:
        """Disconnect inputs from their outputs. Raises the errors of :meth:`OpticalSwitch.disconnect`."""
        self._check_ports("inputs", inputs, self.ports.inputs)
        with self._session.transaction():
            before = self.connections()
            removed = {entry: before[entry] for entry in sorted(inputs) if entry in before}
            remaining = {entry: exit_port for entry, exit_port in before.items() if entry not in removed}
            self._set_and_verify(f":OXC:SWIT:CONN:SUB {_channel_lists(removed)}" if removed else None, remaining)

    def set_connections(self, connections: Mapping[int, int]) -> None:
        """Make these connections and remove all others. Raises the errors of :meth:`OpticalSwitch.set_connections`."""
        requested = self._checked_connections(connections)
        with self._session.transaction():
            self._set_and_verify(
                f":OXC:SWIT:CONN:ONLY {_channel_lists(requested)}" if requested else ":OXC:SWIT:DISC:ALL", requested
            )

    def _set_and_verify(self, command: str | None, requested: Mapping[int, int]) -> None:
        if command is None:
            return
        self._scpi.set(command)
        self._clock.sleep(self._settle_s)
        actual = self.connections()
        if actual != requested:
            raise self._session.error(
                VerifyError,
                "connections",
                wrote=dict(requested),
                read=dict(actual),
                hint="Another program may control this switch, or one of its ports has failed.",
            )

    def _checked_connections(self, connections: Mapping[int, int]) -> dict[int, int]:
        self._check_ports("inputs", connections, self.ports.inputs)
        self._check_ports("outputs", tuple(connections.values()), self.ports.outputs)
        return dict(sorted(connections.items()))

    def _check_ports(self, label: str, ports: Collection[int], allowed: Sequence[int]) -> None:
        unknown = [port for port in ports if isinstance(port, bool) or port not in allowed]
        if not unknown and len(set(ports)) == len(ports):
            return
        actual = f"there are no {label} {unknown}" if unknown else f"{label} named twice: {sorted(ports)}"
        raise self._session.error(
            ConfigError, actual, hint=f"The {label} are {allowed[0]} to {allowed[-1]}. Nothing was changed."
        )


def _channel_lists(connections: Mapping[int, int]) -> str:
    return f"(@{','.join(map(str, connections))}),(@{','.join(map(str, connections.values()))})"


def _parse_channel_list(text: str) -> tuple[int, ...]:
    actual: list[int] = []
    for item in filter(None, (field.strip() for field in text.split(","))):
        first, _, last = item.partition(":")
        actual += range(int(first), int(last or first) + 1)
    return tuple(actual)
