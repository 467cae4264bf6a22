"""The APT session: requests and replies between messages that a device sends whenever it likes."""

from __future__ import annotations

from collections.abc import Callable

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import LinkTimeout
from lumion_hw.links.base import Link, ModemLink
from lumion_hw.sessions.codecs.apt import AptDecoder, AptFrame, DecodedAptMessage, command
from lumion_hw.sessions.conversation import Conversation

DEFAULT_TIMEOUT_S = 0.5
"""Time for a reply: 20 bytes at 115 200 baud take 2 ms, a USB bridge may hold them for 16 ms."""
WRITE_GAP_S = 3e-3
"""Between two writes, or the device loses some (Thorlabs MPC, docs/instruments.md)."""
# Opening wants RTS toggled; nobody states for how long. A project default.
_RTS_PULSE_S = 0.05


class AptSession(Conversation):
    """A conversation with one device. Thread-safe; share one session per line.

    A reply is known by its id and channel. Whatever else comes, before a request or in front of its reply, is a message
    on its own and goes to ``on_frame``; bytes that are no message taint.

    Args:
        link: The link; 115 200 baud, 8N1.
        clock: The link's clock.
        device: Device name, for messages.
        on_frame: Told of every message, asked for or not, while the session is held.
        timeout_s: Default time for a reply.
    """

    # Six zero bytes cover every shift within a header of six; two rounds more for damage on the way.
    resync_rounds = 8
    harmless = b""

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        device: str,
        on_frame: Callable[[AptFrame], None] = lambda frame: None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        super().__init__(link, clock, device=device, timeout_s=timeout_s)
        self._on_frame = on_frame
        self._decoder = AptDecoder()
        self._written_at = clock.now() - WRITE_GAP_S
        self._is_first_probe = True

    def open(self, timeout_s: float = 5.0) -> None:
        """Open the link, pulse RTS if it has one, and wait until the device answers for its parameters.

        Raises:
            ConnectError: The link cannot be opened.
            LinkTimeout: Nothing answers so.
        """
        with self.transaction():
            self.open_link(timeout_s)
            with self._named():
                if isinstance(self._link, ModemLink):
                    self._link.set_rts(False)
                    self._clock.sleep(_RTS_PULSE_S)
                    self._link.set_rts(True)
                self._decoder = AptDecoder()
                for _ in range(self.resync_rounds):
                    if self.probe(Deadline(self._clock.now() + self._timeout_s)):
                        return
            self._decoder.reset()
            self._count(foreign_bytes=self._decoder.foreign_bytes)
            raise self.error(
                LinkTimeout,
                f"nothing answers a request for the parameters of paddles, {self.resync_rounds} times",
                hint="Check that the controller is on, and its address in the bench file.",
            )

    def tell(self, message: bytes, what: str) -> None:
        """Send a message that has no reply. Raises ``LinkLost``."""
        with self.exchange(what) as deadline:
            self._put(message, deadline)

    def ask(self, message: bytes, what: str, wanted: DecodedAptMessage, channel: int | None = None) -> AptFrame:
        """Send a request and return its reply.

        Args:
            message: The request.
            what: The request, for messages.
            wanted: Id of the reply.
            channel: Channel id that the reply speaks of; any if omitted.

        Raises:
            LinkTimeout: No reply in time; the next exchange resynchronises first.
            FrameError: Bytes came that are no message.
            LinkLost: The link is gone, or could not be resynchronised.
        """
        with self.exchange(what) as deadline:
            started, foreign = self._clock.now(), self._decoder.foreign_bytes
            self._put(message, deadline)
            reply = self._wait_for(wanted, channel, deadline)
            foreign = self._decoder.foreign_bytes - foreign
            if foreign:
                self._count(foreign_bytes=foreign)
                raise self._frame_error(what, f"among {foreign} bytes that are no message")
            if reply is None:
                raise self._incomplete(what, started)
            return reply

    def probe(self, deadline: Deadline) -> bool:
        """Ask for the parameters, which no device sends unasked; after a failure first send one zero byte.

        A device that waits for the rest of a frame takes our bytes for it: shifted by one byte each time, one round
        meets its frames. Six zeros, and what a shifted request looks like, are addressed to nobody.
        """
        if not self._is_first_probe:
            self._put(b"\0", deadline)
        self._is_first_probe = False
        self._put(command(DecodedAptMessage.REQUEST_PARAMETERS), deadline)
        self._is_first_probe = self._wait_for(DecodedAptMessage.PARAMETERS, None, deadline) is not None
        return self._is_first_probe

    def _put(self, message: bytes, deadline: Deadline) -> None:
        """Write a message once the device is ready for it."""
        wait_s = self._written_at + WRITE_GAP_S - self._clock.now()
        if wait_s > 0.0:
            self._clock.sleep(wait_s)
        self.send(message, deadline)
        self._written_at = self._clock.now()

    def _wait_for(self, wanted: DecodedAptMessage, channel: int | None, deadline: Deadline) -> AptFrame | None:
        """Take messages until one is wanted, the latest if several came at once; ``None`` at the deadline."""
        while data := self._link.read(deadline):
            found = [
                frame for frame in self._taken(data) if frame.message == wanted and channel in (None, frame.channel)
            ]
            if found:
                # States are sent unasked as well; of several the latest is the present one.
                return found[-1]
            if self._clock.now() >= deadline:
                break
        return None

    def _taken(self, data: bytes) -> list[AptFrame]:
        frames = self._decoder.feed(data)
        for frame in frames:
            self._on_frame(frame)
        return frames

    def _get_in_step(self, what: str) -> None:
        if not self._tainted:
            foreign = self._decoder.foreign_bytes
            self._taken(self._link.read(Deadline(self._clock.now())))
            foreign = self._decoder.foreign_bytes - foreign
            if foreign:
                self._count(foreign_bytes=foreign)
                self.mark_out_of_sync(f"{foreign} bytes that are no message, before {what}")
        if self._tainted:
            self._resynchronise()

    def _discard_input(self, quiet_s: float) -> int:
        """Take what comes until the line is quiet; return the bytes that were no message."""
        foreign, end = self._decoder.foreign_bytes, self._clock.now() + quiet_s + self._patience_s
        while (now := self._clock.now()) < end and (data := self._link.read(Deadline(min(now + quiet_s, end)))):
            self._taken(data)
        self._decoder.reset()
        foreign = self._decoder.foreign_bytes - foreign
        self._count(foreign_bytes=foreign)
        return foreign
