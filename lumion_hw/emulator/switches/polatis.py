"""Emulated Polatis (HUBER+SUHNER) optical matrix switch.

Command language: the ``:OXC:`` subsystem as public clients quote the manual. A channel list is ``(@1,2,3)``, an empty
one ``(@)``. ``PORT:STAT?`` replies D, E or F for each port. Commands have no reply. Inputs are ports 1 to N, outputs
are the ports from N + 1 on. ``PMON:POW? (@1,17)`` replies ``(-3.21,-60.00)`` in dBm, at most 256 ports at once. CR, LF
or both end a command.

Unverified choices: a new connection of a port ends its old connection. ``SUB`` of pairs that are not connected does
nothing; with an empty second list it disconnects the ports of the first list. ``PORT?`` of a free port replies ``""``.
Lists of different length give error -220, missing ports -222, a disabled port -221. Connections survive ``*RST``, and a
power loss only if ``OXC:SWIT:BOOT:MODE`` is ``AUTO`` and not ``VOLatile``. Steering a beam takes 25 ms, for which
``*OPC?`` waits; light passes afterwards. Insertion loss is 1 dB. Every port has a power monitor, which reads -60 dBm in
the dark. ``SYST:ERR:ALL?`` replies all errors, separated by commas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lumion_hw.clock import Clock
from lumion_hw.emulator.scpi import (
    Call,
    Choice,
    Form,
    Numeric,
    Profile,
    Reply,
    ScpiCommand,
    ScpiDevice,
    ScpiError,
    ScpiInstrument,
    Value,
    action,
    errors as scpi_errors,
    event,
    query,
    word_setting,
)
from lumion_hw.emulator.scpi.formats import quoted
from lumion_hw.emulator.scpi.lexer import Token, TokenKind
from lumion_hw.quantities import dbm_from_w

STEERING_S = 0.025
_LIST = re.compile(r"@(?:\d{1,5}(?::\d{1,5})?(?:,\d{1,5}(?::\d{1,5})?)*)?", re.ASCII)
_MAX_PORTS = 4096
_MAX_POWERS = 256
_DARK_W = 1e-9


@dataclass(frozen=True)
class ChannelList:
    """SCPI parameter: a list of ports, ``(@1,2,5:7)``; parsed to port numbers separated by commas."""

    optional: bool = False

    def parse(self, token: Token, call: Call) -> Value:
        """Return the received port numbers, separated by commas."""
        del call
        text = token.text.replace(" ", "").replace("\t", "")
        if token.kind is not TokenKind.EXPRESSION or not _LIST.fullmatch(text):
            raise ScpiError(scpi_errors.DATA_TYPE_ERROR)
        ports: list[int] = []
        for part in filter(None, text[1:].split(",")):
            first, _, last = part.partition(":")
            ports += range(int(first), min(int(last or first), int(first) + _MAX_PORTS) + 1)
            if len(ports) > _MAX_PORTS:
                raise ScpiError(scpi_errors.DATA_OUT_OF_RANGE)
        return ",".join(map(str, ports))


class EmulatedPolatis(ScpiDevice):
    """Emulated Polatis optical matrix switch.

    Args:
        n_inputs: Number of ports on the first side, from 1.
        n_outputs: Number of ports on the second side, numbered after the inputs.
        changed: Called when the path of light has changed.
        power_w: Returns the power at an input or output; no power by default.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        serial: str = "000001",
        n_inputs: int = 16,
        n_outputs: int = 16,
        changed: Callable[[], None] = lambda: None,
        power_w: Callable[[int], float] = lambda port: 0.0,
    ) -> None:
        super().__init__(name, clock)
        self._n_inputs, self._n_ports = n_inputs, n_inputs + n_outputs
        self._size = f"{n_inputs},{n_outputs}"
        self._changed, self._power_w = changed, power_w
        self._boot_mode = "VOLatile"
        self._joined: dict[int, int] = {}
        self._arrives_s: dict[int, float] = {}
        self._disabled: set[int] = set()
        identity = f"Polatis,N-OST-{n_inputs}x{n_outputs}-LU1-DMHNS,{serial},6.5.2.18"
        self._scpi = ScpiInstrument(name, clock, Profile(identity, cr_ends=True), lambda: None)
        self._scpi.declare(self._commands())

    def connections(self) -> Mapping[int, int]:
        """Return the connected ports, with both directions of each connection."""
        now_s = self._clock.now()
        ready = {port: partner for port, partner in self._joined.items() if self._arrives_s[port] <= now_s + 1e-9}
        return {**ready, **{partner: port for port, partner in ready.items()}}

    def _lose_power(self) -> None:
        super()._lose_power()
        if self._boot_mode != "AUTO":
            self._joined.clear()
        self._changed()

    def _commands(self) -> Iterable[ScpiCommand]:
        pair = ChannelList(), ChannelList()
        root = ":OXC:SWITch"
        yield event(f"{root}:CONNect:ADD", lambda call: self._connect(call, disconnects_others=False), *pair)
        yield event(f"{root}:CONNect:ONLY", lambda call: self._connect(call, disconnects_others=True), *pair)
        yield event(f"{root}:CONNect:SUB", self._disconnect, *pair)
        yield query(f"{root}:CONNect:STATe", self._state)
        yield query(f"{root}:CONNect:PORT", self._partner, Numeric(1, self._n_ports, integer=True))
        yield action(f"{root}:DISConnect:ALL", lambda: self._disconnect_inputs(list(self._joined)))
        yield query(f"{root}:SIZE", lambda _: self._size)
        yield event(f"{root}:PORT:DISable", self._disable, ChannelList())
        yield event(f"{root}:PORT:ENABle", self._enable, ChannelList())
        yield word_setting(
            f"{root}:BOOT:MODE",
            Choice(("VOLatile", "AUTO")),
            lambda _: self._boot_mode,
            lambda _, word: setattr(self, "_boot_mode", word),
        )
        yield query(":PMON:POWer", self._powers, ChannelList())
        yield query(":SYSTem:ERRor:ALL", lambda _: self._all_errors())
        states = Form(self._port_states, (ChannelList(optional=True),))
        yield ScpiCommand(f"{root}:PORT:STATe", query=states)

    def _ports(self, call: Call, index: int) -> list[int]:
        ports = [int(number) for number in call.text(index).split(",") if number]
        if any(not 1 <= port <= self._n_ports for port in ports):
            raise ScpiError(scpi_errors.DATA_OUT_OF_RANGE)
        return ports

    def _pairs(self, call: Call) -> list[tuple[int, int]]:
        """Return pairs (input, output) from two port lists, each of which may contain inputs and outputs."""
        first, second = self._ports(call, 0), self._ports(call, 1)
        if len(first) != len(second) or len({*first, *second}) != 2 * len(first):
            raise ScpiError(scpi_errors.PARAMETER_ERROR)
        pairs = [(min(pair), max(pair)) for pair in zip(first, second, strict=True)]
        if any(not port <= self._n_inputs < partner for port, partner in pairs):
            raise ScpiError(scpi_errors.DATA_OUT_OF_RANGE)
        return pairs

    def _connect(self, call: Call, *, disconnects_others: bool) -> Reply:
        pairs = self._pairs(call)
        if self._disabled & {port for pair in pairs for port in pair}:
            raise ScpiError(scpi_errors.SETTINGS_CONFLICT)
        existing = dict(self._joined)
        if disconnects_others:
            self._disconnect_inputs([port for port, partner in existing.items() if (port, partner) not in pairs])
        for port, partner in pairs:
            if existing.get(port) == partner and self._joined.get(port) == partner:
                continue
            self._disconnect_inputs([a for a, b in self._joined.items() if a == port or b == partner])
            self._joined[port], self._arrives_s[port] = partner, self._clock.now() + STEERING_S
            self._scpi.state.begin(STEERING_S, self._changed)
        return None

    def _disconnect(self, call: Call) -> Reply:
        if not call.text(1):
            ends = set(self._ports(call, 0))
            self._disconnect_inputs([port for port, partner in self._joined.items() if ends & {port, partner}])
        else:
            pairs = set(self._pairs(call))
            self._disconnect_inputs([port for port, partner in self._joined.items() if (port, partner) in pairs])
        return None

    def _disconnect_inputs(self, inputs: list[int]) -> None:
        self._changed()
        for port in inputs:
            del self._joined[port], self._arrives_s[port]

    def _state(self, _: Call) -> Reply:
        pairs = sorted(self._joined.items())
        first, second = (",".join(str(pair[side]) for pair in pairs) for side in (0, 1))
        return f"(@{first}),(@{second})"

    def _partner(self, call: Call) -> Reply:
        port = call.integer()
        partners = {**self._joined, **{partner: port for port, partner in self._joined.items()}}
        return quoted(str(partners[port])) if port in partners else quoted("")

    def _powers(self, call: Call) -> Reply:
        ports = self._ports(call, 0)
        if len(ports) > _MAX_POWERS:
            raise ScpiError(scpi_errors.DATA_OUT_OF_RANGE)
        powers_dbm = (dbm_from_w(max(self._power_w(port), _DARK_W)) for port in ports)
        return "(" + ",".join(f"{power_dbm:.2f}" for power_dbm in powers_dbm) + ")"

    def _all_errors(self) -> Reply:
        state = self._scpi.state
        errors = [state.pop_error()]
        while state.has_errors:
            errors.append(state.pop_error())
        return ",".join(errors)

    def _disable(self, call: Call) -> Reply:
        ports = set(self._ports(call, 0))
        self._disabled |= ports
        self._disconnect_inputs([port for port, partner in self._joined.items() if ports & {port, partner}])
        return None

    def _enable(self, call: Call) -> Reply:
        self._disabled -= set(self._ports(call, 0))
        return None

    def _port_states(self, call: Call) -> Reply:
        ports = self._ports(call, 0) if call.values else range(1, self._n_ports + 1)
        return "(" + ",".join("D" if port in self._disabled else "E" for port in ports) + ")"
