"""One host connection to a SCPI instrument."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from lumion_hw.emulator.scpi import errors
from lumion_hw.emulator.scpi.commands import Call, Form, PendingReply, Reply, Value
from lumion_hw.emulator.scpi.errors import NotApplied, ScpiError
from lumion_hw.emulator.scpi.framing import Framer, ScpiMessage
from lumion_hw.emulator.scpi.lexer import CommandHeader, parse_token, parse_unit
from lumion_hw.emulator.scpi.state import ROUNDING_S, InstrumentState
from lumion_hw.emulator.scpi.tree import Tree

_LOG = logging.getLogger(__name__)


class Connection:
    """Instrument's end of one host connection (:class:`~lumion_hw.links.base.Peer`).

    Messages are carried out in order. A command that fails gives no reply and queues an error; the commands after it
    are still carried out.

    Args:
        on_close: Called once when the host closes the connection.
    """

    def __init__(
        self,
        state: InstrumentState,
        tree: Tree,
        advance: Callable[[], None],
        on_close: Callable[[Connection], None],
    ) -> None:
        self._state = state
        self._tree = tree
        self._advance = advance
        self._on_close = on_close
        self._framer = self._fresh_framer()
        self._messages: deque[ScpiMessage] = deque()
        self._waiting_bytes = 0
        self._units: deque[bytes] | None = None
        self._path: tuple[str, ...] = ()
        self._replies: list[bytes] = []
        self._output = bytearray()
        self._pending: tuple[PendingReply, Form] | None = None
        self._query = False
        self._running = False
        self._closed = False

    # -- peer interface

    def receive(self, data: bytes) -> None:
        """Process bytes from the host and execute the messages that they complete."""
        if self._closed:
            return
        self._advance()
        # Carried out one by one: the limit of the input buffer applies to waiting messages, not to the size of one
        # read.
        for message in self._framer.feed(data):
            self._enqueue(message)
            self.run()

    def transmit(self) -> bytes:
        """Return the replies that are ready."""
        if not self._output:
            self._advance()
        output = bytes(self._output)
        self._output.clear()
        return output

    def next_event(self) -> float | None:
        """Return the time of the next possible output; ``None`` if it is unknown."""
        if self._output:
            return self._state.clock.now()
        return self._pending[0].due_s() if self._pending else None

    def close(self) -> None:
        """Discard everything that this host has sent."""
        if not self._closed:
            self._closed = True
            self._messages.clear()
            self._units = self._pending = None
            self._on_close(self)

    # -- message exchange (HiSLIP only, not for plain byte streams)

    @property
    def response_pending(self) -> bool:
        """Whether a reply is in preparation or not yet transmitted."""
        return bool(self._output or self._replies or (self._pending is not None and self._query))

    def end_message(self) -> None:
        """End the present message without a terminator (END)."""
        for message in self._framer.end():
            self._enqueue(message)
            self.run()

    def device_clear(self) -> None:
        """Discard received data and pending replies (device clear)."""
        self._framer = self._fresh_framer()  # discards an incomplete message too
        self._messages.clear()
        self._waiting_bytes = 0
        self._units = self._pending = None
        self._replies.clear()
        self._output.clear()

    def interrupt(self) -> None:
        """Discard a reply that the host did not read before it sent more (error -410)."""
        self.device_clear()
        self._state.report(errors.QUERY_INTERRUPTED)

    def serial_poll(self) -> tuple[int, int]:
        """Return the status byte and the mask of ``*SRE``."""
        status = self._state.status
        available = bool(self._output or self._replies)
        byte = status.status_byte(errors=self._state.has_errors, message_available=available)
        return byte, status.service_enable

    # -- messages

    def _fresh_framer(self) -> Framer:
        profile = self._state.profile
        return Framer(profile.message_limit, blocks=self._tree.has_blocks, cr_ends=profile.cr_ends)

    def _enqueue(self, message: ScpiMessage) -> None:
        if message.overrun or self._waiting_bytes + message.size > self._state.profile.message_limit:
            self._state.report(errors.INPUT_BUFFER_OVERRUN)
            return
        self._messages.append(message)
        self._waiting_bytes += message.size

    def run(self) -> None:
        """Execute all commands that can run now."""
        if self._running:
            return
        self._running = True
        try:
            while self._step():
                pass
        finally:
            self._running = False

    def _step(self) -> bool:
        if self._pending is not None:
            pending, form = self._pending
            due = pending.due_s()
            if due is None or due > self._state.clock.now() + ROUNDING_S:
                return False
            self._pending = None
            self._run_step(pending.finish, form)
        elif self._units:
            self._run_unit(self._units.popleft())
        elif self._units is not None:
            self._end_message()
        elif self._messages:
            message = self._messages.popleft()
            self._waiting_bytes -= message.size
            self._units, self._path = deque(message.units), ()
        else:
            return False
        return not self._closed

    def _end_message(self) -> None:
        self._units = None
        if self._replies:
            self._output += b";".join(self._replies)
            if self._state.profile.terminated_blocks or not self._replies[-1].startswith(b"#"):
                self._output += self._state.profile.terminator
            self._replies.clear()

    # -- units

    def _run_unit(self, raw: bytes) -> None:
        def carry_out() -> Reply:
            unit = parse_unit(raw, self._state.profile.message_limit)
            if unit is None:
                return None
            form, suffix = self._resolve(unit.header)
            self._query = unit.header.query
            # The number of parameters is checked before their kinds: too many are -108 whatever they are.
            if len(unit.parameters) > len(form.parameters):
                raise ScpiError(errors.PARAMETER_NOT_ALLOWED)
            if len(unit.parameters) < form.required:
                raise ScpiError(errors.MISSING_PARAMETER)
            call = Call(suffix, message_available=bool(self._replies or self._output))
            values: list[Value] = [
                parameter.parse(parse_token(raw_parameter), call)
                for parameter, raw_parameter in zip(form.parameters, unit.parameters, strict=False)
            ]
            return self._invoke(form, Call(suffix, tuple(values), call.message_available))

        self._run_step(carry_out, None)

    def _resolve(self, header: CommandHeader) -> tuple[Form, dict[str, int]]:
        """Return the command of a header, relative to the previous command's path or from the root after a colon."""
        # Common commands neither use nor change the path.
        if header.common:
            return self._tree.find(header.mnemonics, query=header.query)
        full = header.mnemonics if header.absolute else (*self._path, *header.mnemonics)
        # The path is the header as sent, with or without optional nodes: the next header is looked up only below it.
        self._path = full[:-1]
        return self._tree.find(full, query=header.query)

    def _invoke(self, form: Form, call: Call) -> Reply:
        def run() -> Reply:
            result = form.run(call)
            if isinstance(result, PendingReply):
                self._pending = (result, form)
                return None
            return result

        self._run_step(run, form)
        return None

    def _run_step(self, action: Callable[[], Reply], form: Form | None) -> None:
        reply: Reply = None
        try:
            reply = action()
        except NotApplied:  # the value is ignored without an entry in the error queue
            pass
        except ScpiError as refusal:
            self._state.report(refusal.code)
            reply = form.marker if form else None
        except Exception:  # noqa: BLE001 - the instrument continues, whatever a host sends
            _LOG.exception("internal error of the emulator in a command; the host gets error -310")
            self._state.report(errors.SYSTEM_ERROR)
        if reply is not None:
            self._replies.append(reply if isinstance(reply, bytes) else reply.encode("ascii", "replace"))
