"""Polatis (HUBER+SUHNER) matrix switches over SCPI: TCP port 5025, or a serial line.

Commands and replies as the maker's SCPI guide gives them, in the words of public clients that quote it: size ``16,16``,
connections ``(@1,2,3),(@19,18,22)`` and ``(@),(@)`` where there are none, ``CONN:ADD``, ``CONN:SUB``, ``CONN:ONLY`` and
``DISC:ALL`` without a reply. Inputs are the ports from 1, outputs those behind them. That ``SYST:ERR?`` takes the
oldest error out of a queue is SCPI's own rule (check on a switch).
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
"""Time until the light follows; the maker's data sheets state less than 25 ms (check)."""
_LISTS = re.compile(r"\(@([\d,: ]*)\)\s*,\s*\(@([\d,: ]*)\)")


class Polatis(ScpiDriver):
    """Driver of one switch; implements ``OpticalSwitch``. Thread-safe; every set is read back.

    Args:
        link: The link to the switch.
        clock: The link's clock.
        expected_size: Numbers of inputs and outputs that must be found; any if omitted.
        settle_s: Time after a set until the light follows.
        **names: As of :class:`~lumion_hw.drivers.scpi.ScpiDriver`.
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
        """Open the link, check identity and size. The connections stay as they are.

        Raises:
            ConnectError: The link cannot be opened.
            IdentityError: Another instrument answers, or a switch of another size.
            LinkTimeout: Nothing answers.
        """
        with self._session.transaction(), close_on_error(self.close):
            self._identify()
            self._scpi.errors()  # what was left by others is not ours
            sizes = self._scpi.numbers(":OXC:SWIT:SIZE?")
            size = tuple(round(each) for each in sizes)
            if len(size) != 2 or min(size) < 1:
                raise self._scpi.wrong_shape(":OXC:SWIT:SIZE?", str(sizes), "the numbers of inputs and outputs")
            if self._expected_size not in (None, size):
                raise self._session.error(
                    IdentityError,
                    f"expected a switch of {self._expected_size} inputs and outputs, found one of {size}",
                    hint="Check n_inputs and n_outputs in the bench file, or which switch is plugged in there.",
                )
            n_inputs, n_outputs = size
            self._ports = SwitchPorts(
                tuple(range(1, n_inputs + 1)), tuple(range(n_inputs + 1, n_inputs + n_outputs + 1))
            )

    @property
    def ports(self) -> SwitchPorts:
        """The ports there are."""
        self._check_open()
        return self._ports

    def connections(self) -> Mapping[int, int]:
        """Ask for the connections in force: output by input, in the order of the inputs."""
        self._check_open()
        command = ":OXC:SWIT:CONN:STAT?"
        with self._session.transaction():
            reply = self._session.query(command)
            lists = _LISTS.fullmatch(reply.strip())
            ends = None if lists is None else tuple(_listed(group) for group in lists.groups())
            if ends is None or len(ends[0]) != len(ends[1]):
                raise self._scpi.wrong_shape(command, reply, "two lists of ports")
        # Light goes both ways, and so may a connection be listed.
        pairs = (sorted(pair) for pair in zip(*ends, strict=True))
        found: dict[int, int] = dict(sorted(pairs))
        if not (set(found) <= set(self._ports.inputs) and set(found.values()) <= set(self._ports.outputs)):
            raise self._scpi.wrong_shape(command, reply, "an input and an output in each connection")
        return found

    def connect(self, connections: Mapping[int, int]) -> None:
        """Join inputs with outputs. Raises as :meth:`OpticalSwitch.connect`."""
        wanted = self._checked(connections)
        with self._session.transaction():
            before = self.connections()
            in_use = {*before, *before.values()}
            new = {entry: out for entry, out in wanted.items() if before.get(entry) != out}
            busy = sorted(port for pair in new.items() for port in pair if port in in_use)
            if busy:
                raise self._session.error(
                    BusyError,
                    f"ports {', '.join(map(str, busy))} are part of other connections",
                    command=":OXC:SWIT:CONN:ADD",
                    hint="Nothing was changed. Disconnect them first, or use set_connections().",
                )
            self._put(f":OXC:SWIT:CONN:ADD {_lists(new)}" if new else None, {**before, **new})

    def disconnect(self, inputs: Collection[int]) -> None:
        """Part inputs from their outputs. Raises as :meth:`OpticalSwitch.disconnect`."""
        self._check_ports("inputs", inputs, self.ports.inputs)
        with self._session.transaction():
            before = self.connections()
            gone = {entry: before[entry] for entry in sorted(inputs) if entry in before}
            left = {entry: out for entry, out in before.items() if entry not in gone}
            self._put(f":OXC:SWIT:CONN:SUB {_lists(gone)}" if gone else None, left)

    def set_connections(self, connections: Mapping[int, int]) -> None:
        """Make these connections and part all others. Raises as :meth:`OpticalSwitch.set_connections`."""
        wanted = self._checked(connections)
        with self._session.transaction():
            self._put(f":OXC:SWIT:CONN:ONLY {_lists(wanted)}" if wanted else ":OXC:SWIT:DISC:ALL", wanted)

    def _put(self, command: str | None, wanted: Mapping[int, int]) -> None:
        """Send a command, if there is one, and read back what has to be in force then."""
        if command is None:
            return
        self._scpi.set(command)
        self._clock.sleep(self._settle_s)
        found = self.connections()
        if found != wanted:
            raise self._session.error(
                VerifyError,
                "connections",
                wrote=dict(wanted),
                read=dict(found),
                hint="Somebody else may drive this switch, or a port of it has failed.",
            )

    def _checked(self, connections: Mapping[int, int]) -> dict[int, int]:
        self._check_ports("inputs", connections, self.ports.inputs)
        self._check_ports("outputs", tuple(connections.values()), self.ports.outputs)
        return dict(sorted(connections.items()))

    def _check_ports(self, label: str, given: Collection[int], there: Sequence[int]) -> None:
        unknown = [port for port in given if isinstance(port, bool) or port not in there]
        if not unknown and len(set(given)) == len(given):
            return
        found = f"no {label} are {unknown}" if unknown else f"{label} named twice: {sorted(given)}"
        raise self._session.error(
            ConfigError, found, hint=f"The {label} are {there[0]} to {there[-1]}. Nothing was changed."
        )


def _lists(connections: Mapping[int, int]) -> str:
    """Return connections as two channel lists (SCPI-1999, 8.3.2)."""
    return f"(@{','.join(map(str, connections))}),(@{','.join(map(str, connections.values()))})"


def _listed(text: str) -> tuple[int, ...]:
    """Return the ports of a channel list, whose ranges are written ``1:4``."""
    found: list[int] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        first, _, last = part.partition(":")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)
