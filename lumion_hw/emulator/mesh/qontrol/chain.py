"""Emulated Qontrol chain as a device: one serial line with several modules."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.emulator.mesh.qontrol.errors import (
    BAD_CHANNEL,
    BUFFER_OVERFLOW,
    SERIAL,
    ErrorLimiter,
    Refused,
    error_line,
)
from lumion_hw.emulator.mesh.qontrol.executor import Executor
from lumion_hw.emulator.mesh.qontrol.load import HeaterLoad
from lumion_hw.emulator.mesh.qontrol.module import EmulatedQ8
from lumion_hw.emulator.mesh.qontrol.profile import ChainProfile, ErrorOrder, ModuleSpec
from lumion_hw.emulator.mesh.qontrol.requests import BinaryRequest, RequestReader, TextLine, read_binary, read_text
from lumion_hw.emulator.mesh.qontrol.timing import ReplyTiming
from lumion_hw.emulator.wires.mains import DeviceConnection, Switchable
from lumion_hw.emulator.wires.serial_line import SerialLine
from lumion_hw.errors import ConfigError

OUTPUT_LIMIT = 1 << 16
"""Number of unread reply bytes above which requests are lost."""
INPUT_LIMIT = 1 << 16
"""Number of bytes in transmission to the modules above which further bytes are lost."""

_POLL_S = 0.001


class QontrolPeer:
    """One host connection to the Qontrol chain.

    Args:
        baud: Line rate; ``None`` for no transmission time.
    """

    def __init__(self, chain: QontrolChain, baud: float | None, reader: RequestReader, timing: ReplyTiming) -> None:
        self._chain = chain
        self._line = SerialLine(baud, INPUT_LIMIT)
        self._reader = reader
        self._timing = timing
        self._inbound_bytes = 0
        self._arrived_s = float("-inf")
        self._unread_bytes = 0

    def receive(self, data: bytes) -> None:
        """Start the transmission of bytes that the host sends."""
        self._chain.advance()
        if not self._chain.powered:
            return
        accepted = data[: INPUT_LIMIT - self._inbound_bytes] if self._line.byte_s else data
        now_s = self._chain.now()
        self._line.receive(accepted, now_s)
        self._inbound_bytes += len(accepted)
        self._arrived_s = max(self._arrived_s, now_s) + self._line.byte_s * len(accepted)
        self._chain.advance()

    def transmit(self) -> bytes:
        """Return the bytes that have reached the host."""
        self._chain.advance()
        data = self._line.take_departed(self._timing.visible_s(self._chain.now()))
        self._unread_bytes -= len(data)
        return data

    def next_event(self) -> float | None:
        """Return the time at which more bytes reach the host."""
        departure = self._line.next_departure()
        times = [self._chain.next_due(), None if departure is None else self._timing.delivered_s(departure)]
        if self._inbound_bytes:
            times.append(min(self._arrived_s, self._chain.now() + _POLL_S))
        return min((time for time in times if time is not None), default=None)

    def close(self) -> None:
        """Close the connection. Outputs stay on."""
        self._chain.disconnect(self)

    # -- the chain's side

    def requests(self, now_s: float) -> Iterator[tuple[float, TextLine | BinaryRequest]]:
        """Yield the requests that have arrived by a time, with arrival times."""
        while (chunk := self._line.take_arrived(now_s)) is not None:
            end_s, data = chunk
            self._inbound_bytes -= len(data)
            yield from self._reader.feed(data, end_s, self._line.byte_s)

    @property
    def full(self) -> bool:
        """Whether the host's requests are lost because of too many unread replies."""
        return self._unread_bytes >= OUTPUT_LIMIT

    def send(self, data: bytes, ready_s: float) -> None:
        """Send bytes to the host. Callers check :attr:`full` first."""
        self._unread_bytes += len(data)
        self._line.send(data, ready_s)

    def clear(self) -> None:
        """Discard all bytes in transmission, and an incomplete request."""
        self._line.clear()
        self._reader.reset()
        self._inbound_bytes = self._unread_bytes = 0
        self._arrived_s = float("-inf")


_MAX_STORED_ERRORS = 256
_MIN_WORDS = 64


class QontrolChain(Switchable):
    """A chain of Qontrol output modules on one serial line.

    There is no watchdog: outputs stay on when the host disconnects.

    Args:
        drive: Called with the currents of all channels in mA, shape ``(n_channels,)``, and the time, at construction
            and whenever a current changes. Times never run backwards but may lie before the clock's present time.
        modules: The modules in the order of the chain; at least one, else ``ConfigError``.
        loads: Load of each channel, or one load for all; ``ConfigError`` for another number of loads.

    Attributes:
        tamper: Scripted fault: a function that changes the bytes of every reply.
        silent: Scripted fault: requests are carried out, but no reply is sent.
    """

    description = "the chain"
    keeps_connections = True

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        *,
        drive: Callable[[NDArray[np.float64], float], None],
        modules: Sequence[ModuleSpec] = (ModuleSpec(number=1),),
        loads: Sequence[HeaterLoad] | HeaterLoad | None = None,
        profile: ChainProfile | None = None,
    ) -> None:
        super().__init__(name, clock)
        self._drive_outputs = drive
        self.profile = profile or ChainProfile()
        self._modules = self._build(modules, loads, rng)
        self._present = list(self._modules)
        self._n_channels = sum(module.n_channels for module in self._modules)
        self._executor = Executor(self.profile, self._present)
        self._timing = ReplyTiming(self.profile.reply_mode, rng)
        self._overflow = ErrorLimiter(self.profile.burst_lines, self.profile.burst_window_s)
        self._peers: list[QontrolPeer] = []
        self._stored_errors: deque[str] = deque(maxlen=_MAX_STORED_ERRORS)
        self._time = clock.now()
        self._ready_s = float("-inf")
        self._extra_s = 0.0
        self._advancing = False
        self._driven = np.full(self.n_channels, np.nan)
        self.tamper: Callable[[bytes], bytes] | None = None
        self.silent = False
        self._working_loads: dict[int, HeaterLoad] = {}
        self._drive()

    def _build(
        self, modules: Sequence[ModuleSpec], loads: Sequence[HeaterLoad] | HeaterLoad | None, rng: np.random.Generator
    ) -> tuple[EmulatedQ8, ...]:
        count = sum(spec.n_channels for spec in modules)
        if loads is None or isinstance(loads, HeaterLoad):
            loads = [loads or HeaterLoad()] * count
        if not modules or len(loads) != count:
            raise ConfigError(
                f"a chain of {len(modules)} modules has {count} channels, but {len(loads)} loads are given",
                device=self._name,
                hint="Give one load per channel and at least one module.",
            )
        built, first = [], 0
        for spec in modules:
            module_loads = loads[first : first + spec.n_channels]
            built.append(EmulatedQ8(spec, self.profile, module_loads, first, rng, self._clock.now()))
            first += spec.n_channels
        return tuple(built)

    # -- the device

    @property
    def n_channels(self) -> int:
        """Number of channels, including those of removed modules."""
        return self._n_channels

    @property
    def currents_ma(self) -> NDArray[np.float64]:
        """Output currents at the last :meth:`advance`; shape ``(n_channels,)``."""
        return self._driven.copy()

    def connect(self) -> DeviceConnection:
        """Open another connection. Raises ``ConnectError`` without power or cable."""
        self._require_reachable()
        words = max(self.n_channels, _MIN_WORDS)
        reader = RequestReader(self.profile.line_limit, words, self.profile.binary_gap_s)
        peer = QontrolPeer(self, self.profile.baud, reader, self._timing)
        self._peers.append(peer)
        return DeviceConnection(self, peer)

    def disconnect(self, peer: QontrolPeer) -> None:
        """Remove a closed connection. Requests that have already arrived are still executed."""
        self.advance()
        if peer in self._peers:
            self._peers.remove(peer)

    def next_due(self) -> float | None:
        """Return the time at which a module next reports an exceeded limit; ``None`` if none is pending."""
        if not self.powered:
            return None
        times = (module.next_error_s() for module in self._present)
        return min((time for time in times if time is not None), default=None)

    def advance(self) -> None:
        """Execute received requests and send the due error reports."""
        if self._advancing or not self.powered:
            return
        self._advancing = True
        try:
            now_s = self._clock.now()
            for peer in tuple(self._peers):
                for at_s, item in peer.requests(now_s):
                    self._advance_to(at_s)
                    self._handle_request(peer, item)
            self._advance_to(now_s)
        finally:
            self._advancing = False

    # -- requests and replies

    def _advance_to(self, until_s: float) -> None:
        self._time = max(self._time, until_s)
        due = self.next_due()
        if due is None or due > self._time:
            return
        # All modules share one line, so their errors are sent in order of time.
        lines = sorted(line for module in self._present for line in module.supervise(self._time))
        for at_s, line in lines:
            if self.profile.error_order is ErrorOrder.NATURAL:
                self._broadcast(line, at_s)
            else:
                self._stored_errors.append(line)

    def _broadcast(self, line: str, at_s: float) -> None:
        for peer in self._peers:
            if not (self.silent or peer.full):
                peer.send(f"{line}\n".encode("latin-1"), at_s)

    def _handle_request(self, peer: QontrolPeer, item: TextLine | BinaryRequest) -> None:
        # Requests of a host that does not read are lost, as with a full buffer of the module.
        if peer.full or not self._present:
            return
        lines = self._execute(item)
        if self.profile.echo and isinstance(item, TextLine):
            lines = [item.text.decode("latin-1"), *lines]
        if lines:
            self._send_reply(peer, lines)

    def _execute(self, item: TextLine | BinaryRequest) -> list[str]:
        if isinstance(item, TextLine) and item.too_long:
            # A line of 86 bytes is answered by E14, then E15 (recorded: branch virtual-module of takeqontrol/api).
            replies = (self._overflow.admit(error_line(code), self._time) for code in (BUFFER_OVERFLOW, SERIAL))
            return [line for line in replies if line is not None]
        if isinstance(item, TextLine) and not item.text:
            return []
        try:
            if isinstance(item, TextLine):
                request = read_text(item.text, echo=self.profile.echo)
            else:
                request = read_binary(item, check_parity=self.profile.check_parity)
            lines = self._executor.execute(request, self._time)
        except Refused as refused:
            # Errors that concern no particular module are logged by the first one (model choice).
            self._present[0].log_error(refused.code, refused.channel, self._time)
            silent = refused.code == BAD_CHANNEL and self.profile.silent_unknown_channels
            return [] if silent else [error_line(refused.code, refused.channel)]
        self._drive()
        return lines

    def _send_reply(self, peer: QontrolPeer, lines: list[str]) -> None:
        index = 1 if self.profile.error_order is ErrorOrder.INSIDE_REPLY else 0
        lines[index:index] = self._stored_errors
        self._stored_errors.clear()
        data = "".join(f"{line}\n" for line in lines).encode("latin-1")
        if self.tamper is not None:
            data = self.tamper(data)
        # Replies stay in order: a late one delays all later ones.
        self._ready_s = max(self._ready_s, self._time + self._timing.delay_s() + self._extra_s)
        self._extra_s = 0.0
        if not self.silent:
            for after_s, chunk in self._timing.split_reply(data):
                peer.send(chunk, self._ready_s + after_s)

    def _drive(self) -> None:
        currents = np.zeros(self.n_channels)
        for module in self._present:
            end = module.first + module.n_channels
            currents[module.first : end] = [channel.output.current_ma for channel in module.channels]
        if not np.array_equal(currents, self._driven):  # always true at first: NaN differs from everything
            self._driven = currents
            self._drive_outputs(currents.copy(), self._time)

    # -- scripted faults

    def set_load(self, channel: int, load: HeaterLoad) -> None:
        """Change the load of a channel, as a broken or shorted heater does."""
        self._advance_to_present()
        module, local = self._find_channel(channel)
        module.channels[local].load = load
        module.settle_output(local, self._time)
        self._drive()

    def age_load(self, channel: int, load: HeaterLoad) -> None:
        """Change the load of a channel by ageing. A failed load stays failed until :meth:`repair_load`."""
        if channel in self._working_loads:
            self._working_loads[channel] = load
            return
        module, local = self._find_channel(channel)
        module.channels[local].load = load
        module.settle_output(local, self._time)

    @property
    def n_present(self) -> int:
        """Number of modules in the chain."""
        return len(self._present)

    def fail_load(self, channel: int, load: HeaterLoad) -> None:
        """Change the load of a channel until :meth:`repair_load`."""
        module, local = self._find_channel(channel)
        self._working_loads.setdefault(channel, module.channels[local].load)
        self.set_load(channel, load)

    def repair_load(self, channel: int) -> None:
        """Restore the load that a channel had before :meth:`fail_load`."""
        if channel in self._working_loads:
            self.set_load(channel, self._working_loads.pop(channel))

    def trip(self, channel: int, code: int = 1) -> None:
        """Make a module report an unsolicited error now.

        Args:
            channel: Index among all channels of the chain.
            code: Error code.
        """
        self._advance_to_present()
        module, local = self._find_channel(channel)
        line = module.report(code, local, self._time)
        if line is not None:
            self._broadcast(line, self._time)

    def delay_next_reply(self, delay_s: float) -> None:
        """Delay the next reply, and all replies behind it, by a number of seconds."""
        self._extra_s = delay_s

    def remove_module(self, index: int) -> None:
        """Remove a module: its outputs switch off, and the channels after it get lower numbers."""
        self._advance_to_present()
        module = self._present.pop(index)
        module.power_cycle(self._time)
        self._drive()

    def power_cycle(self) -> None:
        """Switch the chain off and on: outputs go to 0, data in transmission is lost, every module sends ``E90:00``."""
        self.power_off()
        self.power_on()

    def _lose_power(self) -> None:
        self._time = max(self._time, self._clock.now())
        for module in self._modules:
            module.power_cycle(self._time)
        for peer in self._peers:
            peer.clear()
        self._stored_errors.clear()
        self._ready_s = float("-inf")
        self._drive()

    def _regain_power(self) -> None:
        self._time = max(self._time, self._clock.now())
        for peer in self._peers:
            peer.clear()
        for module in self._present:
            self._broadcast(module.power_cycle(self._time), self._time)

    def _find_channel(self, channel: int) -> tuple[EmulatedQ8, int]:
        for module in self._modules:
            if module.first <= channel < module.first + module.n_channels:
                return module, channel - module.first
        raise ConfigError(f"there is no channel {channel}", device=self._name, hint=f"Give 0 to {self.n_channels - 1}.")

    def _advance_to_present(self) -> None:
        self.advance()
        self._time = max(self._time, self._clock.now())
