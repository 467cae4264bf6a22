"""What a strict SCPI driver does around every command: parse, check limits, drain the error queue, verify."""

from __future__ import annotations

import logging

from lumion_hw.errors import DeviceError, FrameError, LimitError, VerifyError
from lumion_hw.sessions.scpi import ScpiSession

_log = logging.getLogger(__name__)

_LARGEST_QUEUE = 64
_LIMIT_SLACK = 1e-6  # limits are float32 on the wire


class StrictScpi:
    """Settings of a SCPI instrument, none of which fails silently.

    Args:
        session: The conversation with the instrument.
        ignorable: Error codes that occur in the instrument's normal operation.
    """

    def __init__(self, session: ScpiSession, ignorable: frozenset[int]) -> None:
        self.session = session
        self._ignorable = ignorable
        self._resyncs_seen = 0

    def number(self, command: str, timeout_s: float | None = None) -> float:
        """Return the number a query is answered with. Raises ``FrameError`` for any other answer."""
        reply = self.session.query(command, timeout_s)
        try:
            return float(reply)
        except ValueError:
            raise self._bad_reply(command, reply) from None

    def errors(self) -> tuple[tuple[int, str], ...]:
        """Drain the error queue (``SYSTem:ERRor?``), oldest first."""
        found: list[tuple[int, str]] = []
        with self.session.transaction():
            for _ in range(_LARGEST_QUEUE):
                reply = self.session.query("SYST:ERR?")
                code_text, _, text = reply.partition(",")
                try:
                    code = int(code_text)
                except ValueError:
                    raise self._bad_reply("SYST:ERR?", reply) from None
                if code == 0:
                    break
                found.append((code, text.strip().strip('"')))
            self._resyncs_seen = self.session.counters.resyncs
        return tuple(found)

    def set(self, command: str) -> None:
        """Send a command and drain the error queue. Raises ``DeviceError`` for an error that is not ignorable."""
        with self.session.transaction():
            if self.session.counters.resyncs != self._resyncs_seen:
                # What is queued from before a link fault would be blamed on this command.
                _log.warning("%s: errors from before a link fault: %s", self.session.device, self.errors())
            self.session.write(command)
            serious = [entry for entry in self.errors() if entry[0] not in self._ignorable]
        if serious:
            raise DeviceError(
                f"{command}: {'; '.join(f'{code} {text}' for code, text in serious)}",
                code=serious[0][0],
                command=command,
                device=self.session.device,
                address=self.session.address,
                hint="This command changed nothing.",
            )

    def check_limits(self, header: str, what: str, value: float, scale: float, unit: str) -> None:
        """Compare a value with the instrument's own limits, before anything is sent.

        Args:
            header: Header of the setting; its query takes ``MIN`` and ``MAX``.
            what: The quantity, for the message.
            value: The value asked for, in ``unit``.
            scale: ``unit`` per unit of the instrument's reply.
            unit: Unit of ``value``.

        Raises:
            LimitError: ``value`` is outside, or not a number.
        """
        lowest = scale * self.number(f"{header}? MIN")
        highest = scale * self.number(f"{header}? MAX")
        if lowest - _LIMIT_SLACK * abs(lowest) <= value <= highest + _LIMIT_SLACK * abs(highest):
            return
        raise LimitError(
            f"{what} is outside the instrument's limits of {lowest:g} to {highest:g} {unit}",
            asked=value,
            limit=lowest if value < lowest else highest,
            unit=unit,
            device=self.session.device,
            address=self.session.address,
            hint="Nothing was changed.",
        )

    def verify(self, what: str, wrote: float, found: float, tolerance: float) -> None:
        """Compare a value set with the value read back. Raises ``VerifyError``."""
        if not abs(found - wrote) <= tolerance:
            raise VerifyError(
                what,
                wrote=wrote,
                read=found,
                device=self.session.device,
                address=self.session.address,
                hint="The instrument keeps another value; see its front panel.",
            )

    def _bad_reply(self, command: str, reply: str) -> FrameError:
        self.session.taint(f"{command} answered with {reply!r}")
        return FrameError(
            f"{command}: expected a number, found {reply!r}",
            device=self.session.device,
            address=self.session.address,
            hint="Check that nobody else talks to the instrument over this connection.",
        )
