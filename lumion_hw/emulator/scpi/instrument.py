"""An emulated SCPI instrument."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from lumion_hw.clock import Clock
from lumion_hw.emulator.scpi.commands import Profile, ScpiCommand
from lumion_hw.emulator.scpi.connection import Connection
from lumion_hw.emulator.scpi.errors import SYSTEM_ERROR
from lumion_hw.emulator.scpi.standard import common_commands
from lumion_hw.emulator.scpi.state import InstrumentState
from lumion_hw.emulator.scpi.tree import SuffixRange, Tree
from lumion_hw.emulator.wires.mains import MessageConnection, Switchable

_LOG = logging.getLogger(__name__)


class ScpiInstrument:
    """An emulated device that speaks SCPI. To be used by one thread at a time.

    Args:
        on_advance: Called before every action, so that measurements and outputs follow the clock.
        next_update: Returns the time at which ``on_advance`` must run even without a host; ``None`` for never.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        profile: Profile,
        on_reset: Callable[[], None],
        on_advance: Callable[[], None] = lambda: None,
        next_update: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._name = name
        self._on_advance = on_advance
        self._next_update = next_update
        self.state = InstrumentState(clock, profile, on_reset)
        self._tree = Tree(common_commands(self.state), {})
        self._connections: list[Connection] = []

    def declare(self, commands: Iterable[ScpiCommand], suffixes: Mapping[str, SuffixRange] | None = None) -> None:
        """Declare the instrument's own commands.

        Raises ``ConfigError`` if the declarations contradict each other or cannot be parsed.

        Args:
            commands: The declarations; a second call replaces those of the first.
            suffixes: Range of every numeric suffix in the patterns.
        """
        every = (*common_commands(self.state), *commands)
        self._tree = Tree(every, suffixes or {}, self.state.profile.aliases)

    @property
    def name(self) -> str:
        """Device name in the bench file."""
        return self._name

    def connect(self) -> Connection:
        """Open another connection from a host."""
        connection = Connection(self.state, self._tree, self.advance, self._connections.remove)
        self._connections.append(connection)
        return connection

    def power_cycle(self) -> None:
        """Switch the power off and on: default settings, no errors, no operation in progress."""
        for connection in self._connections:
            connection.device_clear()
        self.state.reset()
        self.state.clear()
        self.advance()

    def advance(self) -> None:
        """Advance to the clock's present time."""
        try:
            self._on_advance()
        except Exception:  # noqa: BLE001 - the instrument continues; the host finds -310 in the queue
            _LOG.exception("internal error of the emulator while time advanced; the host gets error -310")
            self.state.report(SYSTEM_ERROR)
        self.state.advance()
        # An operation that has ended may be one that a host waits for.
        for connection in tuple(self._connections):
            connection.run()

    def next_due(self) -> float | None:
        """Return the next time at which an operation ends or the instrument must follow the clock, or ``None``."""
        times = (self.state.next_end_s(), self._next_update())
        return min((at_s for at_s in times if at_s is not None), default=None)


class ScpiDevice(Switchable):
    """Base class of emulated devices that speak SCPI; ``_scpi`` is the :class:`ScpiInstrument`."""

    description = "the instrument"
    _scpi: ScpiInstrument

    def connect(self) -> MessageConnection:
        """Open another connection. Raises ``ConnectError`` without power or cable."""
        self._require_reachable()
        return MessageConnection(self, self._scpi.connect())

    def _lose_power(self) -> None:
        self._scpi.power_cycle()

    def _regain_power(self) -> None:
        self._scpi.power_cycle()

    def advance(self) -> None:
        """Advance to the clock's present time."""
        self._scpi.advance()

    def next_due(self) -> float | None:
        """Return the next time at which an operation ends or the device must follow the clock; ``None`` for never."""
        return self._scpi.next_due()
